"""When wiring edges appear: pairs of heads whose projection kernel becomes significant, and stays so.

A pair is an edge at a step if its projection kernel is significant there. It appears at the first step from which on it
is one at every step to the end, for two checkpoints at least; a single one that flickers is left out. Pairs that were
edges for two checkpoints or more and are none at the end have vanished.

What is significant: q < 0.05 under the two-way null, what a pair's heads and layers share in general at that step. A
model too small for it is compared with its pairs in reverse order. That q-value counts how many of them come as high;
where k pairs rise above all of them it is about 1/k, so that the first nineteen edges would never be seen. Hence also a
pair above every one in reverse order of its step, if it lies beyond their tail: cube roots of kernels are nearly normal
(Wilson and Hilferty 1931), so that one more draw has Student's distribution (q < 0.05). A model with fewer than twenty
pairs in reverse order is compared with random subspaces (haar). The attribute `null` says which.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import COMPOSING
from headspan.statistics import prediction_tail, q_values
from headspan.sweeps.course.curves import step_changes, tree_with_table

LEVEL, HELD = 0.05, 2
MOST = 200
"""Edges kept per pairing, those that changed most."""
KERNEL, REVERSE = "projection_kernel", "projection_kernel_reverse"
TWO_WAY, REVERSE_ORDER, HAAR = "two-way", "reverse", "haar"
NULLS = {
    TWO_WAY: "the two-way null (what their heads and layers share in general)",
    REVERSE_ORDER: "the reverse-order null (pairs in non-causal order)",
    HAAR: "the haar null (random subspaces)",
}
"""Nulls of edges in words."""
PAIR = ("src", "dst")
TEXTS, NUMBERS = ("src", "dst", "pairing"), ("appears", "vanishes", "gain")
KINDS = dict.fromkeys(TEXTS, str) | dict.fromkeys(NUMBERS, float) | {"from_start": bool}


def wiring_edges(trees: xr.DataTree, model: str, walks: int) -> xr.Dataset | None:
    """Edges of one model over steps; None where no lens of pairs of heads was swept over two steps at least.

    Returns
    -------
    Dataset
        Over `edge` (strongest change first): `src`, `dst`, `pairing`, `appears` (NaN if it does not stay), `vanishes`
        (NaN if it stays), `from_start`, `score` [edge, step] in [0, rank], `score_null` [edge, step], `gain` in
        standard deviations of the haar null, and the change point of its score. `n_edges` [counted_pairing, step].
    """
    tree = tree_with_table(trees, "pairs", "pairing")
    if tree is None:
        return None
    found = {pairing: tree[pairing].to_dataset().sel(model=model) for pairing in COMPOSING if pairing in tree.children}
    nodes = {pairing: node for pairing, node in found.items() if KERNEL in node and node.sizes["step"] > 1}
    if not nodes:
        return None
    null = chosen_null(nodes)
    tables = {pairing: _edges(pairing, node, null) for pairing, node in nodes.items()}
    table = pd.concat([edges for edges, _ in tables.values()], ignore_index=True)
    table = table.sort_values("gain", ascending=False, key=abs, kind="stable", ignore_index=True)
    steps = next(iter(nodes.values()))["step"].values
    counts = np.stack([count for _, count in tables.values()])
    return _dataset(table, steps, list(nodes), counts, walks).assign_attrs(null=null, level=LEVEL)


def chosen_null(nodes: dict[str, xr.Dataset]) -> str:
    """Two-way where it was computed; reverse order where its smallest q-value can reach the level; else haar."""
    if all(TWO_WAY in node["null"] for node in nodes.values()):
        return TWO_WAY
    reachable = [int(np.isfinite(node[REVERSE].isel(step=0)).sum()) >= 1 / LEVEL for node in nodes.values()]
    return REVERSE_ORDER if all(reachable) else HAAR


def _edges(pairing: str, node: xr.Dataset, null: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Every pair that is an edge at some time, and how many there are at each step."""
    dims = ("step", *PAIR)
    kernel = node[KERNEL].transpose(*dims).values
    present = _significant(node, null).transpose(*dims).values
    expected, spread = (_under(node, one, part) for one, part in ((null, "null"), (HAAR, "null_sd")))
    steps, rows = node["step"].values, []
    for src, dst in np.argwhere(present.sum(0) >= HELD):
        here = (slice(None), src, dst)
        held, values = present[here], kernel[here]
        appears, vanishes = _times(held, steps)
        gain = (values[-1] - values[0]) / max(float(spread[here][-1]), np.finfo(float).tiny)
        labels = str(node["src"].values[src]), str(node["dst"].values[dst])
        rows.append((*labels, pairing, appears, vanishes, gain, bool(held.all()), values, expected[here]))
    table = pd.DataFrame(rows, columns=[*KINDS, "score", "score_null"])
    table = table[table["appears"].notna() | table["vanishes"].notna()]
    order = table["gain"].abs().sort_values(ascending=False, kind="stable").index[:MOST]
    return table.loc[order], present.sum((1, 2))


def _under(node: xr.Dataset, null: str, part: str) -> np.ndarray:
    """What a null says of the kernel, for every step and pair."""
    found = node[f"{KERNEL}_{part}"].sel(null=null).reset_coords(drop=True)
    values: np.ndarray = found.broadcast_like(node[KERNEL]).transpose("step", *PAIR).values
    return values


def _significant(node: xr.Dataset, null: str) -> xr.DataArray:
    """Which pairs are edges at which steps; undefined pairs are none."""
    found: xr.DataArray = node[f"{KERNEL}_q"].sel(null=null).reset_coords(drop=True) < LEVEL
    if null != REVERSE_ORDER:
        return found
    kernel, reverse = node[KERNEL].reset_coords(drop=True), node[REVERSE].reset_coords(drop=True)
    return found | ((kernel > reverse.max(PAIR)) & (tail_q(kernel, reverse) < LEVEL))


def tail_q(kernel: xr.DataArray, reverse: xr.DataArray) -> xr.DataArray:
    r"""False-discovery rate of kernels beyond the tail of those in reverse order, at each step by itself.

    With mean $m$ and standard deviation $s$ of the cube roots of the $n$ pairs in reverse order,
    $t = (k^{1/3} - m) / (s \sqrt{1 + 1/n})$ of one more draw has Student's distribution with $n - 1$ degrees of
    freedom.

    Returns
    -------
    DataArray
        In [0, 1], NaN where the kernel is; on untrained weights no pair has q < 0.05 at 95 % of steps or more.
    """
    kernel, reverse = (xr.apply_ufunc(np.cbrt, scores) for scores in (kernel, reverse))
    z = (kernel - reverse.mean(PAIR)) / reverse.std(PAIR, ddof=1)
    rows: xr.DataArray = xr.apply_ufunc(prediction_tail, z, reverse.count(PAIR)).transpose("step", *PAIR)
    return rows.copy(data=np.stack([q_values(row.ravel()).reshape(row.shape) for row in rows.values]))


def _times(held: np.ndarray, steps: np.ndarray) -> tuple[float, float]:
    """Since when a pair has been an edge to the end, and since when one is none any more; NaN for not so."""
    if held[-1]:
        absent = np.flatnonzero(~held)
        first = 0 if len(absent) == 0 else int(absent[-1]) + 1
        return (float(steps[first]) if len(held) - first >= HELD else float("nan")), float("nan")
    return float("nan"), float(steps[int(np.flatnonzero(held)[-1]) + 1])


def _dataset(table: pd.DataFrame, steps: np.ndarray, pairings: list[str], counts: np.ndarray, walks: int) -> xr.Dataset:
    empty = np.zeros((0, len(steps)))
    series = {name: np.stack(list(table[name])) if len(table) else empty for name in ("score", "score_null")}
    points = step_changes(series["score"], steps, walks).rename(curve="edge")
    flat = {name: ("edge", table[name].to_numpy(dtype=kind)) for name, kind in KINDS.items()}
    curves = {name: (("edge", "step"), values) for name, values in series.items()}
    counted = {"n_edges": (("counted_pairing", "step"), counts)}
    return points.assign({**flat, **curves, **counted}).assign_coords(step=steps, counted_pairing=pairings)
