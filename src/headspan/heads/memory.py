"""Memory budgets: how they are written, what is left beside the program, how many layers fit; a cache within one."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import sys
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeVar, cast

from torch import Tensor

from headspan.errors import MemoryBudgetError

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
LEAST = 32 * 2**20
"""Bytes of working memory below which nothing is begun."""
LARGE = 2**20
"""Bytes from which on an array has pages of its own under a budget."""
MMAP_THRESHOLD = -3
"""The C library's number for that setting."""
CACHE_LIMIT = "2GB"
"""What the matrices that one model's heads keep may take together, unless told otherwise."""
Tensors = tuple[Tensor | None, ...]
T = TypeVar("T", bound=Tensors)


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


def working_memory(memory: int | str) -> int:
    """What a budget for the whole process leaves for weights and results, beside what is resident already."""
    return_large_arrays()
    budget, resident = memory_bytes(memory), resident_bytes()
    left = budget - resident
    if left < LEAST:
        raise MemoryBudgetError(
            f"the program itself takes {resident:,} bytes and the memory budget is {budget:,}; allow at least "
            f"{resident + LEAST:,}"
        )
    return left


def resident_bytes() -> int:
    """Memory that this process holds now; where the system does not tell, the most it ever held."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def machine_memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def return_large_arrays() -> None:
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


class TensorCache:
    """Tensors that were read before, by name; those that were not used for longest go first.

    Attributes
    ----------
    limit : int
        Bytes that all of them may take together; 0 keeps nothing. It may be changed at any time.
    n_bytes : int
        Bytes that they take now, never more than the limit.
    """

    def __init__(self, limit: int | str = CACHE_LIMIT) -> None:
        self.limit = memory_bytes(limit) if limit else 0
        self._entries: dict[Hashable, Tensors] = {}

    def __reduce__(self) -> tuple[type[TensorCache], tuple[int]]:
        """Another process gets the limit; it reads for itself what it needs."""
        return TensorCache, (self.limit,)

    @property
    def n_bytes(self) -> int:
        return sum(_n_bytes(tensors) for tensors in self._entries.values())

    def tensors(self, name: Hashable, read: Callable[[], T]) -> T:
        """What is kept under `name`; what `read` returns where nothing is, kept from then on if the limit allows."""
        tensors = self._entries.pop(name, None)
        if tensors is None:
            found = read()
            if _n_bytes(found) > self.limit:
                return found
            self._make_room(_n_bytes(found))
            tensors = tuple(map(_compact, found))
        self._entries[name] = tensors
        self._make_room(0)
        return cast("T", tensors)

    def clear(self) -> None:
        """Let go of everything."""
        self._entries.clear()

    def _make_room(self, needed: int) -> None:
        while self._entries and self.n_bytes + needed > self.limit:
            del self._entries[next(iter(self._entries))]


def _n_bytes(tensors: Tensors) -> int:
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def _compact(tensor: Tensor | None) -> Tensor | None:
    """A view into something larger (a fused matrix, a mapped file) as a copy, which does not hold on to the rest."""
    whole = tensor is None or tensor.untyped_storage().nbytes() == tensor.nbytes
    return tensor if tensor is None or whole else tensor.clone()
