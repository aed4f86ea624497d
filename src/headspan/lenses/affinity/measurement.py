r"""Which heads can talk to which: projection kernel and composition score of every pair, with chance beside them.

1. One pass over the weights leaves an orthonormal basis per head and role, and the circuits' factors (`circuits`).
2. The projection kernel of a pairing XY is ||U_X^T U_Y||_F^2 between what a source does through X and what a
   destination does through Y; the composition score of OQ, OK, OV is ||M N||_F / (||M||_F ||N||_F).
3. Pairs whose source layer comes before the destination's compose. Pairs in the impossible order are kept aside: they
   are the anti-causal null.
4. Every score gets p- and q-values under two nulls. `haar`: subspaces in general position (analytic; for the
   composition score a random rotation that keeps both spectra). `anticausal`: the same model, the impossible order.
   Trained weights are anisotropic, so most pairs beat `haar`; few beat `anticausal`. Neither alone makes a graph.

The result is an `xr.DataTree`, one node per pairing, each with the variables listed at `pairing_dataset`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from headspan.dims import COMPOSING, KV_ROLES, PAIR_DIMS, ROLES, Role, parse_pairings
from headspan.errors import DegenerateSubspace, ShapeError
from headspan.heads import Heads
from headspan.heads.memory import memory_bytes
from headspan.heads.precision import FLOAT64_WIDTH, computing_dtype
from headspan.lenses.affinity import sketch
from headspan.lenses.affinity.circuits import measured_circuits
from headspan.lenses.affinity.costs import Plan, affinity_plan, result_attributes, working_budget
from headspan.lenses.affinity.pair_tables import KernelTables, OverlapTables, kernel_tables, overlap_tables, roles_of
from headspan.lenses.affinity.rounding import kernel_error
from headspan.lenses.affinity.scores import Score, composition_scores, kernel_scores, pair_shape
from headspan.lenses.affinity.spilling import spilled_kernel_tables, spilled_overlap_tables
from headspan.statistics import (
    bootstrap_mean_interval,
    direction_test,
    kl_from_normal,
    layer_distance,
    q_values,
    reverse_order_p_values,
)
from headspan.statistics.permutation import Array, Layers
from headspan.subspaces.overlap import Algorithm

METRICS = ("pk", "cs")
NULLS = ("haar", "anticausal")
VARIABLES = {"pk": ("projection_kernel", "anticausal_kernel"), "cs": ("composition_score", "anticausal_score")}
__all__ = ["FLOAT64_WIDTH", "METRICS", "NULLS", "VARIABLES", "compute", "pairing_dataset"]


def compute(
    heads: Heads,
    *,
    pairings: str | Sequence[str] | None = None,
    metrics: Sequence[str] = METRICS,
    delta: int = 0,
    precision: str | None = None,
    tolerance: float | None = None,
    seed: int = 0,
    draws: int = 1000,
    memory: int | str = "4GB",
    algorithm: str = "auto",
) -> xr.DataTree:
    """Affinity of every pair of heads.

    Parameters
    ----------
    heads
        The heads, in any fold state.
    pairings
        Which of the 16 ordered pairs of roles: `"OQ,OK,OV"` by default, `"all"` for all. In cross-attention only pairs
        that live in one stream exist: OQ by default.
    metrics
        `pk`, `cs` or both; the composition score exists for OQ, OK and OV.
    delta
        For rotary models, the offset from key to query at which W_Q W_K^T is taken; the kernel does not depend on it.
    precision
        `float32` or `float64`; by default float64 up to d_model 2048. The attribute `float32_error` says what single
        precision cost, on a sample.
    tolerance
        Rank tolerance of the bases, a share of the largest singular value.
    seed, draws
        Of the bootstrap over heads and of the permutations.
    memory
        Budget for weights, bases and scratch space together; what does not fit goes to a scratch file.
    algorithm
        "gram", "projector", "sketch", or "auto": the cheaper of the first two, and the sketch, which gives the
        strongest pairs alone, where both would take hours (`costs`, `sketch`).

    Returns
    -------
    DataTree with one node per pairing; see `pairing_dataset`.
    """
    wanted, chosen = _checked_pairings(heads, pairings), _checked_metrics(metrics)
    if heads.n_layers < 2:
        raise DegenerateSubspace("nothing composes: there is only one layer, and a head talks to heads of later layers")
    heads = heads.to(precision or computing_dtype(heads))
    composing = [pairing for pairing in wanted if pairing in COMPOSING] if "cs" in chosen else []
    budget = working_budget(heads, wanted, memory_bytes(memory))
    plan = affinity_plan(heads, wanted, len(chosen), budget, algorithm)
    if plan.chosen.algorithm == "sketch":
        return sketch.compute(heads, pairings=wanted, tolerance=tolerance, seed=seed, memory=budget)
    kernels, overlaps = _tables(heads, plan, wanted if "pk" in chosen else (), composing, delta, tolerance, budget)
    by_metric = {
        "pk": {} if kernels is None else kernel_scores(heads, kernels),
        "cs": composition_scores(heads, overlaps),
    }
    nodes = {}
    for pairing in wanted:
        scores = {metric: found[pairing] for metric, found in by_metric.items() if pairing in found}
        nodes[pairing] = pairing_dataset(heads, kernels, pairing, scores, seed, draws)
    attributes = {
        **result_attributes(heads, plan.chosen, tolerance, seed),
        "delta": delta,
        **({} if kernels is None else kernel_error(heads, kernels, tolerance)),
    }
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attributes), **nodes})


def _tables(
    heads: Heads,
    plan: Plan,
    wanted: Sequence[str],
    composing: Sequence[str],
    delta: int,
    tolerance: float | None,
    memory: int,
) -> tuple[KernelTables | None, OverlapTables | None]:
    """Kernels of the pairings `wanted`, overlaps of those `composing`: in memory, or through a scratch file."""
    algorithm = plan.chosen.algorithm
    if plan.spills:
        kernels = (
            spilled_kernel_tables(heads, wanted, tolerance=tolerance, memory=memory, algorithm=algorithm)
            if wanted
            else None
        )
        return kernels, spilled_overlap_tables(heads, composing, delta=delta, memory=memory, algorithm=algorithm)
    roles: tuple[Role, ...] = tuple(role for role in ROLES if any(role in pairing for pairing in wanted))
    circuits = measured_circuits(
        heads, roles, composition=bool(composing), delta=delta, tolerance=tolerance, memory=max(1, memory // 8)
    )
    way: Algorithm = "gram" if algorithm == "gram" else "projector"
    found = kernel_tables(circuits, wanted, memory // 4, way) if wanted else None
    return found, overlap_tables(circuits, composing, memory // 4, way)


def _checked_pairings(heads: Heads, pairings: str | Sequence[str] | None) -> tuple[str, ...]:
    """The pairings asked for; in cross-attention those alone whose two roles live in one stream."""
    wanted = COMPOSING if pairings is None else parse_pairings(pairings)
    if not heads.stack.reads_memory:
        return wanted
    shared = tuple(pairing for pairing in wanted if (pairing[0] in KV_ROLES) == (pairing[1] in KV_ROLES))
    if pairings not in (None, "all") and shared != wanted:
        raise ShapeError(
            "in cross-attention Q and O live in the decoder's stream, K and V in the encoder's output; "
            f"{next(p for p in wanted if p not in shared)} would compare the two: ask for pairs such as OQ"
        )
    return shared


def pairing_dataset(
    heads: Heads,
    kernels: KernelTables | None,
    pairing: str,
    scores: Mapping[str, Score],
    seed: int = 0,
    draws: int = 1000,
) -> xr.Dataset:
    """One pairing's scores, nulls and summaries.

    Pairs are [src_layer, src_head, dst_layer, dst_head], NaN where they do not compose:
    `projection_kernel` in [0, p], pq/d by chance; `normalized_kernel` in [0, 1]; `composition_score` in [0, 1],
    sqrt(1/d) by chance; `p_value` and `q_value`, uniform by chance, with two more axes, `metric` and `null`;
    `anticausal_kernel` and `anticausal_score`, defined for the impossible order instead; `src_rank` and `dst_rank`.
    Summaries over composing pairs, per `metric`: `n_pairs`, `mean`, `mean_low`, `mean_high` (95 %, heads resampled),
    `std`, `chance_mean`, `chance_std`, `kl`, `direction`, `direction_p_value`, `direction_ks`.
    """
    layers, shape = np.asarray(heads.layers), pair_shape(heads, pairing)
    distance = np.broadcast_to(layer_distance(layers, layers), shape)
    variables: dict[str, Any] = {}
    for metric, score in scores.items():
        forward, backward = VARIABLES[metric]
        variables[forward] = (PAIR_DIMS, np.where(distance > 0, score.values, np.nan))
        variables[backward] = (PAIR_DIMS, np.where(distance < 0, score.values, np.nan))
    if kernels is not None:
        variables |= _rank_variables(kernels, pairing, variables["projection_kernel"][1], shape)
    variables |= _significance(scores, distance, layers, pairing)
    variables |= _summaries(scores, distance, layers, pairing, min(heads.d_head, heads.d_value), seed, draws)
    grouped = heads.n_kv_heads < heads.n_heads
    kv = {side: int(grouped and role in KV_ROLES) for side, role in zip(("src", "dst"), pairing, strict=True)}
    return xr.Dataset(
        variables,
        coords={"src_layer": layers, "dst_layer": layers, "metric": list(METRICS), "null": list(NULLS)},
        attrs={"pairing": pairing, "src_kv": kv["src"], "dst_kv": kv["dst"]},
    )


def _rank_variables(
    kernels: KernelTables, pairing: str, kernel: Array, shape: tuple[int, int, int, int]
) -> dict[str, Any]:
    src, dst = (kernels.ranks[role].cpu().numpy() for role in roles_of(pairing))
    scale = np.sqrt(src[:, None] * dst[None, :], dtype=np.float64).reshape(shape)
    return {
        "normalized_kernel": (PAIR_DIMS, np.divide(kernel, scale, out=np.full(shape, np.nan), where=scale > 0)),
        "src_rank": (PAIR_DIMS[:2], src.reshape(shape[:2])),
        "dst_rank": (PAIR_DIMS[2:], dst.reshape(shape[2:])),
    }


def _significance(scores: Mapping[str, Score], distance: Layers, layers: Layers, pairing: str) -> dict[str, Any]:
    """p- and q-values, [metric, null, pair]. A role paired with itself is symmetric and has no anti-causal null."""
    p_values = np.full((len(METRICS), len(NULLS), *distance.shape), np.nan)
    for i, metric in enumerate(METRICS):
        if metric in scores:
            p_values[i, 0] = np.where(distance > 0, scores[metric].haar_p, np.nan)
            if pairing[0] != pairing[1]:
                p_values[i, 1] = reverse_order_p_values(scores[metric].values, layers)
    adjusted = np.stack([[q_values(by_null) for by_null in by_metric] for by_metric in p_values])
    dims = ("metric", "null", *PAIR_DIMS)
    return {"p_value": (dims, p_values), "q_value": (dims, adjusted)}


def _summaries(
    scores: Mapping[str, Score], distance: Layers, layers: Layers, pairing: str, width: int, seed: int, draws: int
) -> dict[str, Any]:
    rows = [
        _summary(scores[metric], metric, distance, layers, pairing, width, seed, draws) if metric in scores else {}
        for metric in METRICS
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: ("metric", np.array([row.get(name, np.nan) for row in rows])) for name in names}


def _summary(
    score: Score, metric: str, distance: Layers, layers: Layers, pairing: str, width: int, seed: int, draws: int
) -> dict[str, float]:
    """Numbers over all composing pairs of one score; what it does not define is NaN."""
    composing: Array = np.where(distance > 0, score.values, np.nan)
    values = composing[~np.isnan(composing)]
    if values.size == 0:
        return {"n_pairs": 0.0}
    low, high = bootstrap_mean_interval(composing, draws, seed)
    test = None if pairing[0] == pairing[1] else direction_test(score.values, layers, seed=seed)
    kl = kl_from_normal(values, width, score.chance_mean, score.chance_std**2) if metric == "pk" else np.nan
    return {
        "n_pairs": float(values.size),
        "mean": float(values.mean()),
        "mean_low": low,
        "mean_high": high,
        "std": float(values.std()),
        "chance_mean": score.chance_mean,
        "chance_std": score.chance_std,
        "kl": kl,
        "direction": np.nan if test is None else test.difference,
        "direction_p_value": np.nan if test is None else test.p_value,
        "direction_ks": np.nan if test is None else test.ks_distance,
    }


def _checked_metrics(metrics: Sequence[str]) -> tuple[str, ...]:
    unknown = [metric for metric in metrics if metric not in METRICS]
    if unknown or not metrics:
        raise ShapeError(
            f"unknown metric {unknown[0]!r}; metrics are pk and cs" if unknown else "no metric was asked for"
        )
    return tuple(metric for metric in METRICS if metric in metrics)
