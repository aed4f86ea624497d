"""What the detectors say: which heads do what, on designed prompts and on text, and which copy or take away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headspan.dims import HeadLabel
from headspan.finding import Finding
from headspan.lenses.detect import REPEATED, TEXT, labelled_heads

LENS = "detect"
SHOWN = 5
NAMES = {
    "previous_token": ("look at the previous token", "Voita et al. (2019), Analyzing multi-head self-attention"),
    "duplicate_token": ("look at earlier copies of the same token", "Wang et al. (2023), Interpretability in the wild"),
    "induction": (
        "look at what came after an earlier copy of the token",
        "Olsson et al. (2022), In-context learning and induction heads",
    ),
    "identity": ("look at their own position", ""),
    "first_token": ("rest on the first token", "Xiao et al. (2023), attention sinks"),
}


def findings(result: xr.Dataset) -> list[Finding]:
    """One finding per detector with labelled heads, one for those without, identity, and text against random tokens."""
    found = [*_weights(result)]
    if "score" in result:
        found += [*_labelled(result), *_unlabelled(result), *_text(result)]
    return found


def _labelled(result: xr.Dataset) -> Iterator[Finding]:
    heads = labelled_heads(result)[REPEATED]
    n_heads = result.sizes["layer"] * result.sizes["head"]
    for name, labels in heads.items():
        words, reference = NAMES[name]
        here = result.sel(prompt=REPEATED, detector=name)
        best = float(here["score"].max())
        error = float(here["standard_error"].values.flat[int(here["score"].values.argmax())])
        more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
        yield Finding(
            LENS,
            f"{name.replace('_', '-').capitalize()} heads, which {words}: {', '.join(labels[:SHOWN])}{more}; "
            f"{len(labels)} of {n_heads}.",
            value=best,
            expected=float(here["chance"]),
            evidence=f"Mean attention of {labels[0]} there, ± {error:.3f} over {result.attrs['seeds']} seeds; "
            f"labelled above {result.attrs['threshold']}. Chance: uniform attention.",
            reference=reference,
            weight=0.75 if name in ("induction", "previous_token") else 0.45,
        )


def _unlabelled(result: xr.Dataset) -> Iterator[Finding]:
    labelled = labelled_heads(result)[REPEATED]
    rest = [str(name) for name in result["detector"].values if str(name) not in labelled]
    if rest:
        best = {name: float(result["score"].sel(prompt=REPEATED, detector=name).max()) for name in rest}
        named = ", ".join(f"{name.replace('_', ' ')} ({score:.2f})" for name, score in best.items())
        yield Finding(
            LENS,
            f"No head passes {result.attrs['threshold']} for: {named}; the best score is in brackets.",
            value=max(best.values()),
            expected=float(result["chance"].sel(prompt=REPEATED, detector=max(best, key=lambda name: best[name]))),
            evidence="On random tokens said twice. Chance: uniform attention.",
            weight=0.15,
        )


def _text(result: xr.Dataset) -> Iterator[Finding]:
    if TEXT not in result["prompt"].values:
        return
    designed, text = result["score"].sel(prompt=REPEATED), result["score"].sel(prompt=TEXT)
    gap = np.abs((designed - text).values)
    place = np.unravel_index(int(np.nanargmax(gap)), gap.shape)
    name = str(result["detector"].values[place[0]]).replace("_", " ")
    label = HeadLabel(int(result["layer"].values[place[1]]), int(place[2]))
    yield Finding(
        LENS,
        f"Designed prompts and text disagree most on {label} as a {name} head: {designed.values[place]:.2f} on random "
        f"tokens said twice, {text.values[place]:.2f} on text.",
        value=float(gap[place]),
        expected=0.0,
        evidence=f"Largest of all heads and detectors; {result.attrs['pieces']} pieces of text.",
        weight=0.3,
    )


def _weights(result: xr.Dataset) -> Iterator[Finding]:
    scores, sd = result["identity_weights"].values, float(result["identity_weights_sd"])
    if not np.isfinite(scores).any():
        return
    for place, words in (
        (np.nanargmin(scores), "take away what they read"),
        (np.nanargmax(scores), "copy what they read"),
    ):
        layer, head = np.unravel_index(int(place), scores.shape)
        value = float(scores.flat[int(place)])
        label = HeadLabel(int(result["layer"].values[layer]), int(head))
        yield Finding(
            LENS,
            f"Of the heads that {words}, {label} does so most: identity score {value:+.2f} from the weights.",
            value=value,
            expected=0.0,
            evidence="Tr(W_V W_O) / (sqrt(d_head) ||W_V W_O||), in [-1, 1]; by chance 0 "
            f"± {sd:.3f}, z = {value / sd:+.0f}.",
            figure="Identity from the weights",
            weight=0.4 if abs(value) > 10 * sd else 0.1,
        )
