"""Into which blocks a lens's work on one checkpoint is divided.

A block is a part of a lens's result that does not depend on the rest: a pairing of `affinity`, a kind of matrix of
`spectra`. Small checkpoints are one block, since each block opens the checkpoint again. The division follows from the
checkpoint's shape alone, so that it is the same for every step, every number of workers and every call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from headspan.dims import COMPOSING, KV_ROLES, ROLES
from headspan.heads import Heads

WHOLE = "all"
SPLIT_ABOVE = 50_000_000
"""Attention weights from which on a lens takes long enough to be divided."""

Options = dict[str, str]


def _pairings(heads: Heads) -> dict[str, Options]:
    """One block per pairing that lives in one stream."""
    one_stream = [p for p in COMPOSING if (p[0] in KV_ROLES) == (p[1] in KV_ROLES)]
    wanted = one_stream if heads.stack.reads_memory else COMPOSING
    return {pairing: {"pairings": pairing} for pairing in wanted}


def _matrices(heads: Heads) -> dict[str, Options]:
    """One block per kind of matrix."""
    from headspan.lenses.spectra.kinds import chosen_kinds

    return {kind: {"matrices": kind} for kind in chosen_kinds(heads, None)}


DIVISIONS: Mapping[str, Callable[[Heads], dict[str, Options]]] = {"affinity": _pairings, "spectra": _matrices}


def blocks(lens: str, heads: Heads, above: int = SPLIT_ABOVE) -> dict[str, Options]:
    """The blocks of a lens's work by name, each with the options that ask for it."""
    n_weights = sum(prod(heads.shape(role)) for role in ROLES)
    if lens not in DIVISIONS or n_weights <= above:
        return {WHOLE: {}}
    return DIVISIONS[lens](heads)
