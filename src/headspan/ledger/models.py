"""What the lenses measure on a model that claims are about. Only this module of the ledger calls a lens.

A lens is run once per checkpoint; the functions below take single numbers from its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from headspan.dims import COMPOSING

if TYPE_CHECKING:
    import xarray as xr

    from headspan.checkpoint import Checkpoint
    from headspan.heads.classes import HeadClasses
    from headspan.result import Result

PAPER = "2601.10266"
"""The published classes of GPT-2's heads."""
KEPT = 4
_results: list[tuple[str, Checkpoint, Any]] = []
"""The last few results: lens, checkpoint (which has no hash, so identity is compared), what was measured."""


def _once(lens: str, checkpoint: Checkpoint, compute: Callable[[], Any]) -> Any:
    for name, about, result in _results:
        if name == lens and about is checkpoint:
            return result
    _results.append((lens, checkpoint, compute()))
    del _results[:-KEPT]
    return _results[-1][2]


def affinity_of(checkpoint: Checkpoint) -> Result:
    """Affinity of all sixteen pairings, weights as stored."""
    from headspan.lenses.affinity import affinity

    result: Result = _once("affinity", checkpoint, lambda: affinity(checkpoint, pairings="all", draws=2))
    return result


def _pairing_nodes(result: Result) -> dict[str, xr.Dataset]:
    return {str(pairing): result.dataset(str(pairing)) for pairing in result.data.children}


def _classes(checkpoint: Checkpoint) -> HeadClasses:
    from headspan.heads.classes import head_classes

    return head_classes(PAPER, checkpoint.heads())


def kernel_statistics(checkpoint: Checkpoint) -> dict[str, dict[str, float]]:
    """Of the projection kernel, by statistic and pairing: mean, its value under the null, divergence from the null."""
    nodes = _pairing_nodes(affinity_of(checkpoint))
    parts = {"mean": "mean", "null": "mean_null", "divergence": "kl"}
    names = {name: f"projection_kernel_{part}" for name, part in parts.items()}
    return {name: {p: float(node[own]) for p, node in nodes.items()} for name, own in names.items()}


def strongest_pairs(checkpoint: Checkpoint, pairing: str, count: int) -> list[tuple[str, str]]:
    """The pairs of heads with the largest projection kernel."""
    table = affinity_of(checkpoint).top(count, pairing=pairing)
    return list(zip(table["src"], table["dst"], strict=True))


def heads_in_graphs(checkpoint: Checkpoint) -> dict[str, tuple[int, int]]:
    """By metric: heads in the graphs of the 20 strongest pairs of OQ, OK and OV, and those of them in a known class."""
    from headspan.lenses.affinity.class_detection import class_counts

    counts = class_counts(affinity_of(checkpoint), _classes(checkpoint)).set_index("metric")
    return {metric: (int(row["nodes"]), int(row["in_class"])) for metric, row in counts.iterrows()}


def class_precision(checkpoint: Checkpoint) -> tuple[dict[tuple[str, str], float], float]:
    """Average precision by class of heads ("any class", "Induction", "Previous") and metric; base rate of any class."""
    from headspan.lenses.affinity.class_detection import head_detection

    rows = head_detection(affinity_of(checkpoint), _classes(checkpoint), draws=2)
    rows = [row for row in rows if row.score == "largest"]
    found = {
        (target, row.metric): row.average_precision
        for target in ("any class", "Induction", "Previous")
        for row in rows
        if row.target.startswith(target)
    }
    return found, next(row.base_rate for row in rows if row.target == "any class")


def hub_ranks(checkpoint: Checkpoint, head: str) -> list[int]:
    """The rank of a head among hubs, from 1, by every definition of a hub."""
    from headspan.lenses.affinity.wiring import DEFINITIONS, hub_scores, ranked_hubs

    orders = [ranked_hubs(hub_scores(affinity_of(checkpoint), definition))["head"] for definition in DEFINITIONS]
    return [list(order).index(head) + 1 for order in orders]


def agreement_after_folding(checkpoint: Checkpoint) -> dict[str, dict[str, tuple[float, int]]]:
    """By score and pairing: rank correlation with and without LayerNorm folded, and kept ones of the strongest 20."""
    from headspan.lenses.affinity import affinity
    from headspan.lenses.affinity.robustness import agreement

    plain, folded = (
        _pairing_nodes(result)
        for result in (
            affinity_of(checkpoint),
            affinity(checkpoint, pairings=COMPOSING, draws=2, fold="layernorm"),
        )
    )
    return {
        score: {key: agreement(plain[key][score].values, folded[key][score].values, 20) for key in COMPOSING}
        for score in ("projection_kernel", "composition_score")
    }


def ranks_and_kernels(checkpoint: Checkpoint) -> tuple[np.ndarray, np.ndarray]:
    """The numerical ranks of all heads' matrices, and all projection kernels."""
    nodes = _pairing_nodes(affinity_of(checkpoint)).values()
    ranks = np.concatenate([node[name].values.ravel() for node in nodes for name in ("src_rank", "dst_rank")])
    return ranks, np.concatenate([node["projection_kernel"].values.ravel() for node in nodes])


def positions_of(checkpoint: Checkpoint) -> Result:
    """Positions and tokens, weights as stored, tables as stored."""
    from headspan.lenses.positions import positions

    result: Result = _once("positions", checkpoint, lambda: positions(checkpoint))
    return result


def position_values(
    checkpoint: Checkpoint, name: str, *, null: bool = False, centered: bool = False, **place: Any
) -> np.ndarray:
    """One variable about positions and tokens, or its value under the null, at a place given by labels."""
    variable = positions_of(checkpoint).grid()[f"{name}_null" if null else name]
    usual = {"centering": "centered" if centered else "stored", "k_choice": "given"}
    values: np.ndarray = variable.sel({key: usual[key] for key in usual if key in variable.dims} | place).values
    return values


def over_null(checkpoint: Checkpoint, name: str, **place: Any) -> np.ndarray:
    """A variable about positions and tokens, over its value under the null."""
    value, null = (position_values(checkpoint, name, null=null, **place) for null in (False, True))
    ratio: np.ndarray = value / null
    return ratio
