"""Scalar kernels that plans and the controller share: what a share of a sub-join costs on a host besides its legs.

A host is told by three numbers: `present`, the results it serves (a whole sub-join counts 1, the share f of one counts
f), `load`, the tuples/s it takes in, its other work included, and `burst`, the wait in ms that slices cause there. All
present wait alike, so a host costs present · (time at the host + burst), and a newcomer costs what that grows by.
"""

from __future__ import annotations

from nova.jit import kernel
from nova.model.waiting import drain_ms, sojourn_ms, waiting_quantile


@kernel
def stay_ms(load, limit, scv, quantile):  # type: ignore[no-untyped-def]
    """Time at a host: the mean, or with a `quantile` above 0 the service and that quantile of the wait."""
    if quantile > 0.0:
        return 1000.0 / limit + waiting_quantile(quantile, load, limit, scv)
    return sojourn_ms(load, limit, scv, 0.0)


@kernel
def host_cost(present, load, burst, limit, scv, quantile):  # type: ignore[no-untyped-def]
    """Time at a host, summed over what it serves."""
    if present <= 0.0:
        return 0.0
    return present * (stay_ms(load, limit, scv, quantile) + burst)


@kernel
def slice_lateness(window_ms, demand, limit):  # type: ignore[no-untyped-def]
    """How late a slice's last result is on a host that gets whole windows of a sub-join: its drain time."""
    return drain_ms(window_ms, demand, limit)


@kernel
def slice_burst(window_ms, demand, limit, amount):  # type: ignore[no-untyped-def]
    """Mean wait that slices of `amount` tuples/s cause at their host: it is busy with them amount/limit of the time,
    and then half of the drain time is before a tuple."""
    return min(amount / limit, 1.0) * 0.5 * drain_ms(window_ms, demand, limit)


@kernel
def first_few(values, count, most, value, host, hosts):  # type: ignore[no-untyped-def]
    """Keep the `most` least values in order, with their hosts; returns how many there are now."""
    if count == most and value >= values[count - 1]:
        return count
    count = min(count + 1, most)
    at = count - 1
    while at > 0 and values[at - 1] > value:
        values[at], hosts[at] = values[at - 1], hosts[at - 1]
        at -= 1
    values[at], hosts[at] = value, host
    return count
