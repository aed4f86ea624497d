"""A memory budget for models that run: what comes next is held against it before it is begun.

A model that runs is in memory as a whole, and a run keeps what all its attentions did: neither can be cut into blocks,
as weights on disk can. So every step that takes much (a model, its twin, a run, what a lens keeps) says beforehand what
it takes, and is refused with that number where the budget, or without one the machine, has less left. What is left is
read from the system at that moment, whatever holds the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import torch

from headspan.errors import MemoryBudgetError
from headspan.heads.memory import machine_memory, memory_bytes, resident_bytes, return_large_arrays

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint
    from headspan.runtime.model import RunnableModel

DERIVED = 3
"""What lenses make of a run (double precision, maps, results) takes at most so many times what the run keeps."""
FEWER = "ask for fewer or shorter sequences"
CACHE_SHARE = 8
"""The part of a budget that matrices kept for later may take is one in so many."""
_budget: ContextVar[int | None] = ContextVar("memory_budget", default=None)


@contextmanager
def memory_budget(memory: int | str | None) -> Iterator[None]:
    """Within the block the process takes at most so much, or says what would take more; the machine's, if None."""
    if memory is None:
        yield
        return
    return_large_arrays()
    before = _budget.set(memory_bytes(memory))
    try:
        yield
    finally:
        _budget.reset(before)


def require_memory(n_bytes: int, what: str, instead: str = "") -> None:
    """Refuse `what`, which takes `n_bytes` beside all that is there; `instead` says how to need less."""
    budget, resident = _budget.get(), resident_bytes()
    most, needed = machine_memory() if budget is None else budget, resident + n_bytes
    if needed > most:
        limit, more = (
            ("this machine has", "use one that has more")
            if budget is None
            else ("the memory budget is", f"raise it to {needed:,} or more")
        )
        raise MemoryBudgetError(
            f"{what} needs about {n_bytes:,} bytes beside the {resident:,} that the program takes, and {limit} "
            f"{most:,}; {instead and f'{instead}, or '}{more}"
        )


def memory_left(otherwise: int | str) -> int:
    """Bytes of the budget that are left for one step of the work; `otherwise` where there is none."""
    budget = _budget.get()
    return memory_bytes(otherwise) if budget is None else max((budget - resident_bytes()) // 2, 1)


def cache_limit(limit: int) -> int:
    """What matrices that are kept may take: `limit`, or less under a budget."""
    budget = _budget.get()
    return limit if budget is None else min(limit, budget // CACHE_SHARE)


def require_model(checkpoint: Checkpoint, dtype: torch.dtype) -> None:
    """Refuse a checkpoint that does not fit as a whole: its files as they are read, a copy, and another precision."""
    infos = checkpoint.store.infos.values()
    stored = sum(info.n_bytes for info in infos)
    converted = sum(info.n_items for info in infos if getattr(torch, info.dtype, None) != dtype) * dtype.itemsize
    require_memory(2 * stored + converted, f"'{checkpoint.source}' as a running model")


def require_copies(model: RunnableModel, count: int, what: str) -> None:
    """Refuse what takes `count` more models of the same size."""
    own = sum(parameter.nbytes for parameter in model.module.parameters())
    require_memory(count * own, what)


def require_run(model: RunnableModel, batch: int, length: int, scores: bool) -> None:
    """Refuse a run over so many sequences of so many tokens, with what lenses derive from it."""
    what = f"a run of {batch} x {length} tokens"
    require_memory(DERIVED * run_bytes(model, batch, length, scores), what, FEWER)


def run_bytes(model: RunnableModel, batch: int, length: int, scores: bool) -> int:
    """What `forward` keeps of a run: patterns and scores, what attentions read and mixed, states, logits."""
    rows, item = model.stack.projections["O"].rows, model.module.dtype.itemsize
    patterns = model.n_heads * length * (2 if scores else 1)
    streams = 3 * model.stack.d_model + rows.n_heads * rows.d_head
    logits = 2 * model.n_tokens if "W_U" in model.stored.parts else 0
    return batch * length * item * (model.depth * (patterns + streams) + logits)
