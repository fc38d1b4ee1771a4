"""One place that says how numeric kernels are compiled: cached on disk, so that set-up pays once."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numba

Kernel: TypeAlias = Callable[..., Any]
"""Compiled functions are typed by numba, not by annotations."""


def _cache_folder() -> Path:
    """A folder named after the text of all kernel modules. Numba checks only the file of the kernel itself, so a
    kernel that calls one of another module would otherwise keep running the old callee."""
    package = Path(__file__).parent
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        text = path.read_bytes()
        if b"nova.jit" in text:
            digest.update(text)
    caches = package / "__pycache__"
    if not os.access(package, os.W_OK):
        caches = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "nova"
    folder = caches / f"kernels-{digest.hexdigest()[:16]}"
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for old in sorted(caches.glob("kernels-*"), key=lambda p: p.stat().st_mtime)[:-8]:
            shutil.rmtree(old, ignore_errors=True)
    return folder


numba.config.CACHE_DIR = str(_cache_folder())  # type: ignore[attr-defined]


def kernel(function: Kernel) -> Kernel:
    """Compile `function` to machine code, cached beside the source."""
    compiled: Kernel = numba.njit(cache=True, nogil=True)(function)
    return compiled


def inline(function: Kernel) -> Kernel:
    """Compile a small helper that kernels call in their inner loops."""
    compiled: Kernel = numba.njit(cache=True, nogil=True, inline="always")(function)
    return compiled


def parallel(function: Kernel) -> Kernel:
    """Compile `function` with its `prange` loops spread over the cores. Results must not depend on their order."""
    compiled: Kernel = numba.njit(cache=True, nogil=True, parallel=True, error_model="numpy")(function)
    return compiled


def vector(function: Kernel) -> Kernel:
    """Compile loops over float arrays to vector instructions. Assumes that no value is NaN or infinite."""
    compiled: Kernel = numba.njit(cache=True, nogil=True, fastmath=True, error_model="numpy")(function)
    return compiled


prange = numba.prange
