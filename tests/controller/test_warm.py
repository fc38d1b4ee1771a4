"""After warming, no event waits for a compiler."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
from nova.controller import improve, ledger, place, warm
from numba.core.registry import CPUDispatcher

warm.warm()
cold = [
    f"{module.__name__}.{name}"
    for module in (place, improve, ledger)
    for name, kernel in vars(module).items()
    if isinstance(kernel, CPUDispatcher) and not kernel.signatures
    and kernel.py_func.__code__.co_varnames[0] == "h"  # takes the handle: Python calls it
    and name != "unpack"
]
print(*cold)
"""


def test_every_kernel_is_compiled():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
