"""Memory budgets: how they are written, what of one is left beside the program itself, and how many layers fit."""

from __future__ import annotations

import ctypes
import re
import resource
import sys
from pathlib import Path

from headspan.errors import MemoryBudgetError

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def memory_bytes(memory: int | str) -> int:
    """A budget in bytes from a number or from text such as `"4GB"`, `"512 MiB"`."""
    if isinstance(memory, int) and not isinstance(memory, bool):
        amount = float(memory)
    else:
        match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([kmgt]?i?)b?", str(memory).strip().lower())
        if match is None or match[2] not in UNITS:
            raise MemoryBudgetError(f"{memory!r} is not an amount of memory; write it like 4GB or 512MiB")
        amount = float(match[1]) * UNITS[match[2]]
    if amount < 1:
        raise MemoryBudgetError(f"a memory budget of {memory!r} holds nothing; write it like 4GB or 512MiB")
    return int(amount)


LEAST = 32 * 2**20
"""Bytes of working memory below which nothing is begun."""
LARGE = 2**20
"""Bytes from which on an array has pages of its own under a budget."""
MMAP_THRESHOLD = -3
"""The C library's number for that setting."""


def working_memory(memory: int | str) -> int:
    """What a budget for the whole process leaves for weights and results, beside what is resident already."""
    _return_large_arrays()
    budget, resident = memory_bytes(memory), _resident_bytes()
    left = budget - resident
    if left < LEAST:
        raise MemoryBudgetError(
            f"the program itself takes {resident:,} bytes and the memory budget is {budget:,}; allow at least "
            f"{resident + LEAST:,}"
        )
    return left


def _resident_bytes() -> int:
    """Memory that this process holds now; where the system does not tell, the most it ever held."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _return_large_arrays() -> None:
    """From now on, give large arrays back to the system when they are freed, where the C library can be told (glibc).

    By itself it keeps up to 32 MB of each for later arrays, in places that these often do not fit into: a process that
    works in blocks would grow by more than a block.
    """
    tell = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if tell is not None:
        tell(MMAP_THRESHOLD, LARGE)


def layers_that_fit(memory: int | str, bytes_per_layer: int, overhead: int) -> int:
    """How many layers of a block fit into a budget beside an `overhead` that is paid once."""
    budget = memory_bytes(memory)
    fit = (budget - overhead) // max(bytes_per_layer, 1)
    if fit < 1:
        needed = overhead + bytes_per_layer
        raise MemoryBudgetError(
            f"one layer needs {needed:,} bytes and the memory budget is {budget:,}; raise it, ask for fewer roles, "
            "or use a smaller dtype"
        )
    return fit
