"""What the detectors say: which heads do what, on designed prompts and on text, and which copy or remove."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headspan.finding import Finding
from headspan.lenses.detect.classes import labeled_heads
from headspan.lenses.detect.schema import DETECTORS, REPEATED, TEXT
from headspan.result import Result

LENS = "detect"
SHOWN = 5
UNIFORM = "Null: uniform attention."
TASKS = {
    "previous_token": "attend to the previous token",
    "duplicate_token": "attend to earlier copies of the same token",
    "induction": "attend to the token after an earlier copy of the current one",
    "identity": "attend to their own position",
    "first_token": "attend to the first token",
}


def findings(result: Result) -> list[Finding]:
    """One finding per detector with labeled heads, one for those without, identity, and text against random tokens."""
    data = result.dataset()
    found = [*_weights(data)]
    if "prompt" in data.coords:
        labels = labeled_heads(result)
        found += [*_labeled(data, labels), *_unlabeled(data, labels), *_text(data)]
    return found


def _labeled(data: xr.Dataset, heads: dict[str, list[str]]) -> Iterator[Finding]:
    here = data.sel(prompt=REPEATED)
    for name, labels in heads.items():
        best = here.sel(head=labels[0])
        yield Finding(
            LENS,
            f"{_kind(name, labels, here.sizes['head'])} {float(best[name]):.2f} (uniform attention: "
            f"{float(best[f'{name}_null']):.2f}).",
            value=float(best[name]),
            expected=float(best[f"{name}_null"]),
            evidence=f"Standard error {float(best[f'{name}_se']):.3f} over {data.attrs['seeds']} draws of repeated "
            f"random tokens; labeled above {data.attrs['threshold']}. {UNIFORM}",
            reference=DETECTORS[name],
            weight=0.75 if name in ("induction", "previous_token") else 0.45,
        )


def _kind(name: str, labels: list[str], heads: int) -> str:
    """Which heads are of a kind and what they do, up to their score."""
    kind = name.replace("_", "-")
    if len(labels) == 1:
        task = TASKS[name].replace("attend ", "attends ").replace("their", "its")
        return f"{labels[0]} is the only {kind} head of {heads}: it {task}, with score"
    more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
    shown = f"{', '.join(labels[:SHOWN])}{more}"
    return f"{len(labels)} of {heads} heads are {kind} heads, which {TASKS[name]}: {shown}. The highest score is"


def _unlabeled(data: xr.Dataset, labeled: dict[str, list[str]]) -> Iterator[Finding]:
    here = data.sel(prompt=REPEATED)
    best = {name: float(here[name].max()) for name in DETECTORS if name not in labeled}
    if best:
        named = ", ".join(f"{name.replace('_', ' ')} ({score:.2f})" for name, score in best.items())
        yield Finding(
            LENS,
            f"No head scores above {data.attrs['threshold']} on repeated random tokens as: {named}; best score in "
            "brackets.",
            value=max(best.values()),
            expected=float(here[f"{max(best, key=lambda name: best[name])}_null"]),
            evidence=UNIFORM,
            weight=0.15,
        )


def _text(data: xr.Dataset) -> Iterator[Finding]:
    if TEXT not in data["prompt"].values:
        return
    scores = data[list(DETECTORS)].to_dataarray("detector").transpose("prompt", "detector", "head")
    designed, text = (scores.sel(prompt=kind).values for kind in (REPEATED, TEXT))
    gap = np.abs(designed - text)
    place = np.unravel_index(int(np.nanargmax(gap)), gap.shape)
    name = str(scores["detector"].values[place[0]]).replace("_", " ")
    yield Finding(
        LENS,
        f"Repeated random tokens and text disagree most on {data['head'].values[place[1]]} as a {name} head: score "
        f"{designed[place]:.2f} on random tokens, {text[place]:.2f} on text.",
        value=float(gap[place]),
        expected=0.0,
        evidence=f"Largest of all heads and detectors; {data.attrs['pieces']} pieces of text.",
        weight=0.3,
    )


def _weights(data: xr.Dataset) -> Iterator[Finding]:
    scores, sd = data["identity_weights"], float(data["identity_weights_null_sd"])
    if not np.isfinite(scores.values).any():
        return
    for place, words in (
        (int(np.nanargmin(scores.values)), "removes most of what it reads"),
        (int(np.nanargmax(scores.values)), "copies most of what it reads"),
    ):
        value = float(scores.values[place])
        yield Finding(
            LENS,
            f"{scores['head'].values[place]} {words}: identity score {value:+.2f} from the weights (random weights: 0 "
            f"± {sd:.3f}, z = {value / sd:+.0f}).",
            value=value,
            expected=0.0,
            evidence="Tr(W_V W_O) / (sqrt(d_head) ||W_V W_O||), in [-1, 1]. Null: independent random W_V and W_O.",
            figure="Identity from the weights",
            weight=0.4 if abs(value) > 10 * sd else 0.1,
        )
