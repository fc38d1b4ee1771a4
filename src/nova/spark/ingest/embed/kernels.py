"""What a task does with its cell of pairs, in compiled code."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nova.jit import kernel
from nova.model.problem import Floats, Ints

Ways = npt.NDArray[np.float32]


@kernel
def relax(ways: Ways, first: Ints, second: Ints, rtt: Floats, sweeps: int) -> int:
    """Shorten the ways to every landmark over the pairs, `sweeps` times at most. `ways` is nodes × landmarks, in ms,
    and changes in place. Returns how many ways became shorter."""
    total = 0
    for _ in range(sweeps):
        shorter = 0
        for pair in range(len(rtt)):
            i, j, step = first[pair], second[pair], rtt[pair]
            for mark in range(ways.shape[1]):
                a, b = ways[i, mark], ways[j, mark]
                if a + step < b * 0.999999:  # single precision: below this it is the same way, summed otherwise
                    ways[j, mark] = a + step
                    shorter += 1
                elif b + step < a * 0.999999:
                    ways[i, mark] = b + step
                    shorter += 1
        total += shorter
        if shorter == 0:
            break
    return total
