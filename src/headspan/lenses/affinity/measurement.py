"""Which heads can talk to which: scores of every pair of heads, each beside what is expected under its nulls.

1. One pass over the weights leaves an orthonormal basis per head and role, and the circuits' factors (`circuits`).
2. The projection kernel of a pairing XY is ||U_X^T U_Y||_F^2 between what a source does through X and what a
   destination does through Y; the composition score of OQ, OK, OV is ||M N||_F / (||M||_F ||N||_F) (`pair_tables`).
3. Pairs whose source layer comes before the destination's compose. Pairs in reverse order are kept aside: they are the
   reverse null. Trained weights are anisotropic, so most pairs beat `haar`; few beat `reverse`. The two-way null, what
   a pair's heads and layers share in general, makes the graph (`scores`).
4. What follows from the scores: hubs, classes of heads, and how far scores depend on the way weights are written down.

Where a table of all pairs would take hours, a sketch finds the strongest pairs alone (`costs`, `sketch`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import xarray as xr

from headspan.dims import COMPOSING, KV_ROLES, parse_pairings
from headspan.errors import ArgumentError, DegenerateSubspace
from headspan.heads import Heads
from headspan.heads.classes import HeadClasses, head_classes
from headspan.heads.memory import memory_bytes
from headspan.heads.precision import computing_dtype
from headspan.lenses.affinity import LENS, sketch_obstacle
from headspan.lenses.affinity.circuits import Circuits, head_circuits
from headspan.lenses.affinity.class_detection import class_nodes
from headspan.lenses.affinity.costs import Plan, affinity_plan, check_affordable, working_budget
from headspan.lenses.affinity.pair_tables import (
    KernelTables,
    OverlapTables,
    kept_kernel_tables,
    kernel_error,
    kernel_tables,
    overlap_tables,
    pass_order,
    roles_in,
    scratch_kernel_tables,
    scratch_overlap_tables,
)
from headspan.lenses.affinity.robustness import basis_sensitivity, fold_robustness
from headspan.lenses.affinity.schema import COMPOSITION, HAAR, KERNEL, METRICS, NULLS, REVERSE, TWO_WAY, chosen_metrics
from headspan.lenses.affinity.scores import pairing_dataset
from headspan.lenses.affinity.sketch import Settings, sketch_nodes
from headspan.lenses.affinity.wiring import has_hubs, hub_scores
from headspan.lenses.run import labeled_result
from headspan.statistics.two_way_fit import obstacle
from headspan.subspaces.overlap import Algorithm

SHARED = (
    "passes run through shared layers: a pair of heads has one score in all passes, and pairs in reverse order have "
    "the same scores, so that haar alone is a null"
)


def measure(
    heads: Heads,
    *,
    pairings: str | Sequence[str] | None = None,
    metrics: str | Sequence[str] = METRICS,
    null: str = TWO_WAY,
    algorithm: str = "auto",
    top: int = 20,
    confidence: float = 0.99,
    width: int | None = None,
    labels: str | None = None,
    robustness: bool = False,
    sensitivity: bool = False,
    delta: int = 0,
    dtype: Any = None,
    tolerance: float | None = None,
    seed: int = 0,
    draws: int = 1000,
    memory: int | str = "4GB",
) -> xr.DataTree:
    """`headspan.affinity` on heads: a node per pairing, hubs at the root, a node for each further question."""
    wanted, chosen = checked_pairings(heads, pairings), chosen_metrics(metrics)
    passes = heads.unrolled()
    if passes.n_layers < 2:
        raise DegenerateSubspace("nothing composes: there is only one layer, and a head talks to heads of later layers")
    if width is not None and width > heads.d_model:
        raise ArgumentError(f"width={width} is more than d_model; a sketch needs 2 <= width <= {heads.d_model}")
    computed = heads.to(dtype or computing_dtype(heads))
    budget = working_budget(computed, wanted, memory_bytes(memory))
    plan = affinity_plan(computed, wanted, len(chosen), budget, algorithm)
    sketched = plan.chosen.algorithm == "sketch"
    obstacle = sketch_obstacle(wanted, chosen, null, labels, robustness or sensitivity, delta) if sketched else None
    if obstacle is not None:
        raise ArgumentError(f"{plan.reason}, so the pairs would be sketched, but {obstacle}; ask for algorithm='exact'")
    check_affordable(plan, memory_bytes(memory), computed.dtype)
    classes = _classes(labels, passes)
    if sketched:
        nodes, more = sketch_nodes(
            computed.unrolled(), wanted, Settings(top, confidence, width, seed, tolerance, budget)
        )
    else:
        nodes, more = _complete_nodes(computed, plan, wanted, chosen, null, (delta, tolerance, seed, draws, budget))
    attributes = {**_attributes(computed, plan, tolerance, seed), "delta": delta, "top": top, **more}
    attributes |= _null_attributes(heads, null, sketched)
    if heads.stack.passes:
        attributes |= {"n_layers": passes.n_layers, "shared_weights": SHARED, "n_shared_layers": heads.n_layers}
    if classes is not None:
        attributes |= {"head_classes": json.dumps(classes.of_head), "labels": classes.source}
    nodes |= dict(_further_nodes(heads, nodes, classes, top, delta, robustness, sensitivity))
    root = nodes.pop("", xr.Dataset()).assign_attrs(attributes)
    return xr.DataTree.from_dict({"/": root, **nodes})


def checked_pairings(heads: Heads, pairings: str | Sequence[str] | None) -> tuple[str, ...]:
    """The pairings asked for; in cross-attention those alone whose two roles live in one stream."""
    wanted = COMPOSING if pairings is None else parse_pairings(pairings)
    if not heads.stack.reads_memory:
        return wanted
    shared = tuple(pairing for pairing in wanted if (pairing[0] in KV_ROLES) == (pairing[1] in KV_ROLES))
    if pairings not in (None, "all") and shared != wanted:
        raise ArgumentError(
            "in cross-attention Q and O live in the decoder's stream, K and V in the encoder's output; "
            f"{next(p for p in wanted if p not in shared)} would compare the two: ask for pairs such as OQ"
        )
    return shared


def two_way_obstacle(heads: Heads) -> str | None:
    """Why the two-way null does not apply to a model; one answer for all of its pairings."""
    return obstacle(heads.n_layers, heads.n_heads, heads.n_kv_heads)


def ordered_nulls(heads: Heads, null: str) -> tuple[str, ...]:
    """The nulls of a model, the one asked for first.

    Reverse order takes the place of two-way in a small model. Passes through shared layers have haar alone.
    """
    if heads.stack.passes:
        return (HAAR,)
    small = two_way_obstacle(heads) is not None
    first = REVERSE if small and null == TWO_WAY else null
    return (first, *(name for name in NULLS if name != first and not (small and name == TWO_WAY)))


def _null_attributes(heads: Heads, null: str, sketched: bool) -> dict[str, str]:
    """Which null is shown, and why it is not the one asked for where it is not."""
    shown = HAAR if sketched else ordered_nulls(heads, null)[0]
    if shown == null:
        return {"null": shown}
    if sketched:
        reason = "a sketch does not know all pairs, which the two-way null is fitted to"
    else:
        reason = SHARED if heads.stack.passes else two_way_obstacle(heads) or ""
    return {"null": shown, "null_reason": reason}


def blocks(heads: Heads) -> dict[str, dict[str, str]]:
    """Parts of the work that a sweep shares out on large models: a pairing each. Hubs need all of them."""
    return {pairing: {"pairings": pairing} for pairing in checked_pairings(heads, None)}


def _classes(labels: str | None, heads: Heads) -> HeadClasses | None:
    """Published or given classes of heads, or those that running the model detects."""
    if labels != "detected":
        return None if labels is None else head_classes(labels, heads)
    from headspan.lenses.detect import detect

    found = detect(heads)
    classes: HeadClasses = import_module(f"{found.lens.package}.classes").detected_classes(found)
    return classes


def _attributes(heads: Heads, plan: Plan, tolerance: float | None, seed: int) -> dict[str, Any]:
    """How the result was made; the rest of its provenance is added to every lens's."""
    return {
        "dtype": str(heads.dtype).removeprefix("torch."),
        "tolerance": heads.rank_rule(tolerance),
        "seed": seed,
        "algorithm": plan.chosen.algorithm,
        "operations": plan.chosen.operations,
        "scratch_bytes": plan.chosen.scratch,
    }


def _complete_nodes(
    heads: Heads,
    plan: Plan,
    wanted: Sequence[str],
    metrics: Sequence[str],
    null: str,
    settings: tuple[int, float | None, int, int, int],
) -> tuple[dict[str, xr.Dataset], dict[str, float | int]]:
    """A node per pairing with the scores of all pairs, and what single precision cost."""
    delta, tolerance, seed, draws, budget = settings
    composing = [pairing for pairing in wanted if pairing in COMPOSING] if COMPOSITION in metrics else []
    kernels, overlaps = _tables(heads, plan, wanted if KERNEL in metrics else (), composing, delta, tolerance, budget)
    error = {} if kernels is None else kernel_error(heads, kernels, tolerance)
    passes, order = heads.unrolled(), pass_order(heads)
    if order is not None:
        kernels = None if kernels is None else kernels.by_pass(order)
        overlaps = None if overlaps is None else overlaps.by_pass(order)
    nulls = ordered_nulls(heads, null)
    nodes = {pairing: pairing_dataset(passes, pairing, kernels, overlaps, nulls, seed, draws) for pairing in wanted}
    if order is not None:
        nodes = {pairing: without_order(node) for pairing, node in nodes.items()}
    return nodes, error


def without_order(node: xr.Dataset) -> xr.Dataset:
    """A pairing of shared layers without what compares orders or takes passes for independent: NaN."""
    blind = ("_reverse", "_mean_low", "_mean_high")
    names = [str(name) for name in node.data_vars if "_direction" in str(name) or str(name).endswith(blind)]
    return node.assign({name: node[name] * np.nan for name in names})


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
        kernels = None
        if wanted:
            kernels = scratch_kernel_tables(heads, wanted, tolerance=tolerance, memory=memory, algorithm=algorithm)
        return kernels, scratch_overlap_tables(heads, composing, delta=delta, memory=memory, algorithm=algorithm)
    way: Algorithm = "gram" if algorithm == "gram" else "projector"

    @cache
    def circuits() -> Circuits:
        roles, budget = roles_in(wanted), max(1, memory // 8)
        return head_circuits(heads, roles, composition=bool(composing), delta=delta, tolerance=tolerance, memory=budget)

    def kernels_now() -> KernelTables:
        return kernel_tables(circuits(), wanted, memory // 4, way)

    found = kept_kernel_tables(heads, wanted, (tolerance, way), kernels_now) if wanted else None
    return found, overlap_tables(circuits(), composing, memory // 4, way) if composing else None


def _further_nodes(
    heads: Heads,
    nodes: dict[str, xr.Dataset],
    classes: HeadClasses | None,
    top: int,
    delta: int,
    robustness: bool,
    sensitivity: bool,
) -> Iterator[tuple[str, xr.Dataset]]:
    """What follows from the scores: hubs at the root, and what was asked for beside them."""
    pairs = labeled_result(LENS, xr.DataTree.from_dict(dict(nodes)), heads.unrolled())
    if has_hubs(pairs):
        yield "", hub_scores(pairs)
    if classes is not None:
        yield from class_nodes(pairs, classes, top).items()
    wanted = [pairing for pairing in nodes if len(pairing) == 2]
    if robustness:
        yield "robustness", fold_robustness(heads.refolded("none"), wanted, top, delta)
    if sensitivity:
        yield "sensitivity", basis_sensitivity(heads, wanted, top=top)
