"""XXH64 over columns, bit for bit what Spark SQL's `xxhash64` gives, so that routing can be checked in plain SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Hashes: TypeAlias = npt.NDArray[np.uint64]

SEED = 42
"""Spark's seed."""

_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5
_MASK = (1 << 64) - 1


def hash_longs(values: npt.NDArray[np.int64], seed: Hashes | int = SEED) -> Hashes:
    """Hash of each 64-bit value; `seed` may be the hash so far, which is how Spark chains columns."""
    h = (np.asarray(seed, dtype=np.uint64) + np.uint64((_P5 + 8) & _MASK)) ^ (
        _rotate(values.view(np.uint64) * np.uint64(_P2), 31) * np.uint64(_P1)
    )
    h = _rotate(h, 27) * np.uint64(_P1) + np.uint64(_P4)
    h = (h ^ (h >> np.uint64(33))) * np.uint64(_P2)
    h = (h ^ (h >> np.uint64(29))) * np.uint64(_P3)
    mixed: Hashes = h ^ (h >> np.uint64(32))
    return mixed


def hash_strings(values: Sequence[str], seed: int = SEED) -> Hashes:
    """Hash of each text's UTF-8 bytes. One by one: meant for ids and distinct values, not for every tuple."""
    return np.array([hash_bytes(value.encode(), seed) for value in values], dtype=np.uint64)


def hash_bytes(data: bytes, seed: int = SEED) -> int:
    """XXH64 of some bytes."""
    at, n = 0, len(data)
    if n >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed & _MASK, (seed - _P1) & _MASK]
        while at <= n - 32:
            for i in range(4):
                lanes[i] = _round(lanes[i], int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little"))
            at += 32
        h = sum(_rotate_int(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            h = ((h ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        h = (seed + _P5) & _MASK
    h = (h + n) & _MASK
    while at <= n - 8:
        h ^= _round(0, int.from_bytes(data[at : at + 8], "little"))
        h = (_rotate_int(h, 27) * _P1 + _P4) & _MASK
        at += 8
    if at <= n - 4:
        h ^= (int.from_bytes(data[at : at + 4], "little") * _P1) & _MASK
        h = (_rotate_int(h, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        h ^= (byte * _P5) & _MASK
        h = (_rotate_int(h, 11) * _P1) & _MASK
    h = ((h ^ (h >> 33)) * _P2) & _MASK
    h = ((h ^ (h >> 29)) * _P3) & _MASK
    return h ^ (h >> 32)


def _round(lane: int, word: int) -> int:
    return (_rotate_int((lane + word * _P2) & _MASK, 31) * _P1) & _MASK


def _rotate_int(x: int, by: int) -> int:
    return ((x << by) | (x >> (64 - by))) & _MASK


def _rotate(x: Hashes, by: int) -> Hashes:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))
