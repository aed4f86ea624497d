"""What the spectra of a model's weights say: structure, size, and whether heads look for the like or the unlike."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import LAYER, HeadLabel
from headspan.finding import Finding
from headspan.lenses.spectra.kinds import WHOLE
from headspan.lenses.spectra.tables import table

LENS = "spectra"
LEVEL = 0.01
NOISE = "Null: independent normal entries with the scale of the matrix's own middle half."
HAAR = "Null: W_Q and W_K keep their singular values and get independent random singular vectors."
LAW = "Marchenko and Pastur (1967); Johnstone (2001), On the distribution of the largest eigenvalue"


def findings(result: xr.DataTree) -> list[Finding]:
    """Alignment of queries and keys, spikes, the matrix nearest to noise, size since initialisation, zero matrices."""
    rows = table(result)
    whole = rows[~rows["kind"].str.contains("_head|QK|OV")]
    found = [*_alignment(result), *_symmetry(result), *_spikes(whole), *_nearest_to_noise(whole)]
    return [*found, *_energy(whole, result.attrs["init"]), *_effective_rank(whole), *_degenerate(rows)]


def _alignment(result: xr.DataTree) -> Iterator[Finding]:
    """How many heads attract like to like, how many like to unlike, and which most."""
    if "alignment" not in result.children:
        return
    node = result["alignment"].to_dataset()
    z, q = node["trace_z"].values.ravel(), node["q_value"].values.ravel()
    tested = int(np.isfinite(z).sum())
    if tested == 0:
        return
    like, unlike = int(((q < LEVEL) & (z > 0)).sum()), int(((q < LEVEL) & (z < 0)).sum())
    yield Finding(
        LENS,
        f"{like} of {tested} heads match queries to keys of the same direction more than chance (positive trace of "
        f"W_QK), {unlike or 'none'} to keys of the opposite direction.",
        value=float(like + unlike),
        expected=0.0,
        evidence=f"False-discovery rate {LEVEL:g}. {HAAR}",
        figure="Base alignment",
        weight=0.6 if like + unlike else 0.1,
    )
    for sign, words in ((1, "the same"), (-1, "the opposite")):
        places = np.flatnonzero((q < LEVEL) & (sign * z > 0))
        if len(places):
            yield _extreme(node, places[np.argsort(-sign * z[places], kind="stable")], words)


def _extreme(node: xr.Dataset, places: np.ndarray, words: str) -> Finding:
    """The heads furthest out on one side."""
    share, first = node["trace_share"].values.ravel(), int(places[0])
    named = [f"{_label(node, int(place))} ({share[place]:+.2f})" for place in places[:3]]
    z, p = float(node["trace_z"].values.flat[first]), float(node["p_value"].values.flat[first])
    sd = float(node["trace_sd"].values.flat[first])
    return Finding(
        LENS,
        f"Queries look for keys of {words} direction most in {', '.join(named)}: the trace of W_QK as a share "
        "of the most that its singular values allow.",
        value=float(node["trace"].values.flat[first]),
        expected=0.0,
        p=_known(p),
        evidence=f"Trace of {_label(node, first)}, by chance 0 with standard deviation {sd:.3g}, z = {z:+.1f}. {HAAR}",
        figure="Base alignment",
        weight=0.55,
    )


def _known(p: float) -> float | None:
    """A p-value that a float can hold; far beyond, the z-score or the edge in the evidence says enough."""
    return p if p > 0 else None


def _label(node: xr.Dataset, place: int) -> str:
    layer, head = divmod(place, node.sizes["head"])
    return str(HeadLabel(int(node[LAYER].values[layer]), int(node["head"].values[head])))


def _symmetry(result: xr.DataTree) -> Iterator[Finding]:
    """Whether W_QK is symmetric beyond chance, over all heads."""
    if "alignment" not in result.children:
        return
    node = result["alignment"].to_dataset()
    share = node["symmetric_share"].values[np.isfinite(node["symmetric_share"].values)]
    if len(share) == 0:
        return
    chance, sd = float(node["symmetric_share_chance"]), float(node["symmetric_share_sd"])
    beyond = int((share > chance + 3 * sd).sum()), int((share < chance - 3 * sd).sum())
    yield Finding(
        LENS,
        f"The symmetric part holds {share.mean():.1%} of the energy of W_QK on average; it is larger than chance in "
        f"{beyond[0]} of {len(share)} heads and smaller in {beyond[1] or 'none'}.",
        value=float(share.mean()),
        expected=chance,
        evidence=f"Beyond 3 standard deviations ({sd:.2g}). Null: W_QK keeps its singular values.",
        figure="Symmetric part of W_QK",
        weight=0.35,
    )


def _spikes(whole: pd.DataFrame) -> Iterator[Finding]:
    """The matrix with the most singular values beyond the edge of a random one, where its bulk is not all zeros."""
    known = whole[whole["spikes"].notna() & (whole["spikes"] > 0) & (whole["edge"] > 0)]
    if known.empty:
        return
    first = known.loc[known["spikes"].idxmax()]
    most = int(min(first["rows"], first["columns"]))
    yield Finding(
        LENS,
        f"{first['matrix']} has the most structure: {first['spikes']:.0f} of {most} singular values lie beyond what a "
        f"random matrix reaches, the largest {first['largest'] / first['edge']:.1f} times its edge.",
        value=float(first["spikes"]),
        expected=float(first["spikes_chance"]),
        p=_known(float(first["p_value"])),
        evidence=f"p (Tracy-Widom) of the largest value, {first['largest']:.3g}; edge {first['edge']:.3g}. {NOISE}",
        reference=LAW,
        weight=0.5,
    )


def _nearest_to_noise(whole: pd.DataFrame) -> Iterator[Finding]:
    """The matrix whose spectrum is nearest to that of noise."""
    known = whole[whole["ks_z"].notna()]
    if len(known) < 2:
        return
    first = known.loc[known["ks_z"].idxmin()]
    alike = int((known["ks_z"] < 3).sum())
    verdict = (
        f"{alike} of {len(known)} whole matrices cannot be told from noise by it."
        if alike
        else "None of the whole matrices passes for noise."
    )
    yield Finding(
        LENS,
        f"The spectrum nearest to a random matrix's is that of {first['matrix']}. {verdict}",
        value=float(first["ks"]),
        expected=float(first["ks_chance"]),
        evidence=f"Kolmogorov-Smirnov distance from the Marchenko-Pastur law, z = {first['ks_z']:.0f}. {NOISE}",
        reference=LAW,
        weight=0.3,
    )


def _energy(whole: pd.DataFrame, init: str) -> Iterator[Finding]:
    """How far training moved the size of the attention matrices."""
    known = whole[whole["kind"].isin(WHOLE) & (whole["energy_ratio"] > 0)]
    if known.empty:
        return
    means = np.exp(np.log(known["energy_ratio"]).groupby(known["kind"], sort=False).mean())
    named = ", ".join(f"{kind} {ratio:.3g}" for kind, ratio in means.items())
    largest = means.loc[np.log(means).abs().idxmax()]
    yield Finding(
        LENS,
        f"Squared norms against initialisation, geometric mean over layers: {named}.",
        value=float(largest),
        expected=1.0,
        evidence=f"Sum of squared singular values over its expectation. Initialisation: {init}.",
        figure="Spectra by layer",
        weight=0.3,
    )


def _effective_rank(whole: pd.DataFrame) -> Iterator[Finding]:
    """The matrix that uses the smallest part of the dimensions it could."""
    known = whole[whole["effective_rank"].notna()]
    if known.empty:
        return
    ratio = known["effective_rank"] / known["effective_rank_chance"]
    first = known.loc[ratio.idxmin()]
    yield Finding(
        LENS,
        f"{first['matrix']} uses its dimensions least evenly: effective rank {first['effective_rank']:.0f}, "
        f"{first['effective_rank_chance']:.0f} for a random matrix of its shape.",
        value=float(first["effective_rank"]),
        expected=float(first["effective_rank_chance"]),
        evidence=f"Exponential of the entropy of the singular values, z = {first['effective_rank_z']:.0f}.",
        reference="Roy and Vetterli (2007), The effective rank",
        figure="Spectra by layer",
        weight=0.4,
    )


def _degenerate(rows: pd.DataFrame) -> Iterator[Finding]:
    """Matrices that are zero, or singular."""
    possible = np.minimum(rows["rows"], rows["columns"])
    plain = ~rows["kind"].isin(["W_QK", "W_OV"])
    for chosen, words in (
        (rows["numerical_rank"] == 0, "zero"),
        (plain & (rows["numerical_rank"] > 0) & (rows["numerical_rank"] < possible), "singular"),
    ):
        labels = rows.loc[chosen, "matrix"].tolist()
        if labels:
            more = f" and {len(labels) - 5} more" if len(labels) > 5 else ""
            yield Finding(
                LENS,
                f"{len(labels)} {'matrices are' if len(labels) > 1 else 'matrix is'} {words}: "
                f"{', '.join(labels[:5])}{more}.",
                value=float(len(labels)),
                expected=0.0,
                evidence="A random matrix has full rank.",
                weight=0.5,
            )
