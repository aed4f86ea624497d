"""What attention on a prompt says: how narrow heads are, where attention piles up, what averaging hides."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headspan.finding import Finding, percent
from headspan.lenses.attention.schema import MOVED
from headspan.result import Result

LENS = "attention"
ANGLE_LEVEL = 0.05
SHOT_LEVEL = 0.05
SINK = 0.3
FEWEST_HEADS = 4
UNIFORM = "Null: uniform attention over the positions in reach."
ONE_PROMPT = "One prompt; results on others may differ."


def findings(result: Result) -> list[Finding]:
    """Narrowest head, sinks, what averages hide, states growing alike, angles, and shots where there are any."""
    data = result.dataset()
    if data.attrs["n_tokens"] < 2:
        return []
    found = [*_narrow(data), *_sinks(data), *_averaging(data), *_writers(data), *_alike(data), *_angles(data)]
    found += _batch(result.dataset("batch")) if "batch" in result else ()
    return [*found, *(_shots(data) if "within" in data else ())]


def _batch(data: xr.Dataset) -> Iterator[Finding]:
    """Whether the heads keep their order from prompt to prompt."""
    values = data["relative_entropy"].transpose("prompt", "head").values
    known = values[:, np.isfinite(values).all(0)]
    if len(known) < 2 or known.shape[1] < FEWEST_HEADS:
        return
    ranks = np.argsort(np.argsort(known, axis=1), axis=1)
    between = np.asarray(np.corrcoef(ranks))[np.triu_indices(len(known), 1)]
    yield Finding(
        LENS,
        f"Over {len(known)} prompts the rank correlation of the heads' entropies between two prompts is "
        f"{between.mean():+.2f} on average, {between.min():+.2f} at least (heads in random order: 0).",
        value=float(between.mean()),
        expected=0.0,
        evidence=f"Relative entropy of {known.shape[1]} heads, every two prompts. It says how far one prompt stands "
        "for others; untrained heads may keep their order too.",
        weight=0.2,
    )


def _largest(values: xr.DataArray) -> str:
    return str(values["head"].values[int(values.values.argmax())])


def _narrow(data: xr.Dataset) -> Iterator[Finding]:
    values, uniform = data["effective_positions"], float(data["effective_positions_null"])
    narrow = int((values < 0.5 * uniform).sum())
    yield Finding(
        LENS,
        f"{_largest(-values)} attends most narrowly: to {float(values.min()):.2f} positions on average (uniform "
        f"attention: {uniform:.1f}); {narrow} of {values.size} heads attend to less than half as many as that.",
        value=float(values.min()),
        expected=uniform,
        evidence=f"Exponential of the entropy, mean over {data.attrs['n_tokens']} tokens. {UNIFORM} {ONE_PROMPT}",
        figure="Entropy by layer",
        weight=0.3,
    )


def _sinks(data: xr.Dataset) -> Iterator[Finding]:
    mass, where, uniform = data["sink_mass"], data["sink_position"], float(data["sink_mass_null"])
    heavy = mass.values > max(SINK, 2 * uniform)
    if not heavy.any():
        return
    places, counts = np.unique(where.values[heavy].astype(int), return_counts=True)
    position = int(places[counts.argmax()])
    verb, own = ("gives", "its") if heavy.sum() == 1 else ("give", "their")
    text = str(data["token_text"].values[position])
    most = int(counts.max())
    which = "" if heavy.sum() == 1 else "all of them " if most == heavy.sum() else f"{most} of them "
    yield Finding(
        LENS,
        f"{int(heavy.sum())} of {mass.size} heads {verb} more than {percent(SINK)} of {own} attention to a single "
        f"position, {which}to position {position} ({text!r}); uniform attention would give {percent(uniform)}.",
        value=float(mass.max()),
        expected=uniform,
        evidence=f"Largest share: {_largest(mass)}. {UNIFORM} {ONE_PROMPT}",
        reference="Xiao et al. (2023), Efficient streaming language models with attention sinks",
        figure="Where heads attend",
        weight=0.5,
    )


def _averaging(data: xr.Dataset) -> Iterator[Finding]:
    single = float(data["relative_entropy"].mean())
    average = float(data["mean_map_relative_entropy"].mean())
    yield Finding(
        LENS,
        f"Averaging over heads hides how narrow they are: relative entropy {average:.2f} for the average, {single:.2f} "
        "for a single head.",
        value=average - single,
        expected=0.0,
        evidence="Entropy over that of uniform attention, means over layers. The difference is 0 for equal heads.",
        figure="Entropy by layer",
        weight=0.25,
    )


def _writers(data: xr.Dataset) -> Iterator[Finding]:
    share, alike = data["write_share"], float(data["write_share_null"])
    yield Finding(
        LENS,
        f"{_largest(share)} writes most of its layer: {percent(float(share.max()))} of the norm that the layer's "
        f"{round(1 / alike)} heads write (all alike: {percent(alike)}).",
        value=float(share.max()),
        expected=alike,
        evidence="||A (x W_V) W_O|| over the sum over heads, mean over positions. Null: all heads write alike.",
        weight=0.2 if float(share.max()) < 3 * alike else 0.35,
    )


def _alike(data: xr.Dataset) -> Iterator[Finding]:
    cosine, rank = data["mean_cosine"].values, data["effective_rank"].values
    if len(cosine) < 2:
        return
    random = float(data["effective_rank_null"])
    yield Finding(
        LENS,
        f"States of different positions have a mean cosine of {cosine[0]:.2f} entering the first layer and "
        f"{cosine[-1]:.2f} entering the last (random states: 0); their effective rank goes from {rank[0]:.0f} to "
        f"{rank[-1]:.0f} (random states: {random:.0f}).",
        value=float(cosine[-1]),
        expected=0.0,
        evidence="Null: states of independent normal entries.",
        figure="States by layer",
        weight=0.3,
    )


def _angles(data: xr.Dataset) -> Iterator[Finding]:
    if "state_correlation" not in data:
        return
    found, p = data["state_correlation"], data["state_correlation_p"].values
    if not np.isfinite(p).any():
        return
    known, mean = int(np.isfinite(p).sum()), float(found.mean())
    toward, away = (
        int(((p <= ANGLE_LEVEL) & (found.values > 0)).sum()),
        int(((p <= ANGLE_LEVEL) & (found.values < 0)).sum()),
    )
    yield Finding(
        LENS,
        f"{toward or 'None'} of {known} heads attend more to positions with similar states than position explains, "
        f"{away or 'none'} to positions with dissimilar ones (p <= {ANGLE_LEVEL}); mean rank correlation {mean:+.2f}.",
        value=mean,
        expected=0.0,
        evidence=f"{ANGLE_LEVEL * known:.1f} heads expected under the null: states moved along the sequence in a "
        "circle. Effects of query, key and distance are removed first.",
        weight=0.35,
    )


def _shots(data: xr.Dataset) -> Iterator[Finding]:
    within, moved = float(data["within"].mean()), float(data["within_null"].mean())
    n_heads, above = data["within"].size, int((data["within_p"] <= SHOT_LEVEL).sum())
    yield Finding(
        LENS,
        f"{above} of {n_heads} heads keep attention within its own shot more than within moved boundaries "
        f"(p <= {SHOT_LEVEL}): {percent(within)} stays within on average, {percent(moved)} expected under the null.",
        value=within,
        expected=moved,
        evidence=f"{SHOT_LEVEL * n_heads:.0f} heads expected under the null. Null: {MOVED}",
        figure="Within shots",
        weight=0.5,
    )
    best = data.sel(head=_largest(data["own_word"]))
    own, other = float(best["own_word"]), float(best["other_word"])
    yield Finding(
        LENS,
        f"{best['head'].item()} attends most from clues to their own word: {percent(own, 1)} of its attention, "
        f"{percent(other, 1)} to each earlier word.",
        value=own,
        expected=float(best["own_word_null"]),
        evidence=f"The largest of {n_heads} heads. {UNIFORM}",
        figure="Within shots",
        weight=0.4,
    )
    yield from _likelihood(data["log_likelihood"].values, float(data["log_likelihood_se"].values[-1]))


def _likelihood(values: np.ndarray, error: float) -> Iterator[Finding]:
    if np.isfinite(values).all():
        yield Finding(
            LENS,
            f"Held-out clues have a log-likelihood of {values[0]:.2f} nats per token without shots and "
            f"{values[-1]:.2f} after {len(values) - 1}.",
            value=float(values[-1] - values[0]),
            expected=0.0,
            evidence=f"Standard error over words: {error:.2f}.",
            figure="Held-out clues",
            weight=0.4,
        )
