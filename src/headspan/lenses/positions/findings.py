"""What the position and token tables, and the matrices beside them, say about a model."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import xarray as xr

from headspan.dims import LAYER, HeadLabel
from headspan.finding import Finding

LENS = "positions"
LEVEL = 0.001
TURNED = "Null: a random rotation of the stream; trained weights are anisotropic, so most numbers lie far outside it."
SOURCE = "Insights into GPT-2's positional encodings (2024), a web post whose questions these are"
NAMES = {"Q": "W_Q", "K": "W_K", "V": "W_V", "O": "W_O", "in": "the MLP's input", "gate": "the MLP's gate"}
NAMES |= {"up": "the MLP's up matrix", "out": "the MLP's output"}
TABLES = {"P": "position", "E": "token"}


def findings(result: xr.Dataset) -> list[Finding]:
    """Orthogonality, the mean rows, rank, sparsity, sinusoids, layers, logits and rows, as far as they are defined."""
    found = [*_capture(result), *_mean_rows(result), *_ranks(result), *_sparsity(result), *_coordinates(result)]
    found += [*_waves(result), *_layers(result), *_logits(result), *_rows(result), *_left_out(result)]
    return found


def _p(log_p: float) -> float | None:
    return math.exp(log_p) if log_p <= 0 else None


def _capture(result: xr.Dataset) -> Iterator[Finding]:
    """Whether the top position directions lie among the last token directions."""
    if "decile" not in result:
        return
    here = result.sel(centring="stored", k_choice="given")
    mass, chance, log_p = (here[f"decile{part}"].values for part in ("", "_chance", "_log_p"))
    if not np.isfinite(mass[-1]):
        return
    k = int(here["capture_k"])
    yield Finding(
        LENS,
        f"Of the top {k} position directions' mass, {mass[-1]:.1f} lies on the last tenth of the token directions and "
        f"{mass[0]:.1f} on the first, where chance gives {chance[-1]:.1f}.",
        value=float(mass[-1]),
        expected=float(chance[-1]),
        p=_p(float(log_p[-1])),
        evidence=f"z = {float(here['decile_z'][-1]):.0f} and {float(here['decile_z'][0]):.0f}. {TURNED}",
        reference=SOURCE,
        figure="Capture",
        weight=0.7 if log_p[-1] < math.log(LEVEL) else 0.2,
    )


def _mean_rows(result: xr.Dataset) -> Iterator[Finding]:
    """What becomes of the mass at low indices without the mean rows."""
    if "mean_cosine" not in result or not math.isfinite(float(result["mean_cosine"])):
        return
    low = result["decile"].sel(k_choice="energy_90").isel(decile=0)
    stored, centred = float(low.sel(centring="stored")), float(low.sel(centring="centred"))
    chance = float(result["decile_chance"].sel(k_choice="energy_90", centring="stored")[0])
    cosine, log_p = float(result["mean_cosine"]), float(result["mean_cosine_log_p"])
    yield Finding(
        LENS,
        f"The mean rows of both tables have a cosine of {cosine:.2f}; without them, the mass of the main position "
        f"directions on the first tenth of the token directions goes from {stored:.2f} to {centred:.2f}.",
        value=cosine,
        expected=0.0,
        p=_p(log_p),
        evidence=(
            f"Directions that hold 90 % of the position table; their chance mass is {chance:.2f}. By chance the cosine "
            f"has a standard deviation of {float(result['mean_cosine_sd_chance']):.3f} (null: random directions)."
        ),
        figure="Overlap of the tables",
        weight=0.5 if log_p < math.log(LEVEL) else 0.1,
    )


def _ranks(result: xr.Dataset) -> Iterator[Finding]:
    """How many directions hold 90 % of each table."""
    for name in result["table"].values:
        here = result.sel(table=name, centring="stored")
        value, chance = float(here["rank_90"]), float(here["rank_90_chance"])
        yield Finding(
            LENS,
            f"{value:g} directions hold 90 % of the {TABLES[str(name)]} table's energy, where a random one needs "
            f"{chance:g}; {float(here['mean_share']):.1%} of it is its mean row.",
            value=value,
            expected=chance,
            evidence=f"Participation ratio {float(here['participation_ratio']):.1f} of {result.attrs['d_model']}. "
            "Null: independent normal entries (Marchenko-Pastur law).",
            weight=0.45 if value < chance / 2 else 0.25,
        )


def _sparsity(result: xr.Dataset) -> Iterator[Finding]:
    """Whether the leading position directions use few coordinates."""
    if "sparsity_coordinates_90" not in result:
        return
    here = result.sel(centring="stored")
    count, chance = here["sparsity_coordinates_90"].values[:5], float(here["sparsity_coordinates_90_chance"][0])
    p_value = float(np.nanmax(here["sparsity_coordinates_90_p_value"].values[:5]))
    middle = float(np.nanmedian(count))
    kind = "sparse" if p_value < LEVEL and middle < chance / 2 else "not sparse"
    yield Finding(
        LENS,
        f"The position table's first directions are {kind} in the stream: {middle:g} of {result.attrs['d_model']} "
        f"coordinates hold 90 % of a direction (random: {chance:.0f}).",
        value=middle,
        expected=chance,
        p=p_value,
        evidence=f"Median of the first {len(count)} directions; the largest p-value of them. Null: random directions.",
        reference=SOURCE,
        figure="Position directions in the stream",
        weight=0.65 if kind == "sparse" else 0.3,
    )


def _coordinates(result: xr.Dataset) -> Iterator[Finding]:
    """Whether tokens stay off the coordinates that positions use."""
    if "coordinate_energy" not in result or not math.isfinite(float(result["coordinate_energy"].values[0])):
        return
    here = result.sel(centring="stored")
    size, energy, chance = (
        int(here["coordinate_chosen"].sum()),
        float(here["coordinate_energy"]),
        "coordinate_energy_chance",
    )
    p_value, z = float(here["coordinate_energy_p_value"]), float(here["coordinate_energy_z"])
    verb = "keep off" if z < 0 else "do not keep off"
    statement = (
        f"Tokens {verb if p_value < LEVEL else 'do not keep off'} the {size} coordinates that position directions use"
    )
    yield Finding(
        LENS,
        f"{statement}: {energy:.1%} of the token table's energy is there.",
        value=energy,
        expected=float(here[chance]),
        p=p_value,
        evidence=f"z = {z:.1f}. Null: random sets of as many coordinates.",
        figure="Position directions in the stream",
        weight=0.5 if p_value < LEVEL and z < 0 else 0.2,
    )


def _waves(result: xr.Dataset) -> Iterator[Finding]:
    """Whether position directions are sinusoids over positions."""
    if "wave_r2" not in result:
        return
    here = result.sel(centring="stored")
    r2, frequency = here["wave_r2"].values[:5], here["wave_frequency"].values[:5]
    best = int(np.nanargmax(r2))
    yield Finding(
        LENS,
        f"Over positions, one sinusoid explains {np.nanmin(r2):.0%} to {np.nanmax(r2):.0%} of the first {len(r2)} "
        f"directions; the best fit has {frequency[best]:g} cycles per context.",
        value=float(np.nanmedian(r2)),
        expected=float(here["wave_r2_chance"].values[0]),
        p=float(np.nanmax(here["wave_r2_p_value"].values[:5])),
        evidence=(
            f"Median R^2 of the first {len(r2)}. {float(here['offset_share']):.0%} of the products of different "
            "positions depends on their distance alone. Null: white noise searched over the same frequencies."
        ),
        figure="Position directions over positions",
        weight=0.4,
    )


def _layers(result: xr.Dataset) -> Iterator[Finding]:
    """For each table, the matrix that lies along it most and the one that avoids it most."""
    ratio = (result["energy_alignment"] / result["energy_alignment_chance"]).transpose("table", LAYER, "matrix")
    for name in result["table"].values:
        values = ratio.sel(table=name).values
        if not np.isfinite(values).any():
            continue
        places = [np.unravel_index(find(values), values.shape) for find in (np.nanargmax, np.nanargmin)]
        named = [
            f"{NAMES[str(result['matrix'].values[matrix])]} of layer {result[LAYER].values[layer]} "
            f"({values[layer, matrix]:.1f} times chance)"
            for layer, matrix in places
        ]
        top = result.isel({LAYER: int(places[0][0]), "matrix": int(places[0][1])}).sel(table=name)
        yield Finding(
            LENS,
            f"Along the {TABLES[str(name)]} table lies most {named[0]}, least {named[1]}.",
            value=float(top["energy_alignment"]),
            expected=float(top["energy_alignment_chance"]),
            p=_p(float(top["energy_alignment_log_p"])),
            evidence=f"Overlap of singular directions weighted by both spectra, "
            f"z = {float(top['energy_alignment_z']):.0f}. {TURNED}",
            reference=SOURCE,
            figure="Layers along the tables",
            weight=0.5,
        )


def _logits(result: xr.Dataset) -> Iterator[Finding]:
    """Heads of layer 0 that look at positions alone, and those that match tokens."""
    if "logit_share" not in result:
        return
    term = "position-position"
    share, chance = result["logit_share"].sel(term=term).values, float(result["logit_share_chance"].sel(term=term))
    if not np.isfinite(share).any():
        return
    order = np.argsort(-np.nan_to_num(share, nan=-np.inf), kind="stable")[:3]
    named = ", ".join(f"{HeadLabel(0, int(head))} ({share[head]:.0%})" for head in order)
    over_half = int((share > 0.5).sum())
    yield Finding(
        LENS,
        f"In layer 0, {over_half} of {len(share)} heads attend mainly by position alone; the strongest are {named}.",
        value=float(share[order[0]]),
        expected=chance,
        evidence=(
            f"Share of the logits' variance within a query from position-position terms, norms applied, "
            f"{result.attrs['samples']} queries and keys. Null: a head of normal weights that reads the same."
        ),
        figure="Logits of layer 0",
        weight=0.6 if over_half else 0.3,
    )


def _rows(result: xr.Dataset) -> Iterator[Finding]:
    """Whether token rows are spread over a sphere."""
    if "E" not in result["table"].values:
        return
    here = result.sel(table="E", centring="stored")
    mean, spread, by_chance = (float(here[name]) for name in ("cosine_mean", "cosine_sd", "cosine_sd_chance"))
    norms, norms_chance = (float(here[f"row_norm_variation{part}"]) for part in ("", "_chance"))
    if not math.isfinite(mean):
        return
    like = "not like" if abs(float(here["cosine_mean_z"])) > 5 or spread > 1.2 * by_chance else "like"
    yield Finding(
        LENS,
        f"Token rows lie {like} random points on a sphere: cosines {mean:.3f} ± {spread:.3f} (random: 0 ± "
        f"{by_chance:.3f}), norms vary by {norms:.0%} ({norms_chance:.1%}).",
        value=spread,
        expected=by_chance,
        evidence="All pairs of rows. Null: independent normal rows.",
        figure="Angles between rows",
        weight=0.25,
    )


def _left_out(result: xr.Dataset) -> Iterator[Finding]:
    """One remark about what this checkpoint has no tensors for."""
    lines = [line for line in result.attrs["left_out"].split("; ") if line]
    if lines:
        yield Finding(LENS, f"Left out: {'; '.join(lines)}.", value=float(len(lines)), weight=0.0)
