"""What the course of training says: when quantities change, edges appear, heads move; which steps are twins."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headspan.finding import Finding

LENS = "evolution"
SHOWN, EDGES = 6, 5
THROUGH = {"OQ": "queries", "OK": "keys", "OV": "values"}
LEVEL = 0.05
LEAST_CHANGE = 0.02
"""Share of a quantity that it must change by to be told of by itself: a smaller step may be clear, but says little."""
AGAINST = {"anticausal": "the pairs whose order cannot compose", "haar": "subspaces in general position"}


def findings(result: xr.DataTree) -> list[Finding]:
    """Findings over every model of a store, strongest first."""
    found: list[Finding] = []
    for node in result.children.values():
        of = f"{node.attrs['model']}: " if len(result.children) > 1 else ""
        found += [*_changes(node, of), *_edges(node, of), *_drift(node, of), *_twins(node, of), *_missing(node, of)]
    return sorted(found, key=lambda finding: -finding.weight)


def _changes(node: xr.DataTree, of: str) -> Iterator[Finding]:
    table = node["quantities"].to_dataset()
    known = int(np.isfinite(table["value"].values).any(0).sum())
    if known < int(table.attrs["least_steps"]):
        text = (
            f"{of}With {known} steps no change points were looked for; it takes {table.attrs['least_steps']} at least."
        )
        yield Finding(LENS, text, value=float(known))
        return
    p = table["p_value"].values
    clear = np.flatnonzero(p <= LEVEL)
    examined = int(table.sizes["quantity"])
    told = clear[_size(table)[clear] >= LEAST_CHANGE]
    order = told[np.lexsort((-_size(table)[told], p[told]))]
    for row in order[:SHOWN]:
        yield _change(table.isel(quantity=int(row)), of)
    text = f"{of}{len(clear)} of {examined} quantities change by a step clearer than 95 % of random walks show."
    if len(clear):
        middle = np.quantile(table["change"].values[clear], [0.25, 0.5, 0.75])
        text += f" Half of them do so between steps {middle[0]:.0f} and {middle[2]:.0f} (median {middle[1]:.0f})."
    evidence = "Null: random walks on the same steps. Quantities of one model move together; they are not independent."
    yield Finding(
        LENS, text, value=len(clear) / examined, expected=LEVEL, evidence=evidence, weight=0.7 if len(clear) else 0.2
    )


def _size(table: xr.Dataset) -> np.ndarray:
    """How large a change is beside the quantity itself, in [0, 1]."""
    before, after = table["before"].values, table["after"].values
    scale = np.maximum(np.maximum(abs(before), abs(after)), np.finfo(float).tiny)
    share: np.ndarray = np.nan_to_num(np.minimum(abs(after - before) / scale, 1.0))
    return share


def _change(row: xr.Dataset, of: str) -> Finding:
    before, after, at = (float(row[name]) for name in ("before", "after", "change"))
    low, high = float(row["low"]), float(row["high"])
    interval = f" (95 %: {low:.0f} to {high:.0f})" if np.isfinite(low) else ""
    verb = "rises" if after > before else "falls"
    statement = f"{of}{row['words'].values!s}: {verb} from {before:.3g} to {after:.3g} around step {at:.0f}{interval}."
    return Finding(
        lens=LENS,
        statement=statement,
        value=at,
        p=float(row["p_value"]),
        evidence=f"A smooth step explains {float(row['explained']):.1%} of the curve's variance; p is the share of "
        "random walks that it explains as well. The mean over layers and heads is followed.",
        weight=float(0.5 + 0.3 * _size(row.expand_dims("quantity"))[0]),
    )


def _edges(node: xr.DataTree, of: str) -> Iterator[Finding]:
    if "wiring" not in node.children:
        return
    table = node["wiring"].to_dataset()
    later = np.flatnonzero(np.isfinite(table["appears"].values) & ~table["from_start"].values)
    for row in later[:EDGES]:
        edge = table.isel(edge=int(row))
        score, chance = edge["score"].values, edge["score_chance"].values
        pairing = str(edge["pairing"].values)
        yield Finding(
            lens=LENS,
            statement=f"{of}{edge['src'].values} comes to be read by the {THROUGH[pairing]} of {edge['dst'].values} "
            f"at step {float(edge['appears']):.0f}, and stays so: from {score[0]:.2f} to {score[-1]:.2f} shared "
            "dimensions.",
            value=float(score[-1]),
            expected=float(chance[-1]),
            evidence=f"Projection kernel {pairing}; at every later step it stands out from "
            f"{AGAINST[str(table.attrs['null'])]}.",
            weight=0.6,
        )
    counts, steps = table["n_edges"].values.sum(0), table["step"].values
    yield Finding(
        lens=LENS,
        statement=f"{of}{counts[-1]} pairs of heads stand out at step {steps[-1]}, {counts[0]} at step {steps[0]}; "
        f"{len(later)} appeared in between and stayed, {int(np.isfinite(table['vanishes'].values).sum())} vanished.",
        value=float(counts[-1]),
        expected=float(counts[0]),
        evidence=f"Pairs in OQ, OK and OV together that stand out from {AGAINST[str(table.attrs['null'])]} (level "
        f"{table.attrs['level']}). The count at the first step is what untrained weights give, where the series begins "
        "with them.",
        weight=0.4 if counts.any() else 0.1,
    )


def _drift(node: xr.DataTree, of: str) -> Iterator[Finding]:
    if "drift" not in node.children:
        return
    table = node["drift"].to_dataset()
    turned = table["grassmann"].mean("role").values
    if not np.isfinite(turned).any():
        return
    at = int(np.nanargmax(turned))
    here = table.isel(step=at)
    chance = float(here["grassmann_chance"].mean("role"))
    ratio = f", {turned[at] / chance:.1f} times what a random change of the same size does" if chance > 0 else ""
    yield Finding(
        lens=LENS,
        statement=f"{of}Heads turn most between steps {float(here['previous_step']):.0f} and {int(here['step'])}: by "
        f"{turned[at]:.2f} rad{ratio}; {turned[-1]:.2f} rad in the last interval.",
        value=float(turned[at]),
        expected=chance,
        evidence="Grassmann distance, median over heads, mean over Q, K, V and O. Intervals need not be equally long.",
        weight=0.45,
    )


def _twins(node: xr.DataTree, of: str) -> Iterator[Finding]:
    table = node["checkpoints"].to_dataset()
    other, steps = table["identical_to"].values, table["step"].values
    for row in np.flatnonzero(other < steps):
        yield Finding(
            lens=LENS,
            statement=f"{of}Steps {other[row]:.0f} and {steps[row]} have identical weights.",
            value=float(steps[row]),
            evidence=f"Content hash {table['content_hash'].values[row]}.",
            weight=0.9,
        )


def _missing(node: xr.DataTree, of: str) -> Iterator[Finding]:
    for name, text in node["checkpoints"].attrs.items():
        lens, _, kind = str(name).rpartition("_")
        if kind == "missing":
            yield Finding(LENS, f"{of}{lens} is not finished at step {text}.", value=float(len(str(text).split(","))))
