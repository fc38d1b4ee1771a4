"""Draws without state: random numbers as a function of where they are used, the same on every thread and machine."""

from __future__ import annotations

import numpy as np

from nova.jit import inline


@inline
def mix(a: int | np.int64, b: int | np.int64) -> np.uint64:
    """A well-mixed 64-bit number from two integers (splitmix64's finish)."""
    z = np.uint64(a) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(b) * np.uint64(0xD1B54A32D192ED03)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inline
def below(count: int | np.int64, a: int | np.int64, b: int | np.int64) -> np.int64:
    """A draw from 0 … count − 1; `a` and `b` say which draw it is."""
    return np.int64(mix(a, b) % np.uint64(count))


@inline
def share(a: int | np.int64, b: int | np.int64) -> float:
    """A draw from [0, 1)."""
    return np.float64(mix(a, b) >> np.uint64(11)) / 9007199254740992.0


@inline
def stride(count: int | np.int64, salt: int | np.int64) -> np.int64:
    """A drawn step that is coprime to `count`: walking by it, modulo `count`, visits everything once, in a fresh
    order and for no memory."""
    step: np.int64 = 1 + below(count, salt, 1)
    while True:
        a, b = np.int64(step), np.int64(count)
        while b:
            a, b = b, a % b
        if a == 1:
            return step
        step = step % count + 1
