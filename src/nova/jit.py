"""One place that says how numeric kernels are compiled: cached on disk, so that set-up pays once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile `function` to machine code, cached beside the source."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))


def inline(function: F) -> F:
    """Compile a small helper that kernels call in their inner loops."""
    return cast(F, numba.njit(cache=True, nogil=True, inline="always")(function))


def parallel(function: F) -> F:
    """Compile `function` with its `prange` loops spread over the cores. Results must not depend on their order."""
    return cast(F, numba.njit(cache=True, nogil=True, parallel=True)(function))


prange = numba.prange
