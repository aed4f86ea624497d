"""What attention on a prompt says: how narrow heads look, where they pile up, what averaging hides."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headspan.dims import HeadLabel
from headspan.finding import Finding
from headspan.lenses.attention import maps_of, shot_table

LENS = "attention"
LEVEL = 0.01
SINK = 0.3
UNIFORM = "Chance: uniform attention over the positions in reach."
FIRST_RUNS = "One prompt; another may show something else."


def findings(result: xr.Dataset | xr.DataTree) -> list[Finding]:
    """Narrowest head, sinks, what averages hide, states growing alike, angles, and shots where there are any."""
    maps = maps_of(result)
    if maps.attrs["n_tokens"] < 2:
        return []
    found = [*_narrow(maps), *_sinks(maps), *_averaging(maps), *_writers(maps), *_alike(maps), *_angles(maps)]
    return [*found, *(_shots(result) if isinstance(result, xr.DataTree) else ())]


def _label(values: xr.DataArray, place: int) -> str:
    row, head = np.unravel_index(place, values.shape)
    return str(HeadLabel(int(values["layer"].values[row]), int(head)))


def _narrow(maps: xr.Dataset) -> Iterator[Finding]:
    values, chance = maps["effective_positions"], float(maps["effective_positions_chance"])
    place = int(values.values.argmin())
    narrow = int((values < 0.5 * chance).sum())
    yield Finding(
        LENS,
        f"{_label(values, place)} looks most narrowly: at {float(values.values.flat[place]):.2f} positions on average; "
        f"{narrow} of {values.size} heads look at less than half of what uniform attention would.",
        value=float(values.min()),
        expected=chance,
        evidence=f"Exponential of the entropy, mean over {maps.attrs['n_tokens']} tokens. {UNIFORM} {FIRST_RUNS}",
        figure="Entropy by layer",
        weight=0.3,
    )


def _sinks(maps: xr.Dataset) -> Iterator[Finding]:
    mass, where = maps["sink_mass"], maps["sink_position"]
    heavy = mass.values > max(SINK, 2 * float(maps["sink_mass_chance"]))
    if not heavy.any():
        return
    places, counts = np.unique(where.values[heavy].astype(int), return_counts=True)
    position = int(places[counts.argmax()])
    text = str(maps["token_text"].values[position])
    yield Finding(
        LENS,
        f"{int(heavy.sum())} of {mass.size} heads give one single position more than {SINK:.0%} of all attention, "
        f"{int(counts.max())} of them to position {position} ({text!r}).",
        value=float(mass.max()),
        expected=float(maps["sink_mass_chance"]),
        evidence=f"Largest share: {_label(mass, int(mass.values.argmax()))}. {UNIFORM} {FIRST_RUNS}",
        reference="Xiao et al. (2023), Efficient streaming language models with attention sinks",
        figure="Where heads look",
        weight=0.5,
    )


def _averaging(maps: xr.Dataset) -> Iterator[Finding]:
    single = float(maps["relative_entropy"].mean())
    average = float(maps["mean_map_relative_entropy"].mean())
    yield Finding(
        LENS,
        f"Averaging over heads hides how narrow they are: relative entropy {average:.2f} for the average, {single:.2f} "
        "for a single head.",
        value=average - single,
        expected=0.0,
        evidence="Entropy over that of uniform attention, means over layers. Heads all alike would differ by 0.",
        figure="Entropy by layer",
        weight=0.25,
    )


def _writers(maps: xr.Dataset) -> Iterator[Finding]:
    share, chance = maps["write_share"], float(maps["write_share_chance"])
    place = int(share.values.argmax())
    yield Finding(
        LENS,
        f"{_label(share, place)} writes most of its layer: {float(share.max()):.0%} of the norm that its "
        f"{maps.sizes['head']} heads write.",
        value=float(share.max()),
        expected=chance,
        evidence="||A (x W_V) W_O|| over the sum over heads, mean over positions. Chance: all heads alike.",
        weight=0.2 if float(share.max()) < 3 * chance else 0.35,
    )


def _alike(maps: xr.Dataset) -> Iterator[Finding]:
    cosine = maps["mean_cosine"].values
    if len(cosine) < 2:
        return
    rank = maps["effective_rank"].values
    yield Finding(
        LENS,
        f"States of different positions have a mean cosine of {cosine[0]:.2f} entering the first layer and "
        f"{cosine[-1]:.2f} entering the last; their effective rank goes from {rank[0]:.0f} to {rank[-1]:.0f}.",
        value=float(cosine[-1]),
        expected=0.0,
        evidence=f"Random states: mean cosine 0, effective rank {float(maps['effective_rank_chance']):.0f}.",
        figure="States by layer",
        weight=0.3,
    )


def _angles(maps: xr.Dataset) -> Iterator[Finding]:
    if "state_correlation" not in maps:
        return
    found, p = maps["state_correlation"], maps["state_p_value"].values
    smallest = 1 / (int(maps.attrs["permutations"]) + 1)
    level = max(LEVEL, smallest)
    toward, away = int(((p <= level) & (found.values > 0)).sum()), int(((p <= level) & (found.values < 0)).sum())
    yield Finding(
        LENS,
        f"{toward} of {found.size} heads attend more to positions whose states point their way, {away or 'none'} to "
        f"those that point away; the mean rank correlation is {float(found.mean()):+.2f}.",
        value=float(found.mean()),
        expected=0.0,
        evidence=f"p <= {level:.2g}, {maps.attrs['permutations']} permutations, by chance {level * found.size:.1f} "
        "heads. Null: states dealt to positions at random.",
        weight=0.35,
    )


def _shots(result: xr.DataTree) -> Iterator[Finding]:
    rows = shot_table(result)
    above = int((rows["within_p_value"] <= 0.05).sum())
    yield Finding(
        LENS,
        f"Attention keeps to its own shot more than to pieces cut elsewhere in {above} of {len(rows)} heads: "
        f"{rows['within'].mean():.0%} stays within, {rows['within_chance'].mean():.0%} with moved boundaries.",
        value=float(rows["within"].mean()),
        expected=float(rows["within_chance"].mean()),
        evidence=f"p <= 0.05; by chance {0.05 * len(rows):.0f} heads. Null: {result.attrs['null']}.",
        figure="Within shots",
        weight=0.5,
    )
    best = rows.loc[rows["own_word"].idxmax()]
    yield Finding(
        LENS,
        f"{best['head']} looks from clues to their own word most: {best['own_word']:.1%} of its attention, against "
        f"{best['other_word']:.1%} to each other word.",
        value=float(best["own_word"]),
        expected=float(best["own_word_chance"]),
        evidence=f"The largest of {len(rows)} heads. {UNIFORM}",
        figure="Within shots",
        weight=0.4,
    )
    yield from _likelihood(result["likelihood"].to_dataset())


def _likelihood(node: xr.Dataset) -> Iterator[Finding]:
    values, error = node["log_likelihood"].values, float(node["standard_error"].values[-1])
    if np.isfinite(values).all():
        yield Finding(
            LENS,
            f"Held-out clues have a log-likelihood of {values[0]:.2f} per token without shots and {values[-1]:.2f} "
            f"after {len(values) - 1}.",
            value=float(values[-1] - values[0]),
            expected=0.0,
            evidence=f"Nats per token; standard error over words {error:.2f}.",
            figure="Held-out clues",
            weight=0.4,
        )
