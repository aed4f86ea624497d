"""What the course of training says: when quantities change, edges appear, heads move; which steps are identical."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headspan.finding import Finding, percent
from headspan.sweeps.course.wiring import NULLS

LENS = "evolution"
SHOWN, EDGES = 6, 5
LEVEL = 0.05
LEAST_CHANGE = 0.02
"""Share of a quantity that it must change by to be told of by itself: a smaller step may be clear, but says little."""


def findings(result: xr.DataTree) -> list[Finding]:
    """Findings over every model of a store, strongest first."""
    found: list[Finding] = []
    for node in result.children.values():
        of = f"{node.attrs['model']}: " if len(result.children) > 1 else ""
        found += [*_changes(node, of), *_edges(node, of), *_drift(node, of), *_twins(node, of), *_missing(node, of)]
    return sorted(found, key=lambda finding: -finding.weight)


def _changes(node: xr.DataTree, of: str) -> Iterator[Finding]:
    table = node["quantities"].to_dataset()
    known, least = int(np.isfinite(table["value"].values).any(0).sum()), int(table.attrs["least_steps"])
    if known < least:
        text = f"{of}No change points were looked for: there are {known} steps, and {least} are needed."
        yield Finding(LENS, text, value=float(known))
        return
    p, size = table["change_p"].values, _size(table)
    clear = np.flatnonzero(p <= LEVEL)
    examined = int(table.sizes["quantity"])
    told = clear[size[clear] >= LEAST_CHANGE]
    for row in told[np.lexsort((-size[told], p[told]))][:SHOWN]:
        yield _change(table.isel(quantity=int(row)), size[row], of)
    text = f"{of}{len(clear)} of {examined} quantities change abruptly (p <= {LEVEL} against gradual curves)."
    if len(clear):
        middle = np.quantile(table["change"].values[clear], [0.25, 0.5, 0.75])
        text += f" Half of these lie between steps {middle[0]:.0f} and {middle[2]:.0f} (median {middle[1]:.0f})."
    evidence = (
        "Null: a smooth trend with random walks on the same steps. Quantities of one model move together; they are not "
        "independent."
    )
    weight = 0.7 if len(clear) else 0.2
    yield Finding(LENS, text, value=len(clear) / examined, expected=LEVEL, evidence=evidence, weight=weight)


def _size(table: xr.Dataset) -> np.ndarray:
    """How large a change is beside the quantity itself, in [0, 1]."""
    before, after = table["before"].values, table["after"].values
    scale = np.maximum(np.maximum(abs(before), abs(after)), np.finfo(float).tiny)
    share: np.ndarray = np.nan_to_num(np.minimum(abs(after - before) / scale, 1.0))
    return share


def _change(row: xr.Dataset, size: float, of: str) -> Finding:
    before, after, at, low, high, p = (
        float(row[name]) for name in ("before", "after", "change", "low", "high", "change_p")
    )
    interval = f"95 % interval {low:.0f} to {high:.0f}, " if np.isfinite(low) else ""
    verb = "rises" if after > before else "falls"
    kinked = str(row["change_kind"].values) == "slope"
    where = f", its slope changes at step {at:.0f}" if kinked else f" around step {at:.0f}"
    statement = f"{of}{row['words'].values!s} {verb} from {before:.3g} to {after:.3g}{where} ({interval}p = {p:.2g})."
    evidence = (
        f"Mean over layers and heads. A line with a {'kink' if kinked else 'step'} explains "
        f"{percent(float(row['explained']), 1)} of the curve's variance; p is the share of random walks that it fits "
        "as much better than gradual curves do."
    )
    return Finding(LENS, statement, value=at, p=p, evidence=evidence, weight=float(0.5 + 0.3 * size))


def _edges(node: xr.DataTree, of: str) -> Iterator[Finding]:
    if "wiring" not in node.children:
        return
    table = node["wiring"].to_dataset()
    test = f"q <= {table.attrs['level']} under {NULLS[str(table.attrs['null'])]}"
    later = np.flatnonzero(np.isfinite(table["appears"].values) & ~table["from_start"].values)
    for row in later[:EDGES]:
        edge = table.isel(edge=int(row))
        score, expected = edge["score"].values, float(edge["score_null"].values[-1])
        pairing, src, dst = (str(edge[name].values) for name in ("pairing", "src", "dst"))
        statement = (
            f"{of}{src} → {dst} becomes a {pairing[-1]}-composition edge at step {float(edge['appears']):.0f} and "
            f"stays one: the subspaces overlap in {score[0]:.2f} dimensions at the first step, in {score[-1]:.2f} at "
            f"the last (expected {expected:.2f})."
        )
        evidence = f"Projection kernel {pairing}; {test} at every later step."
        yield Finding(LENS, statement, value=float(score[-1]), expected=expected, evidence=evidence, weight=0.6)
    counts, steps = table["n_edges"].values.sum(0), table["step"].values
    statement = (
        f"{of}{counts[-1]} pairs of heads are edges at step {steps[-1]}, {counts[0]} at step {steps[0]}; {len(later)} "
        f"appeared in between and stayed, {int(np.isfinite(table['vanishes'].values).sum())} vanished."
    )
    evidence = (
        f"Edges of {', '.join(map(str, table['counted_pairing'].values))}: {test}. Where the series begins with "
        "untrained weights, the count at the first step is what these give."
    )
    first, last = float(counts[0]), float(counts[-1])
    weight = 0.4 if counts.any() else 0.1
    yield Finding(LENS, statement, value=last, expected=first, evidence=evidence, weight=weight)


def _drift(node: xr.DataTree, of: str) -> Iterator[Finding]:
    if "movement" not in node.children:
        return
    table = node["movement"].to_dataset()
    turned = table["grassmann"].mean("role").values
    if not np.isfinite(turned).any():
        return
    at = int(np.nanargmax(turned))
    here = table.isel(step=at)
    expected = float(here["grassmann_null"].mean("role"))
    ratio = f", {turned[at] / expected:.1f} times as far as by a random change of that size" if expected > 0 else ""
    statement = (
        f"{of}Heads turn most between steps {float(here['previous_step']):.0f} and {int(here['step'])}: by "
        f"{turned[at]:.2f} rad{ratio}; in the last interval they turn by {turned[-1]:.2f} rad."
    )
    evidence = "Grassmann distance, median over heads, mean over Q, K, V and O. Intervals need not be equally long."
    yield Finding(LENS, statement, value=float(turned[at]), expected=expected, evidence=evidence, weight=0.45)


def _twins(node: xr.DataTree, of: str) -> Iterator[Finding]:
    table = node["checkpoints"].to_dataset()
    other, steps = table["identical_to"].values, table["step"].values
    for row in np.flatnonzero(other < steps):
        statement = f"{of}Steps {other[row]:.0f} and {steps[row]} have identical weights."
        evidence = f"Content hash {table['content_hash'].values[row]}."
        yield Finding(LENS, statement, value=float(steps[row]), evidence=evidence, weight=0.9)


def _missing(node: xr.DataTree, of: str) -> Iterator[Finding]:
    for name, text in node["checkpoints"].attrs.items():
        lens, _, kind = str(name).rpartition("_")
        if kind == "missing":
            yield Finding(LENS, f"{of}{lens} is not finished at step {text}.", value=float(len(str(text).split(","))))
