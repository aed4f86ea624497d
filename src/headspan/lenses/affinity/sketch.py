"""The strongest pairs of a model too large for a table of all pairs: sketched, then verified.

1. One pass keeps a sketch of every head; it gives every composing pair's kernel up to a known error (`sketching`).
2. Every pair that could be among the top N at the stated confidence is a candidate (`certifying`).
3. The candidates' heads are read again and their kernels computed exactly (`verifying`). If candidates are too many,
   the sketch is made anew and wider, where that would help.

The result has the nodes of an affinity result, with an axis `pair` of verified pairs in place of the four axes of a
table, and means of the estimates for every head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import xarray as xr

from headspan.dims import COMPOSING, ROLES, Role, parse_pairings
from headspan.errors import DegenerateSubspace, ShapeError
from headspan.heads import Heads
from headspan.heads.memory import memory_bytes
from headspan.heads.precision import computing_dtype
from headspan.lenses.affinity.certifying import Question, candidates, helpful_width, leading_pairs
from headspan.lenses.affinity.costs import affinity_plan, result_attributes, sketch_width
from headspan.lenses.affinity.pair_tables import roles_of
from headspan.lenses.affinity.rounding import verified_error
from headspan.lenses.affinity.sketch_result import SketchedPairing, sketched_dataset
from headspan.lenses.affinity.sketching import Estimates, estimated_kernels
from headspan.lenses.affinity.verifying import Verifier, verifier

ROUNDS = 3
"""A sketch is replaced by a wider one twice at most."""


@dataclass(frozen=True)
class Settings:
    """What is asked of the sketch."""

    top: int
    confidence: float
    width: int
    limit: int
    """Pairs of a pairing that may be verified beyond the leading ones."""
    seed: int
    tolerance: float | None
    memory: int

    def failure(self, n_pairings: int) -> float:
        """The probability with which one pair of the top may be missed, in one round."""
        return (1 - self.confidence) / (self.top * n_pairings * ROUNDS)


def compute(
    heads: Heads,
    *,
    pairings: str | Sequence[str] | None = None,
    top: int = 20,
    confidence: float = 0.99,
    width: int | None = None,
    precision: str | None = None,
    tolerance: float | None = None,
    seed: int = 0,
    memory: int | str = "4GB",
) -> xr.DataTree:
    """The `top` strongest pairs of each pairing by the projection kernel, exactly, without a table of all pairs.

    Parameters
    ----------
    heads
        The heads, in any fold state.
    pairings
        Of OQ, OK, OV; all three by default.
    top, confidence
        How many pairs, and the probability that none of them is missed.
    width
        m, the numbers kept of each direction; four times d_head to begin with. It grows where that helps.
    precision, tolerance, memory
        As for `affinity.compute`.
    seed
        Of the sketch.

    Returns
    -------
    DataTree with one node per pairing, see `sketch_result.sketched_dataset`.
    """
    wanted = COMPOSING if pairings is None else parse_pairings(pairings)
    if any(pairing not in COMPOSING for pairing in wanted) or heads.stack.reads_memory:
        raise ShapeError("a sketch scores the pairings OQ, OK, OV of self-attention; ask for these")
    if heads.n_layers < 2:
        raise DegenerateSubspace("nothing composes: there is only one layer, and a head talks to heads of later layers")
    if top < 1 or not 0 < confidence < 1 or not (width is None or 2 <= width <= heads.d_model):
        raise ShapeError(f"a sketch needs top >= 1, 0 < confidence < 1 and 2 <= width <= {heads.d_model} (d_model)")
    heads = heads.to(precision or computing_dtype(heads))
    settings = Settings(
        top, confidence, width or sketch_width(heads), 10 * top + 200, seed, tolerance, memory_bytes(memory)
    )
    found, estimates, error = _verified(heads, wanted, settings)
    plan = affinity_plan(heads, wanted, 1, settings.memory, "sketch")
    attributes = {
        **result_attributes(heads, plan.chosen, tolerance, seed),
        "sketch_width": estimates.width,
        "confidence": confidence,
        "top": top,
        **error,
    }
    nodes = {name: sketched_dataset(heads, each) for name, each in found.items()}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attributes), **nodes})


def _verified(
    heads: Heads, pairings: Sequence[str], settings: Settings
) -> tuple[dict[str, SketchedPairing], Estimates, dict[str, float | int]]:
    """Sketch, candidates, exact kernels; wider sketches while candidates are too many and it helps."""
    roles: tuple[Role, ...] = tuple(role for role in ROLES if any(role in pairing for pairing in pairings))
    leading = max(4 * settings.top, settings.top + 50)
    width = settings.width
    with verifier(heads, roles, settings.tolerance, ROUNDS * (leading + settings.limit) * len(pairings)) as check:
        for turn in range(ROUNDS):
            estimates = _estimates(heads, pairings, settings, width)
            check.kernels({name: leading_pairs(table, leading) for name, table in estimates.tables.items()})
            asked = {name: _question(heads, name, estimates, check, settings) for name in pairings}
            chosen = {name: candidates(question) for name, question in asked.items()}
            short = [name for name in pairings if chosen[name].certified < asked[name].asked]
            wider = [each for name in short if (each := helpful_width(asked[name], heads.d_model)) is not None]
            if turn == ROUNDS - 1 or not wider:
                break
            width = max(wider)
        check.kernels({name: each.pairs for name, each in chosen.items()})
        kernels: dict[str, dict[tuple[int, int], float]] = {name: check.of(name) for name in pairings}
    found = {name: SketchedPairing(name, estimates, kernels[name], chosen[name]) for name in pairings}
    return found, estimates, verified_error(heads, kernels, settings.tolerance)


def _estimates(heads: Heads, pairings: Sequence[str], settings: Settings, width: int) -> Estimates:
    return estimated_kernels(
        heads,
        pairings,
        width=width,
        seed=settings.seed,
        tolerance=settings.tolerance,
        memory=settings.memory,
    )


def _question(heads: Heads, pairing: str, estimates: Estimates, check: Verifier, settings: Settings) -> Question:
    src, dst = (min(heads.shape(role)[2:]) for role in roles_of(pairing))
    return Question(
        table=estimates.tables[pairing],
        exact=check.of(pairing),
        top=settings.top,
        limit=settings.limit,
        dimensions=(src, dst),
        width=estimates.width,
        failure=settings.failure(len(estimates.tables)),
    )
