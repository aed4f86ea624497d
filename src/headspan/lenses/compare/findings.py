"""What two checkpoints side by side say: drift, edges gained and lost, spectra."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from headspan.finding import Finding
from headspan.lenses.compare.change_findings import behavior_findings, change_findings
from headspan.lenses.compare.channel_findings import channel_findings
from headspan.lenses.compare.parts import COMPOSITION, drift_part, edge_changes, wiring_pairings
from headspan.result import Result

LENS = "compare"


def findings(result: Result) -> Iterator[Finding]:
    """Drift first, then wiring, changes, behavior and spectra; equal checkpoints have nothing more to say."""
    yield from (replace(finding, lens=LENS) for finding in drift_part(result).findings)
    if not int(result.attrs["identical"]):
        # Heads that read and write all of the stream share everything with each other, before and after.
        if result.attrs["d_head"] < result.attrs["d_model"]:
            for pairing in wiring_pairings(result):
                yield _turnover(result, pairing)
        yield from _strongest(result)
        yield from channel_findings(result)
    # Heads may be the same where MLPs are not.
    yield from change_findings(result)
    yield from behavior_findings(result)
    yield from _spectra(result)


def _turnover(result: Result, pairing: str) -> Finding:
    """How many edges appeared and vanished."""
    node, level = result[f"wiring/{pairing}"], float(result.attrs["level"])
    kept, gained, lost, beyond = (int(node[f"n_{name}"]) for name in ("kept", "gained", "lost", "beyond_null"))
    name = COMPOSITION.get(pairing, pairing)
    if gained + lost:
        statement = (
            f"{name}: {gained} edges were gained and {lost} lost, {kept} stayed; {beyond} of these {gained + lost} "
            "changed significantly more than under a random change of all heads."
        )
    else:
        statement = f"{name}: no edge was gained or lost; {kept} stayed."
    return Finding(
        LENS,
        statement,
        value=float(gained + lost),
        evidence=f"Edges are pairs with q < {level:g} ({result.attrs['edge_null']} null, projection kernel {pairing}); "
        f"null of changes: {result.attrs['change_null']}.",
        weight=0.5 if beyond else 0.25 if gained + lost else 0.1,
    )


def _strongest(result: Result) -> Iterator[Finding]:
    """The edge whose change is least explained by a random change of its heads, once for gains and once for falls."""
    edges = edge_changes(result)
    if edges.empty:
        return
    certain = edges[edges["change_q"] < float(result.attrs["level"])]
    for sign, words in ((1, "grew"), (-1, "shrank")):
        here = certain[sign * (certain["change"] - certain["change_null"]) > 0]
        if here.empty:
            continue
        row = here.loc[here["change_z"].abs().idxmax()]
        name = COMPOSITION.get(row["pairing"], row["pairing"])
        yield Finding(
            LENS,
            f"{row['src']} → {row['dst']}: {name} {words} most against a random change, from "
            f"{row['kernel_before']:.2f} to {row['kernel_after']:.2f} shared dimensions (expected change "
            f"{row['change_null']:+.2f}, z = {row['change_z']:.1f}).",
            value=float(row["change"]),
            expected=float(row["change_null"]),
            p=float(row["change_p"]),
            q=float(row["change_q"]),
            evidence=f"Projection kernel {row['pairing']}; q over all pairs of the pairing. Null: "
            f"{result.attrs['change_null']}.",
            weight=0.65,
        )


def _spectra(result: Result) -> Iterator[Finding]:
    """The matrix whose spectrum changed most."""
    rows = result.table("matrices")
    row = rows.loc[rows["ks"].idxmax()]
    if not row["ks"] > 0:
        return
    grew = row["energy_after"] / row["energy_before"] if row["energy_before"] > 0 else float("nan")
    yield Finding(
        LENS,
        f"{_place(row)}{row['matrix']} has the spectrum that changed most: Kolmogorov-Smirnov distance {row['ks']:.2f},"
        f" squared norm {grew:.2f} times what it was.",
        value=float(row["ks"]),
        evidence="Distance of the singular values before and after, in 0..1. Effective rank "
        f"{row['effective_rank_after']:.1f}, before {row['effective_rank_before']:.1f}; spikes "
        f"{row['spikes_after']:.0f}, before {row['spikes_before']:.0f}.",
        weight=0.35,
    )


def _place(row: pd.Series) -> str:
    """Where a matrix is: `L1H2 `, `L1 `, or nothing for a table."""
    if "head" in row and not pd.isna(row["head"]):
        return f"{row['head']} "
    return "" if "layer" not in row or pd.isna(row["layer"]) else f"L{row['layer']} "
