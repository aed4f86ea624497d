"""What the Gaussian picture of a model gets right, and where it fails."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headspan.dims import HEAD, LAYER, HeadLabel
from headspan.finding import Finding
from headspan.result import Result

LENS = "gaussian"
FIT = "Moments fitted on one half of the sequences, measured on the other."
GOOD = 0.8
"""R^2 from which on a prediction is called good."""
CLOSE = 0.05
"""Difference of logarithms up to which two sizes are called the same."""


def findings(result: Result) -> list[Finding]:
    """Spread of logits, entropy, tails and information, as far as there is something to say."""
    grid = result.grid()
    return [*_spread(grid), *_entropy(grid), *_departing_head(grid), *_tails(grid), *_information(grid)]


def _spread(result: xr.Dataset) -> Iterator[Finding]:
    """How well the spread of logits follows from means and covariances."""
    r2 = {str(pair): float(result["logit_sd_r2_all"].sel(pair=pair)) for pair in result["pair"].values}
    known = {pair: value for pair, value in r2.items() if np.isfinite(value)}
    if not known:
        return
    n_heads = result.sizes[LAYER] * result.sizes[HEAD]
    worst = min(known, key=lambda pair: known[pair])
    named = ", ".join(f"{value:.2f} for {_PAIR_WORDS[pair]}" for pair, value in known.items())
    yield Finding(
        LENS,
        f"Means and covariances of queries and keys predict how far the logits of {n_heads} heads spread, with R² of "
        f"{named}.",
        value=known[worst],
        expected=0.0,
        evidence=f"R² of the prediction itself; 0 for one and the same guess for all heads. {FIT} Sequences: "
        f"{result.attrs['source']}.",
        reference="Isserlis (1918) for the variance of a bilinear form",
        weight=0.35,
    )


def _entropy(result: xr.Dataset) -> Iterator[Finding]:
    """How well the entropy of attention follows, over all heads, and in which layers."""
    r2, ratio = float(result["entropy_r2_all"]), float(result["entropy_ratio_all"])
    if not (np.isfinite(r2) and np.isfinite(ratio)):
        return
    layers = result["entropy_r2"]
    good = [int(layer) for layer in layers[LAYER].values if float(layers.sel({LAYER: layer})) >= GOOD]
    where = f"layers {', '.join(map(str, good))}" if len(good) > 1 else f"layer {good[0]}" if good else "no layer"
    side = "as flat as" if abs(np.log(ratio)) < CLOSE else "flatter than" if ratio > 1 else "sharper than"
    yield Finding(
        LENS,
        f"On average attention is {side} Gaussian queries and keys would make it: measured entropies are "
        f"{ratio:.2f} times the predicted ones. The picture is good (R² of {GOOD} or more) in {where}.",
        value=r2,
        expected=0.0,
        evidence=f"R² over all heads {r2:.2f}. {FIT}",
        figure="Entropy of attention",
        weight=0.4,
    )


def _departing_head(result: xr.Dataset) -> Iterator[Finding]:
    """The head whose attention departs most from what its moments say."""
    measured_all, predicted_all = result["entropy_measured"], result["entropy"]
    possible = (measured_all > 0) & (predicted_all > 0)
    if not bool(possible.any()):
        return
    gap = abs(xr.ufuncs.log((measured_all / predicted_all).where(possible, 1.0)))
    layer, head = np.unravel_index(int(gap.values.argmax()), gap.shape)
    one = result.isel({LAYER: int(layer), HEAD: int(head)})
    label = HeadLabel(int(one[LAYER]), int(head))
    measured, predicted = float(one["entropy_measured"]), float(one["entropy"])
    yield Finding(
        LENS,
        f"{label} departs most from the Gaussian prediction: its attention has an entropy of {measured:.2f} nats, "
        f"predicted {predicted:.2f} (uniform attention: {float(one['entropy_uniform']):.2f}).",
        value=measured,
        expected=predicted,
        evidence=f"Entropy of attention over draws of the fitted Gaussian. {FIT}",
        figure="Entropy of attention",
        weight=0.4,
    )


def _tails(result: xr.Dataset) -> Iterator[Finding]:
    """Whether logits have heavier or lighter tails than products of Gaussian vectors."""
    here = result.sel(pair="unrelated")
    predicted, measured = here["logit_excess_kurtosis"], here["logit_excess_kurtosis_measured"]
    known = np.isfinite(predicted) & np.isfinite(measured)
    total = int(known.sum())
    if not total:
        return
    lighter = int(((measured < predicted) & known).sum())
    yield Finding(
        LENS,
        f"Logits of unrelated tokens have lighter tails than products of Gaussian vectors in {lighter} of {total} "
        f"heads (median excess kurtosis {float(measured.median()):.2f}, predicted {float(predicted.median()):.2f}).",
        value=float(measured.median()),
        expected=float(predicted.median()),
        evidence=f"A normal variable has 0. {FIT}",
        weight=0.25,
    )


def _information(result: xr.Dataset) -> Iterator[Finding]:
    """Where neighboring tokens say most about each other, beyond what their places say."""
    excess = (result["information"] - result["information_null"]).isel(distance=0)
    if not bool(np.isfinite(excess).any()):
        return
    one = result.isel({LAYER: int(np.nanargmax(excess.values))})
    told, places = one["information"].values, one["information_null"].values
    yield Finding(
        LENS,
        f"Neighboring tokens share most information in what layer {int(one[LAYER])} reads: at least {told[0]:.2f} nats "
        f"({places[0]:.2f} expected from their positions alone); {told[-1]:.2f} ({places[-1]:.2f}) at a distance of "
        f"{int(one['distance'][-1])}.",
        value=float(told[0]),
        expected=float(places[0]),
        evidence="Gaussian mutual information of the leading components, corrected for bias. Null: tokens of "
        "different sequences, as far apart.",
        figure="Information between tokens",
        weight=0.3,
    )


_PAIR_WORDS = {
    "self": "tokens with themselves",
    "neighbor": "neighbors",
    "unrelated": "unrelated tokens",
}
