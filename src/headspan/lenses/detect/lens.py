"""Which heads do what: detectors on repeated random tokens, on text beside them, and identity from the weights.

1. For each seed, run the model on random segments said twice and score every head (`runtime.detectors`).
2. The same on pieces of text, if there is any: a head may do on average text what designed prompts do not show.
3. Mean and standard error over seeds or pieces, beside the score of uniform attention.
4. A head is labelled where its score passes the threshold and lies three standard errors above chance.
5. Beside it, from the weights alone, the signed identity score (`identity`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from headspan.errors import ShapeError
from headspan.heads import Heads
from headspan.lenses.detect.identity import identity_chance_sd, identity_scores
from headspan.runtime import RunnableModel
from headspan.runtime.detectors import DETECTORS, Detection, detect_repeated, detect_text, surrounding_tokens

REPEATED, TEXT = "repeated random tokens", "text"
THRESHOLD = 0.4
ERRORS_ABOVE = 3
LENGTH, BATCH, SEEDS = 32, 4, 10
NULL = "uniform attention over the positions in reach; identity from weights: independent random W_V and W_O"


def compute(
    model: RunnableModel,
    *,
    texts: Sequence[str] | None = None,
    threshold: float = THRESHOLD,
    length: int | None = None,
    batch: int = BATCH,
    seeds: int = SEEDS,
    seed: int = 0,
) -> xr.Dataset:
    """Scores of every head for every detector, with standard errors, chance and labels.

    Parameters
    ----------
    model
        From `open_runnable`.
    texts
        Text to score heads on besides random tokens; none by default.
    threshold
        A head is labelled where its score exceeds this (and chance by three standard errors).
    length
        Tokens of a random segment, which is said twice; by default 32, or what fits the context.
    batch, seeds, seed
        Segments per draw, number of draws, and the first draw's seed.

    Returns
    -------
    Dataset
        `score`, `standard_error`, `label [prompt, detector, layer, head]`, `chance [prompt, detector]`,
        `identity_weights [layer, head]` with `_chance` and `_sd`.
    """
    if not 0 < threshold < 1:
        raise ShapeError(f"the threshold is a share of attention between 0 and 1, found {threshold}")
    if seeds < 2:
        raise ShapeError(f"a standard error needs at least 2 seeds, found {seeds}")
    chosen = _length(model) if length is None else length
    detections = {REPEATED: detect_repeated(model, range(seed, seed + seeds), chosen, batch)}
    if texts:
        detections[TEXT] = detect_text(model, texts, 2 * chosen)
    variables = _variables(detections, threshold) | _identity(model.heads(), model.stack.repeats)
    attrs = {**model.provenance(), "lens": "detect", "null": NULL, "threshold": threshold, "seed": seed, "seeds": seeds}
    attrs |= {"segment": chosen, "batch": batch, "causal": int(model.causal), "errors_above": ERRORS_ABOVE}
    attrs["pieces"] = len(detections[TEXT].scores) if TEXT in detections else 0
    return xr.Dataset(variables, coords=_coordinates(model, list(detections)), attrs=attrs)


def weights_only(heads: Heads) -> xr.Dataset:
    """The part of the result that needs no running model: identity scores."""
    attrs = {**heads.provenance(), "lens": "detect", "null": NULL}
    coords = {"layer": np.array(heads.layers), "head": np.arange(heads.n_heads)}
    return xr.Dataset(_identity(heads, 1), coords=coords, attrs=attrs)


def _length(model: RunnableModel) -> int:
    edges = sum(map(len, surrounding_tokens(model)))
    return LENGTH if model.max_context is None else min(LENGTH, (model.max_context - edges) // 2)


def _variables(detections: dict[str, Detection], threshold: float) -> dict[str, Any]:
    scores, errors, chances = [], [], []
    for found in detections.values():
        values = found.scores.numpy()
        counts = np.isfinite(values).sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(counts > 0, np.nansum(values, axis=0) / counts, np.nan)
            spread = np.nansum((values - mean) ** 2, axis=0) / (counts - 1)
            errors.append(np.where(counts > 1, np.sqrt(spread / counts), np.nan))
        scores.append(mean)
        known = np.isfinite(found.chance.numpy())
        total = np.where(known, found.chance.numpy(), 0).sum(axis=0)
        chances.append(np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan))
    score, error, chance = (np.stack(each) for each in (scores, errors, chances))
    above = score - chance[..., None, None] > ERRORS_ABOVE * np.nan_to_num(error, nan=0.0)
    dims = ("prompt", "detector", "layer", "head")
    return {
        "score": (dims, score),
        "standard_error": (dims, error),
        "chance": (dims[:2], chance),
        "label": (dims, (score > threshold) & above),
    }


def _identity(heads: Heads, repeats: int) -> dict[str, Any]:
    scores = np.tile(identity_scores(heads).numpy(), (repeats, 1))
    sd = identity_chance_sd(heads)
    return {
        "identity_weights": (("layer", "head"), scores),
        "identity_weights_chance": 0.0,
        "identity_weights_sd": sd,
    }


def _coordinates(model: RunnableModel, prompts: list[str]) -> dict[str, Any]:
    return {
        "prompt": np.array(prompts, dtype=object),
        "detector": np.array(list(DETECTORS), dtype=object),
        "layer": np.array(model.layer_numbers),
        "head": np.arange(model.n_heads),
    }
