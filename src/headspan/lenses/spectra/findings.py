"""What the spectra of a model's weights say: outliers, size, and whether queries match keys like themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import xarray as xr

from headspan.finding import Finding, percent
from headspan.lenses.spectra.kinds import MLP, PRODUCTS, TABLES, WHOLE
from headspan.result import Result

LENS = "spectra"
LEVEL = 0.01
NOISE = "Null: independent normal entries with the scale of the matrix's own middle half."
HAAR = "Null: W_Q and W_K keep their singular values and get independent random singular vectors."
LAW = "Marchenko and Pastur (1967); Johnstone (2001), On the distribution of the largest eigenvalue"


def findings(result: Result) -> Iterator[Finding]:
    """Alignment of queries and keys, spikes, the matrix closest to noise, size since initialization, zero matrices."""
    rows = result.table("matrices")
    rows = rows.assign(name=[_name(row) for row in rows.to_dict("records")])
    whole = rows[rows["matrix"].isin((*WHOLE, *MLP, *TABLES))]
    if "alignment" in result:
        node = result.dataset("alignment")
        yield from _alignment(node.sel(null="factors"))
        yield from _symmetry(node)
    yield from _spikes(whole)
    yield from _closest_to_noise(whole)
    yield from _energy(whole, str(result.attrs["init"]))
    yield from _effective_rank(whole)
    yield from _degenerate(rows, float(result.attrs.get("roundoff", 0.0)))


def _name(row: dict[str, object]) -> str:
    """A matrix by its place and kind: `L0 W_Q`, `L1H2 W_QK`, `W_E`."""
    heads = [row[axis] for axis in ("head", "kv_head") if isinstance(row.get(axis), str)]
    layer = row.get("layer")
    place = str(heads[0]) if heads else "" if pd.isna(layer) else f"L{layer}"
    return f"{place} {row['matrix']}".strip()


def _alignment(node: xr.Dataset) -> Iterator[Finding]:
    """How many heads match like to like, how many like to unlike, and which most."""
    z, q = node["trace_z"].values, node["trace_q"].values
    tested = int(np.isfinite(z).sum())
    if tested == 0:
        return
    like, unlike = int(((q < LEVEL) & (z > 0)).sum()), int(((q < LEVEL) & (z < 0)).sum())
    yield Finding(
        LENS,
        f"{like} of {tested} heads match queries to keys of the same direction (positive trace of W_QK, q < {LEVEL:g}),"
        f" {unlike or 'none'} to keys of the opposite direction.",
        value=float(like + unlike),
        expected=0.0,
        evidence=f"False-discovery rate {LEVEL:g}. {HAAR}",
        figure="Base alignment",
        weight=0.6 if like + unlike else 0.1,
    )
    for sign, words in ((1, "the same"), (-1, "the opposite")):
        places = np.flatnonzero((q < LEVEL) & (sign * z > 0))
        if len(places):
            yield _extreme(node.isel(head=places[np.argsort(-sign * z[places], kind="stable")]), words)


def _extreme(heads: xr.Dataset, words: str) -> Finding:
    """The heads furthest out on one side, which are the first."""
    named = [f"{label} ({float(heads['trace_share'].sel(head=label)):+.2f})" for label in heads["head"].values[:3]]
    first = heads.isel(head=0)
    sd, z = float(first["trace_null_sd"]), float(first["trace_z"])
    return Finding(
        LENS,
        f"Queries match keys of {words} direction most in {', '.join(named)}; in brackets the trace of W_QK as a share "
        "of its nuclear norm, the largest possible trace.",
        value=float(first["trace"]),
        expected=0.0,
        p=_known(float(first["trace_p"])),
        q=_known(float(first["trace_q"])),
        evidence=f"Trace of {first['head'].item()}; expected 0 with standard deviation {sd:.3g}, z = {z:+.1f}. {HAAR}",
        figure="Base alignment",
        weight=0.55,
    )


def _known(p: float) -> float | None:
    """A p-value that a float can hold; far beyond, the z-score or the edge in the evidence says enough."""
    return p if p > 0 else None


def _symmetry(node: xr.Dataset) -> Iterator[Finding]:
    """Whether W_QK is more symmetric than expected, over all heads."""
    share = node["symmetric_share"].values[np.isfinite(node["symmetric_share"].values)]
    if len(share) == 0:
        return
    null, sd = float(node["symmetric_share_null"]), float(node["symmetric_share_null_sd"])
    beyond = int((share > null + 3 * sd).sum()), int((share < null - 3 * sd).sum())
    yield Finding(
        LENS,
        f"The symmetric part holds {percent(share.mean(), 1)} of the squared norm of W_QK on average (expected "
        f"{percent(null, 1)}): more than expected in {beyond[0]} of {len(share)} heads, less in {beyond[1] or 'none'}.",
        value=float(share.mean()),
        expected=null,
        evidence=f"More than 3 standard deviations ({sd:.2g}) from the mean. Null: W_QK keeps its singular values.",
        figure="Symmetric part of W_QK",
        weight=0.35,
    )


def _spikes(whole: pd.DataFrame) -> Iterator[Finding]:
    """The matrix with the most singular values beyond the edge of a random one, where its bulk is not all zeros."""
    known = whole[whole["spikes"].notna() & (whole["spikes"] > 0) & (whole["edge"] > 0)]
    if known.empty:
        return
    first = known.loc[known["spikes"].idxmax()]
    most, tested = int(min(first["rows"], first["columns"])), int(whole["largest_p"].notna().sum())
    yield Finding(
        LENS,
        f"{first['name']} has the most outliers: {first['spikes']:.0f} of {most} singular values exceed the largest of "
        f"a random matrix, the first of them {first['largest'] / first['edge']:.1f} times its edge.",
        value=float(first["spikes"]),
        expected=float(first["spikes_null"]),
        p=_known(min(1.0, tested * float(first["largest_p"]))),
        evidence=f"p (Tracy-Widom) of the largest value, {first['largest']:.3g}, Bonferroni-corrected for {tested} "
        f"matrices; edge {first['edge']:.3g}. {NOISE}",
        reference=LAW,
        weight=0.5,
    )


def _closest_to_noise(whole: pd.DataFrame) -> Iterator[Finding]:
    """The matrix whose spectrum is closest to that of noise."""
    known = whole[whole["ks_z"].notna()]
    if len(known) < 2:
        return
    first = known.loc[known["ks_z"].idxmin()]
    alike = int((known["ks_z"] < 3).sum())
    verdict = (
        f"{alike} of {len(known)} whole matrices do not differ significantly from noise (z < 3)."
        if alike
        else f"All {len(known)} whole matrices differ from noise (z > 3)."
    )
    yield Finding(
        LENS,
        f"{first['name']} has the spectrum closest to a random matrix: Kolmogorov-Smirnov distance {first['ks']:.3f}, "
        f"expected {first['ks_null']:.3f}. {verdict}",
        value=float(first["ks"]),
        expected=float(first["ks_null"]),
        evidence=f"Distance from the Marchenko-Pastur law, z = {first['ks_z']:.0f}. {NOISE}",
        reference=LAW,
        weight=0.3,
    )


def _energy(whole: pd.DataFrame, init: str) -> Iterator[Finding]:
    """How far training moved the size of the attention matrices."""
    known = whole[whole["matrix"].isin(WHOLE) & (whole["energy_ratio"] > 0)]
    if known.empty:
        return
    means = np.exp(np.log(known["energy_ratio"]).groupby(known["matrix"], sort=False).mean())
    named = ", ".join(f"{kind} {ratio:.3g}" for kind, ratio in means.items())
    largest = means.loc[np.log(means).abs().idxmax()]
    yield Finding(
        LENS,
        f"Squared norms relative to initialization, geometric mean over layers: {named}.",
        value=float(largest),
        expected=1.0,
        evidence=f"Sum of squared singular values over its expectation. Initialization: {init}.",
        figure="Spectra by layer",
        weight=0.3,
    )


def _effective_rank(whole: pd.DataFrame) -> Iterator[Finding]:
    """The matrix that uses the smallest part of the dimensions it could."""
    known = whole[whole["effective_rank"].notna()]
    if known.empty:
        return
    first = known.loc[(known["effective_rank"] / known["effective_rank_null"]).idxmin()]
    yield Finding(
        LENS,
        f"{first['name']} has the lowest effective rank for its shape: {first['effective_rank']:.0f}, where a random "
        f"matrix has {first['effective_rank_null']:.0f}.",
        value=float(first["effective_rank"]),
        expected=float(first["effective_rank_null"]),
        evidence=f"Exponential of the entropy of the singular values, z = {first['effective_rank_z']:.0f}.",
        reference="Roy and Vetterli (2007), The effective rank",
        figure="Spectra by layer",
        weight=0.4,
    )


def _degenerate(rows: pd.DataFrame, roundoff: float) -> Iterator[Finding]:
    """Matrices that are zero, or below the rank that their shape and the precision of a random matrix allow.

    Of a random k x k matrix about 4 u k / pi singular values lie below the noise of a format with roundoff u.
    """
    m, n = rows["rows"], rows["columns"]
    blurred = np.abs(np.sqrt(m) - np.sqrt(n)) < 2 * roundoff * (np.sqrt(m) + np.sqrt(n))
    possible = np.minimum(m, n) * (1 - np.where(blurred, min(1.0, 8 * roundoff / np.pi), 0.0))
    plain = ~rows["matrix"].isin(PRODUCTS)
    for chosen, words in (
        (rows["numerical_rank"] == 0, "zero"),
        (plain & (rows["numerical_rank"] > 0) & (rows["numerical_rank"] < possible), "singular"),
    ):
        labels = rows.loc[chosen, "name"].tolist()
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
