"""Document 002, positions and tokens in one stream: its seven figures and what it leaves unexplained.

Figures of the position table are drawn from the first model that has one; those that need a token table too from the
first that has both. Thresholds are those of the claims ledger.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from headspan.errors import UnsupportedModel
from headspan.finding import percent
from headspan.ledger.reproduction.exhibit import AtHand, Exhibits, Outcome, Shown, graded
from headspan.lenses.model import Model
from headspan.result import Result

EXHIBITS = Exhibits("002")
BLUR = 8.0
"""Of drawn overlaps, in directions; the document blurs its figures too."""


def _positions(at_hand: AtHand, *parts: str) -> tuple[Result, xr.Dataset, Model]:
    """Of the first model that has these tables and parts."""

    def lacks(model: Model) -> str | None:
        missing = [part for part in parts if part not in model.stored().parts]
        return f"it lacks {', '.join(missing)}" if missing else None

    model = at_hand.first("positions", lacks)
    result = at_hand.result("positions", model, smooth=BLUR)
    data = result.dataset()
    usual = {"centering": "stored", "k_choice": "given"}
    return result, data.sel({name: value for name, value in usual.items() if name in data.dims}), model


def _pick(result: Result, *names: str) -> dict[str, go.Figure]:
    drawn = result.figures
    return {name: drawn[name] for name in names if name in drawn}


@EXHIBITS.add(
    "Singular values",
    sentence="The position table has low rank, about 30 directions carry it; the token table has high rank.",
    rule="Holds if at most a tenth of the directions carry 90 % of the positions and more than half carry 90 % of the "
    "tokens; in part if one of the two.",
    command="headspan positions {model} --figures DIR",
    claims=("S2.5", "S2.6"),
)
def spectra(at_hand: AtHand) -> Shown:
    """Directions for 90 % of the energy, beside those of a random table."""
    try:
        result, data, model = _positions(at_hand, "W_pos", "W_E")
        tables = ["P", "E"]
    except UnsupportedModel:
        result, data, model = _positions(at_hand, "W_pos")
        tables = ["P"]
    share = {name: float(data["rank_90"].sel(table=name)) / int(result.attrs["d_model"]) for name in tables}
    facts = [share["P"] <= 0.1, *([share["E"] > 0.5] if "E" in share else [])]
    rank, null = data["rank_90"], data["rank_90_null"]
    told = [
        f"{word} {float(rank.sel(table=name)):g} (random table {float(null.sel(table=name)):g})"
        for name, word in (("P", "positions"), ("E", "tokens"))
        if name in share
    ]
    number = f"Directions with 90 % of the energy, of {int(result.attrs['d_model'])}: {', '.join(told)}."
    outcome = graded(facts) if len(facts) == 2 else "holds in part" if facts[0] else "does not hold"
    return Shown(outcome, number, model.source, _pick(result, "Spectra of the tables"))


@EXHIBITS.add(
    "Capture of token directions",
    sentence="The top position directions lie in the bottom of the token directions, with a small unexplained mass at "
    "the first ones.",
    rule="Holds if the last tenth of the token directions has more than 4 times the mass expected and the others less "
    "than expected; in part if only the first. The mass at low indices is explained by the mean rows if removing them "
    "halves the capture of the first token direction.",
    command="headspan positions {model} --figures DIR",
    claims=("S2.7", "S2.8"),
)
def capture(at_hand: AtHand) -> Shown:
    """Mass by tenths, and the first direction with and without mean rows."""
    result, data, model = _positions(at_hand, "W_pos", "W_E")
    ratio = (data["decile_mass"] / data["decile_mass_null"]).values
    whole = result.dataset()["capture"].sel(k_choice="given")
    first = [float(whole.sel(centering=name)[0]) for name in ("stored", "centered")]
    p = float(data["decile_mass_p"][-1])
    sure = "p < 1e-300" if p < 1e-300 else f"p = {p:.1g}"
    number = (
        f"The last tenth of the token directions has {ratio[-1]:.1f} times the expected mass ({sure}), another at most "
        f"{ratio[:-1].max():.2f}. Capture of the first token direction: {percent(first[0])}, without mean rows "
        f"{percent(first[1])} (expected {percent(float(data['capture_null']))})."
    )
    outcome: Outcome = "does not hold" if ratio[-1] <= 4 else "holds" if ratio[:-1].max() < 1 else "holds in part"
    return Shown(outcome, number, model.source, _pick(result, "Capture"))


@EXHIBITS.add(
    "Overlap of the tables",
    sentence="The top of the positions is aligned with the bottom of the tokens, and the other way round.",
    rule="Holds if both corners (top and bottom tenths) have more than 1.5 times the mass expected; in part if one.",
    command="headspan positions {model} --smooth 8 --figures DIR",
    claims=("S2.4", "S2.7"),
)
def overlap(at_hand: AtHand) -> Shown:
    """The two corners of the table of squared overlaps."""
    result, data, model = _positions(at_hand, "W_pos", "W_E")
    ratio = data["table_corner"] / data["table_corner_null"]
    corners = [float(ratio.sel(token_side=a, table_side=b)) for a, b in (("bottom", "top"), ("top", "bottom"))]
    number = (
        f"Bottom of the tokens with the top of the positions {corners[0]:.2f} times the expected overlap, top of the "
        f"tokens with the bottom of the positions {corners[1]:.2f} times."
    )
    drawn = _pick(result, "Overlap of the tables")
    return Shown(graded([one > 1.5 for one in corners]), number, model.source, drawn)


@EXHIBITS.add(
    "Eight panels",
    sentence="Queries and keys of the first layer read the very top of the positions; queries, keys and values read "
    "the top of the tokens; the output is aligned with the positions.",
    rule="Energy shared with a table over that of a random matrix: holds if queries and keys share more than 4 times "
    "with the positions, and queries, keys and values more than 1 with the tokens; in part if some do.",
    command="headspan positions {model} --layer 0 --smooth 8 --figures DIR",
    claims=("S2.9", "S2.10", "S2.11"),
)
def panels(at_hand: AtHand) -> Shown:
    """Energy alignment of the first layer's matrices."""
    result, data, model = _positions(at_hand, "W_pos")
    ratio = (data["energy_alignment"] / data["energy_alignment_null"]).isel(layer=0)
    facts = [float(ratio.sel(matrix=matrix, table="P")) > 4 for matrix in "QK"]
    tables = {"P": "positions", "E": "tokens"}
    told = []
    for name in data["table"].values:
        cells = ", ".join(f"{matrix} {float(ratio.sel(matrix=matrix, table=name)):.2f}" for matrix in "QKVO")
        told.append(f"with the {tables[str(name)]} {cells}")
    if "E" in data["table"].values:
        facts += [float(ratio.sel(matrix=matrix, table="E")) > 1 for matrix in "QKV"]
    number = f"Energy shared over that of a random matrix: {'; '.join(told)}."
    outcome = graded(facts)
    if "E" not in data["table"].values and outcome == "holds":
        outcome, number = "holds in part", f"{number} The token table is not in this checkpoint."
    drawn = _pick(result, "Attention and the tables", "Layers along the tables")
    return Shown(outcome, number, model.source, drawn)


@EXHIBITS.add(
    "First MLP",
    sentence="The first MLP reads the top of the tokens and ignores the positions.",
    rule="Holds if its input shares less energy with the positions than a random matrix and more with the tokens; in "
    "part if one.",
    command="headspan positions {model} --figures DIR",
    claims=("S2.12",),
)
def mlp(at_hand: AtHand) -> Shown:
    """Energy alignment of the first MLP's input."""
    result, data, model = _positions(at_hand, "W_pos", "W_E", "MLP")
    reading = next(name for name in ("in", "up", "gate") if name in data["matrix"].values)
    ratio = (data["energy_alignment"] / data["energy_alignment_null"]).isel(layer=0).sel(matrix=reading)
    shared = {name: float(ratio.sel(table=name)) for name in ("P", "E")}
    z = {name: float(data["energy_alignment_z"].isel(layer=0).sel(matrix=reading, table=name)) for name in ("P", "E")}
    number = (
        f"The first MLP shares {shared['P']:.2f} times the expected energy with the positions (z = {z['P']:+.1f}) and "
        f"{shared['E']:.2f} times with the tokens (z = {z['E']:+.1f})."
    )
    drawn = _pick(result, "MLP and the tables")
    return Shown(graded([shared["P"] < 1, shared["E"] > 1]), number, model.source, drawn)


@EXHIBITS.add(
    "Top position vectors",
    sentence="Over positions the top five directions are sinusoids; over coordinates they are sparse, on about 40.",
    rule="Holds if a sinusoid explains at least 60 % of each of the five and 90 % of each lies on at most 40 "
    "coordinates; in part if one of the two.",
    command="headspan positions {model} --figures DIR",
    claims=("S2.13", "S2.14"),
)
def vectors(at_hand: AtHand) -> Shown:
    """Waves and coordinates of the first five."""
    result, data, model = _positions(at_hand, "W_pos")
    count, random = (data[f"sparsity_coordinates_90{end}"].values[:5] for end in ("", "_null"))
    wave, noise = (data[f"wave_r2{end}"].values[:5] if "wave_r2" in data else np.zeros(1) for end in ("", "_null"))
    number = (
        f"A sinusoid explains {percent(np.nanmin(wave))} to {percent(np.nanmax(wave))} of each (noise "
        f"{percent(np.nanmean(noise), 1)}); "
        f"90 % of each lies on {np.nanmin(count):.0f} to {np.nanmax(count):.0f} coordinates (a random direction: "
        f"{np.nanmean(random):.0f})."
    )
    facts = [bool(np.nanmin(wave) >= 0.6), bool(np.nanmax(count) <= 40)]
    names = ("Position directions over positions", "Position directions by coordinate")
    drawn = _pick(result, *names, "Position directions in the stream")
    return Shown(graded(facts), number, model.source, drawn)


@EXHIBITS.add(
    "Question: why sparse?",
    sentence="Nobody knows why the positions are sparse in the coordinates of the stream. A lead: the norm before the "
    "first layer turns these coordinates down, which a rotation of the stream would not survive.",
    rule="The lead holds if the gains of the first norm differ between the coordinates that carry positions and others "
    "(q < 0.001 over layers) and positions are sparse; in part if only the gains differ. One model is a lead, not an "
    "answer. This rule was written after GPT-2's gains had been seen.",
    command="headspan positions {model} --figures DIR",
    claims=("S2.13",),
)
def gains(at_hand: AtHand) -> Shown:
    """Gains of the norms against leverage."""

    def ungained(model: Model) -> str | None:
        if "W_pos" not in model.stored().parts:
            return "it lacks W_pos"
        return "its norms stand after the attention" if model.stored().stack.norm_place == "after" else None

    model = at_hand.first("positions", ungained)
    result = at_hand.result("positions", model, smooth=BLUR)
    data = result.dataset().sel(centering="stored")
    auc, q = data["gain_auc"].values, data["gain_auc_q"].values
    first = data.isel(layer=0)
    sparse = bool((data["sparsity_coordinates_90_p"].values[:5] < 0.01).all())
    lower, higher = (int((side & (q < 0.001)).sum()) for side in (auc < 0.5, auc > 0.5))
    number = (
        f"In the first layer the median gain is {float(first['gain_carrying']):.3f} on the "
        f"{int(data['coordinate_count'])} coordinates that carry positions and {float(first['gain_other']):.3f} on "
        f"others (AUC {auc[0]:.3f}, expected 0.5, q = {q[0]:.1g}); lower gains with q < 0.001 in "
        f"{lower} of {len(auc)} layers, higher in {higher}."
    )
    differ = bool(q[0] < 0.001)
    outcome: Outcome = "holds" if differ and sparse else "holds in part" if differ else "does not hold"
    return Shown(outcome, number, model.source, _pick(result, "Gains and positions"))
