"""What two checkpoints side by side say: drift, edges gained and lost, spectra."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd
import xarray as xr

from headspan.finding import Finding
from headspan.lenses import compare
from headspan.lenses.compare.tables import turnover
from headspan.lenses.drift import findings as drift

LENS = "compare"
THROUGH = {"OQ": "queries", "OK": "keys", "OV": "values"}


def findings(result: xr.DataTree) -> list[Finding]:
    """Drift first, then wiring, then spectra; equal checkpoints have nothing more to say."""
    moved = [replace(finding, lens=LENS) for finding in drift.findings(result["drift"].to_dataset())]
    pairings = compare.wiring_pairings(result)
    if not int(result.attrs["identical"]):
        moved += [finding for pairing in pairings for finding in _turnover(result, pairing)]
        moved += _strongest(result, pairings)
    return [*moved, *_spectra(result)]


def _turnover(result: xr.DataTree, pairing: str) -> Iterator[Finding]:
    """How many edges appeared and vanished."""
    counts, level = turnover(result, pairing), float(result.attrs["level"])
    if result.attrs["d_head"] >= result.attrs["d_model"]:
        # Every head reads and writes all of the stream: each pair shares everything, before and after.
        return
    turned = counts["gained"] + counts["lost"]
    where = f"Through {THROUGH.get(pairing, pairing)}"
    if not turned:
        statement = f"{where} no edge was gained or lost; {counts['kept']} stayed."
    else:
        statement = (
            f"{where} {counts['gained']} edges were gained and {counts['lost']} lost, {counts['kept']} stayed; "
            f"{counts['beyond_null']} of these {turned} changed more than a random change of the heads explains."
        )
    yield Finding(
        LENS,
        statement,
        value=float(turned),
        expected=None,
        evidence=f"Edges are pairs with q < {level:g} ({result.attrs['edge_null']} null, projection kernel {pairing}); "
        f"null of changes: {result.attrs['change_null']}.",
        weight=0.5 if counts["beyond_null"] else 0.25 if turned else 0.1,
    )


def _strongest(result: xr.DataTree, pairings: list[str]) -> Iterator[Finding]:
    """The edge whose change is least explained by a random change of its heads, once for gains and once for falls."""
    if not pairings:
        return
    edges = pd.concat([compare.edge_changes(result, pairing) for pairing in pairings], ignore_index=True)
    certain = edges[edges["q_value"] < float(result.attrs["level"])]
    for sign, words in ((1, "came closer to"), (-1, "parted from")):
        here = certain[sign * (certain["change"] - certain["change_chance"]) > 0]
        if here.empty:
            continue
        row = here.loc[here["change_z"].abs().idxmax()]
        yield Finding(
            LENS,
            f"What {row['src']} writes {words} the {THROUGH.get(row['pairing'], row['pairing'])} of {row['dst']} more "
            f"than a random change explains: they share {row['kernel_after']:.2f} dimensions, before "
            f"{row['kernel_before']:.2f}.",
            value=float(row["change"]),
            expected=float(row["change_chance"]),
            p=float(row["q_value"]),
            evidence=f"Change of the projection kernel {row['pairing']}, z = {row['change_z']:.1f}; p is corrected for "
            f"all pairs. Null: {result.attrs['change_null']}.",
            weight=0.65,
        )


def _spectra(result: xr.DataTree) -> Iterator[Finding]:
    """The matrix whose spectrum changed most."""
    rows = compare.spectra_table(result)
    row = rows.loc[rows["ks"].idxmax()]
    if not row["ks"] > 0:
        return
    place = "".join(f" {axis} {int(row[axis])}" for axis in ("layer", "head") if row[axis] >= 0)
    grew = row["energy_after"] / row["energy_before"] if row["energy_before"] > 0 else float("nan")
    spikes = f"; {row['spikes_after']:.0f} spikes, before {row['spikes_before']:.0f}"
    yield Finding(
        LENS,
        f"The singular values of {row['kind']}{place} changed most: their distributions are {row['ks']:.2f} apart, and "
        f"its energy is {grew:.2f} times what it was.",
        value=float(row["ks"]),
        expected=None,
        evidence="Kolmogorov-Smirnov distance of the two sets of singular values, in 0..1. Effective rank "
        f"{row['effective_rank_after']:.1f}, before {row['effective_rank_before']:.1f}{spikes}.",
        weight=0.35,
    )
