"""What the position and token tables, and the matrices beside them, say about a model."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import xarray as xr

from headspan.dims import LAYER
from headspan.finding import Finding, percent, significance
from headspan.lenses.positions.schema import SOURCE, table_width
from headspan.result import Result

LENS = "positions"
LEVEL = 0.001
LEADING = 5
TURNED = "Null: a random rotation of the stream; trained weights are anisotropic, so most numbers lie far outside it."
NAMES = {"Q": "W_Q", "K": "W_K", "V": "W_V", "O": "W_O", "in": "The MLP's input", "gate": "The MLP's gate"}
NAMES |= {"up": "The MLP's up matrix", "out": "The MLP's output"}
WRITES = ("O", "out")
TABLES = {"P": "position", "E": "token"}


def findings(result: Result) -> Iterator[Finding]:
    """Orthogonality, mean rows, rank, sparsity, sinusoids, layers, logits and rows, as far as they are defined."""
    data = result.dataset()
    parts = (_capture, _mean_rows, _ranks, _sparsity, _coordinates, _gains, _waves, _layers, _logits, _rows, _left_out)
    for part in parts:
        yield from part(data)


def _defined(p: float) -> float | None:
    return p if math.isfinite(p) else None


def _capture(data: xr.Dataset) -> Iterator[Finding]:
    """Whether the top position directions lie among the last token directions."""
    if "decile_mass" not in data:
        return
    here = data.sel(centering="stored", k_choice="given")
    mass, expected, z, p = (here[f"decile_mass{part}"].values for part in ("", "_null", "_z", "_p"))
    if not np.isfinite(mass[-1]):
        return
    yield Finding(
        LENS,
        f"The last tenth of the token directions (least energy) holds {mass[-1]:.1f} of the top "
        f"{int(here['capture_k'])} position directions (expected {expected[-1]:.1f}, z = {z[-1]:.0f}, "
        f"{significance('p', p[-1])}); the first tenth holds {mass[0]:.1f}.",
        value=float(mass[-1]),
        expected=float(expected[-1]),
        p=_defined(float(p[-1])),
        evidence=f"z = {z[0]:.0f} for the first tenth. {TURNED}",
        reference=SOURCE,
        figure="Capture",
        weight=0.7 if p[-1] < LEVEL else 0.2,
    )


def _mean_rows(data: xr.Dataset) -> Iterator[Finding]:
    """What becomes of the mass at low indices without the mean rows."""
    if "mean_cosine" not in data or not math.isfinite(float(data["mean_cosine"])):
        return
    low = data["decile_mass"].sel(k_choice="energy_90").isel(decile=0)
    stored, centered = float(low.sel(centering="stored")), float(low.sel(centering="centered"))
    expected = float(data["decile_mass_null"].sel(k_choice="energy_90", centering="stored")[0])
    cosine, p, sd = (float(data[f"mean_cosine{part}"]) for part in ("", "_p", "_null_sd"))
    yield Finding(
        LENS,
        f"The mean rows of both tables have a cosine of {cosine:.2f} (expected 0 ± {sd:.3f}, {significance('p', p)}). "
        "Without them, the mass of the main position directions on the first tenth of the token directions goes from "
        f"{stored:.2f} to {centered:.2f}.",
        value=cosine,
        expected=0.0,
        p=_defined(p),
        evidence=(
            f"Main directions hold 90 % of the position table's energy; their expected mass on the first tenth is "
            f"{expected:.2f}. Null: random directions."
        ),
        figure="Overlap of the tables",
        weight=0.5 if p < LEVEL else 0.1,
    )


def _ranks(data: xr.Dataset) -> Iterator[Finding]:
    """How many directions hold 90 % of each table."""
    for name in data["table"].values:
        here = data.sel(table=name, centering="stored")
        value, expected = float(here["rank_90"]), float(here["rank_90_null"])
        yield Finding(
            LENS,
            f"{value:g} of {table_width(data)} directions hold 90 % of the {TABLES[str(name)]} table's energy "
            f"(random table: {expected:g}); its mean row holds {percent(float(here['mean_share']), 1)}.",
            value=value,
            expected=expected,
            evidence=f"Participation ratio {float(here['participation_ratio']):.1f}. "
            "Null: independent normal entries (Marchenko-Pastur law).",
            weight=0.45 if value < expected / 2 else 0.25,
        )


def _sparsity(data: xr.Dataset) -> Iterator[Finding]:
    """Whether the leading position directions use few coordinates."""
    if "sparsity_coordinates_90" not in data:
        return
    here = data.sel(centering="stored")
    count, expected = here["sparsity_coordinates_90"].values[:LEADING], float(here["sparsity_coordinates_90_null"][0])
    p = float(np.nanmax(here["sparsity_coordinates_90_p"].values[:LEADING]))
    middle = float(np.nanmedian(count))
    sparse = p < LEVEL and middle < expected / 2
    yield Finding(
        LENS,
        f"The leading position directions are {'sparse' if sparse else 'not sparse'}: {middle:g} of "
        f"{table_width(data)} coordinates hold 90 % of a direction (random direction: {expected:.0f}, "
        f"{significance('p', p)}).",
        value=middle,
        expected=expected,
        p=_defined(p),
        evidence=f"Median of the first {len(count)} directions, and their largest p. Null: random directions.",
        reference=SOURCE,
        figure="Position directions in the stream",
        weight=0.65 if sparse else 0.3,
    )


def _coordinates(data: xr.Dataset) -> Iterator[Finding]:
    """Whether tokens avoid the coordinates that positions use."""
    if "coordinate_energy" not in data or not math.isfinite(float(data["coordinate_energy"].values[0])):
        return
    here = data.sel(centering="stored")
    energy, expected, p, z = (float(here[f"coordinate_energy{part}"]) for part in ("", "_null", "_p", "_z"))
    avoid = p < LEVEL and z < 0
    yield Finding(
        LENS,
        f"Token embeddings {'avoid' if avoid else 'do not avoid'} the {int(here['coordinate_count'])} coordinates that "
        f"position directions use: {percent(energy, 1)} of their energy is there (expected {percent(expected, 1)}, "
        f"{significance('p', p)}).",
        value=energy,
        expected=expected,
        p=_defined(p),
        evidence=f"z = {z:.1f}. Null: random sets of as many coordinates.",
        figure="Position directions in the stream",
        weight=0.5 if avoid else 0.2,
    )


def _gains(data: xr.Dataset) -> Iterator[Finding]:
    """Whether the norm of the first layer turns down the coordinates that carry positions."""
    if "gain_auc" not in data or not float(data["gain_auc_q"].isel({LAYER: 0})) < LEVEL:
        return
    first, count = data.isel({LAYER: 0}), int(data["coordinate_count"].sel(centering="stored"))
    auc, q = float(first["gain_auc"]), float(first["gain_auc_q"])
    same = data["gain_auc"].where((data["gain_auc_q"] < LEVEL) & ((data["gain_auc"] - 0.5) * (auc - 0.5) > 0))
    yield Finding(
        LENS,
        f"The norm of layer {int(first[LAYER])} {'amplifies' if auc > 0.5 else 'turns down'} the {count} coordinates "
        f"that carry positions: median gain {float(first['gain_carrying']):.2f} against "
        f"{float(first['gain_other']):.2f} (AUC {auc:.2f}, expected 0.50, {significance('q', q)}).",
        value=auc,
        expected=0.5,
        p=float(first["gain_auc_p"]),
        q=q,
        evidence=f"So do {int(same.notnull().sum())} of {data.sizes[LAYER]} layers. Null: a random set of coordinates.",
        weight=0.4,
        figure="Gains and positions",
    )


def _waves(data: xr.Dataset) -> Iterator[Finding]:
    """Whether position directions are sinusoids over positions."""
    if "wave_r2" not in data:
        return
    here = data.sel(centering="stored")
    r2, frequency = here["wave_r2"].values[:LEADING], here["wave_frequency"].values[:LEADING]
    best, expected = int(np.nanargmax(r2)), float(here["wave_r2_null"].values[0])
    p = float(np.nanmax(here["wave_r2_p"].values[:LEADING]))
    yield Finding(
        LENS,
        f"One sinusoid over positions explains {percent(np.nanmin(r2))} to {percent(np.nanmax(r2))} of the first "
        f"{len(r2)} position directions (white noise: {percent(expected)}, {significance('p', p)}); the best fit has "
        f"{frequency[best]:g} cycles per context.",
        value=float(np.nanmedian(r2)),
        expected=expected,
        p=_defined(p),
        evidence=(
            f"Median R^2 of the first {len(r2)}, and their largest p. {percent(float(here['offset_share']))} of the "
            "products of different positions depends on their offset alone. "
            "Null: white noise searched over the same frequencies."
        ),
        figure="Position directions over positions",
        weight=0.4,
    )


def _layers(data: xr.Dataset) -> Iterator[Finding]:
    """For each table, the matrix that shares most energy with it and the one that shares least."""
    ratio = (data["energy_alignment"] / data["energy_alignment_null"]).transpose("table", LAYER, "matrix")
    for name in data["table"].values:
        values = ratio.sel(table=name).values
        if not np.isfinite(values).any():
            continue
        places = [np.unravel_index(find(values), values.shape) for find in (np.nanargmax, np.nanargmin)]
        matrices = [str(data["matrix"].values[matrix]) for _, matrix in places]
        layers = [data[LAYER].values[layer] for layer, _ in places]
        most, least = (values[place] for place in places)
        top = data.isel({LAYER: int(places[0][0]), "matrix": int(places[0][1])}).sel(table=name)
        z, p = (float(top[f"energy_alignment{part}"]) for part in ("_z", "_p"))
        tested = int(np.isfinite(values).sum())
        p = min(1.0, tested * p)
        verb = "writes to" if matrices[0] in WRITES else "reads"
        yield Finding(
            LENS,
            f"{NAMES[matrices[0]]} of layer {layers[0]} {verb} the {TABLES[str(name)]} subspace {most:.1f} times as "
            f"much as a random matrix would (z = {z:.0f}, {significance('p', p)}), the most of all matrices; "
            f"{NAMES[matrices[1]].replace('The', 'the')} of layer {layers[1]} does the least ({least:.1f} times).",
            value=float(top["energy_alignment"]),
            expected=float(top["energy_alignment_null"]),
            p=_defined(p),
            evidence=f"Overlap of singular directions weighted by both spectra; p is Bonferroni-corrected for {tested} "
            f"matrices. {TURNED}",
            reference=SOURCE,
            figure="Layers along the tables",
            weight=0.5,
        )


def _percent(share: float, error: float) -> str:
    """A share with its standard error, where that is known."""
    return percent(share) if np.isnan(error) else f"{100 * share:.0f} ± {100 * error:.1f} %"


def _logits(data: xr.Dataset) -> Iterator[Finding]:
    """Heads of layer 0 that attend by position alone."""
    if "logit_share" not in data:
        return
    term = "position-position"
    first = data.isel(head=data["head_layer"].values == 0)
    share, expected = first["logit_share"].sel(term=term).values, float(data["logit_share_null"].sel(term=term))
    if not np.isfinite(share).any():
        return
    order = np.argsort(-np.nan_to_num(share, nan=-np.inf), kind="stable")[:3]
    error = first["logit_share_se"].sel(term=term).values if "logit_share_se" in first else np.full(len(share), np.nan)
    named = ", ".join(f"{first['head'].values[place]} ({_percent(share[place], error[place])})" for place in order)
    over_half = int((share > 0.5).sum())
    yield Finding(
        LENS,
        f"In layer 0, {over_half} of {len(share)} heads attend mainly by position: position-position terms make most "
        f"of the variance of their logits. The largest shares are {named} (expected {percent(expected)}).",
        value=float(share[order[0]]),
        expected=expected,
        evidence=(
            f"Variance within a query, norms applied, {data.attrs['samples']} queries and keys. "
            "Null: a head of normal weights that reads the same."
        ),
        figure="Logits of layer 0",
        weight=0.6 if over_half else 0.3,
    )


def _rows(data: xr.Dataset) -> Iterator[Finding]:
    """Whether token embeddings are isotropic."""
    if "E" not in data["table"].values:
        return
    here = data.sel(table="E", centering="stored")
    mean, sd, expected = (float(here[name]) for name in ("cosine_mean", "cosine_sd", "cosine_sd_null"))
    norms, norms_null = (float(here[f"row_norm_variation{part}"]) for part in ("", "_null"))
    if not math.isfinite(mean):
        return
    uneven = abs(float(here["cosine_mean_z"])) > 5 or sd > 1.2 * expected
    yield Finding(
        LENS,
        f"Token embeddings are {'not uniformly spread' if uneven else 'spread like random vectors'}: mean cosine "
        f"{mean:.3f} (isotropic: 0), standard deviation {sd:.3f} ({expected:.3f}); norms vary by {percent(norms)} "
        f"({percent(norms_null, 1)}).",
        value=sd,
        expected=expected,
        evidence="All pairs of rows. Null: independent normal rows, in brackets.",
        figure="Angles between rows",
        weight=0.25,
    )


def _left_out(data: xr.Dataset) -> Iterator[Finding]:
    """One remark about what this checkpoint has no tensors for."""
    lines = [line for line in data.attrs["left_out"].split("; ") if line]
    if lines:
        yield Finding(LENS, f"Left out: {'; '.join(lines)}.", value=float(len(lines)), weight=0.0)
