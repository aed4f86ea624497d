"""When wiring edges appear: pairs of heads whose affinity comes to stand out, and stays so.

A pair is an edge at a step if its projection kernel stands out there. It appears at the first step from which on it is
one at every step to the end, for two checkpoints at least; by then a single one that flickers is left out. Pairs that
were edges for two checkpoints or more and are none at the end have vanished.

What stands out: q <= 0.05 under the anti-causal null (the same model, impossible order). That q-value counts how many
impossible pairs come as high; where k pairs rise above all of them it is about 1/k, so that the first nineteen edges
would never be seen. Hence also a pair above every impossible one of its step, if it lies beyond the tail of a normal
law with their mean and spread (Student's law for one more draw, q <= 0.05). A model with fewer than twenty impossible
pairs has subspaces in general position for a null. The attribute `null` says.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import COMPOSING, PAIR_DIMS, HeadLabel
from headspan.statistics import prediction_tail, q_values
from headspan.sweeps.evolution.axis import step_changes

LEVEL, HELD = 0.05, 2
MOST = 200
"""Edges kept per pairing, those that changed most."""


def wiring(lenses: xr.DataTree, model: str, walks: int) -> xr.Dataset | None:
    """Edges of one model over steps; None where `affinity` was not swept over two steps at least.

    Returns
    -------
    Dataset
        Over `edge` (strongest change first): `src`, `dst`, `pairing`, `appears` (NaN if it does not stay), `vanishes`
        (NaN if it stays), `from_start`, `score` [edge, step] in [0, rank], `score_chance` [edge, step], `gain` in
        standard deviations of chance, and the change point of its score. `n_edges` and `n_pairs` [pairing, step].
    """
    if "affinity" not in lenses.children:
        return None
    nodes = {
        pairing: lenses["affinity"][pairing].to_dataset().sel(model=model)
        for pairing in COMPOSING
        if pairing in lenses["affinity"].children
    }
    nodes = {pairing: node for pairing, node in nodes.items() if "projection_kernel" in node and node.sizes["step"] > 1}
    if not nodes:
        return None
    null = chosen_null(nodes)
    tables = {pairing: _edges(pairing, node, null) for pairing, node in nodes.items()}
    table = pd.concat([found for found, _ in tables.values()], ignore_index=True)
    table = table.sort_values("gain", ascending=False, key=abs, kind="stable", ignore_index=True)
    steps = next(iter(nodes.values()))["step"].values
    counts = np.stack([count for _, count in tables.values()])
    return _dataset(table, steps, list(nodes), counts, walks).assign_attrs(null=null, level=LEVEL)


def chosen_null(nodes: dict[str, xr.Dataset]) -> str:
    """The anti-causal null where its smallest q-value can reach the level, else general position."""
    reachable = [int(np.isfinite(node["anticausal_kernel"].isel(step=0)).sum()) >= 1 / LEVEL for node in nodes.values()]
    return "anticausal" if all(reachable) else "haar"


def _edges(pairing: str, node: xr.Dataset, null: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Every pair that is an edge at some time, and how many there are at each step."""
    dims = ("step", *PAIR_DIMS)
    kernel = node["projection_kernel"].transpose(*dims).values
    present = _stands_out(node, null).transpose(*dims).values
    chance = node["chance_mean"].sel(metric="pk").values
    spread = node["chance_std"].sel(metric="pk").values
    steps, rows = node["step"].values, []
    for at in np.argwhere(present.sum(0) >= HELD):
        here = (slice(None), *at)
        held, values = present[here], kernel[here]
        labels = [
            HeadLabel(int(node[f"{side}_layer"].values[at[k]]), int(at[k + 1]), bool(node.attrs[f"{side}_kv"]))
            for side, k in (("src", 0), ("dst", 2))
        ]
        appears, vanishes = _times(held, steps)
        gain = (values[-1] - values[0]) / max(float(spread[-1]), np.finfo(float).tiny)
        rows.append(
            (str(labels[0]), str(labels[1]), pairing, appears, vanishes, bool(held.all()), gain, values, chance)
        )
    columns = ["src", "dst", "pairing", "appears", "vanishes", "from_start", "gain", "score", "score_chance"]
    table = pd.DataFrame(rows, columns=columns)
    table = table[table["appears"].notna() | table["vanishes"].notna()]
    order = table["gain"].abs().sort_values(ascending=False, kind="stable").index[:MOST]
    return table.loc[order], present.reshape(len(steps), -1).sum(1)


def _stands_out(node: xr.Dataset, null: str) -> xr.DataArray:
    """Which pairs are edges at which steps; undefined pairs are none."""
    found: xr.DataArray = node["q_value"].sel(metric="pk", null=null).reset_coords(drop=True) <= LEVEL
    if null == "haar":
        return found
    kernel, impossible = node["projection_kernel"], node["anticausal_kernel"]
    above_all = kernel > impossible.max(PAIR_DIMS)
    return found | (above_all & (tail_q(kernel, impossible) <= LEVEL))


def tail_q(kernel: xr.DataArray, impossible: xr.DataArray) -> xr.DataArray:
    r"""False-discovery rate of kernels beyond the tail of impossible ones, at each step by itself.

    With mean $m$ and standard deviation $s$ of the $n$ impossible pairs, $t = (k - m) / (s \sqrt{1 + 1/n})$ of one more
    draw from the same normal law has Student's distribution with $n - 1$ degrees of freedom.

    Returns
    -------
    DataArray
        In [0, 1], NaN where the kernel is; by chance no pair has q <= 0.05 at 95 % of steps.
    """
    n = impossible.count(PAIR_DIMS)
    z = (kernel - impossible.mean(PAIR_DIMS)) / impossible.std(PAIR_DIMS, ddof=1)
    p = xr.apply_ufunc(prediction_tail, z, n)
    rows: xr.DataArray = p.transpose("step", *PAIR_DIMS)
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
    score = np.stack(list(table["score"])) if len(table) else empty
    chance = np.stack(list(table["score_chance"])) if len(table) else empty
    points = step_changes(score, steps, walks).rename(curve="edge")
    flat = {name: ("edge", table[name].to_numpy(dtype=kind)) for name, kind in _COLUMNS.items()}
    return points.assign(
        {
            **flat,
            "score": (("edge", "step"), score),
            "score_chance": (("edge", "step"), chance),
            "n_edges": (("counted_pairing", "step"), counts),
        }
    ).assign_coords(step=steps, counted_pairing=pairings)


_COLUMNS = {
    "src": np.str_,
    "dst": np.str_,
    "pairing": np.str_,
    "appears": np.float64,
    "vanishes": np.float64,
    "from_start": np.bool_,
    "gain": np.float64,
}
