"""Which heads do what: detectors on repeated random tokens, on text beside them, and identity from the weights.

1. For each seed, run the model on repeated random segments and score every head (`runtime.detectors`).
2. The same on pieces of text, if there is any: a head may do on average text what designed prompts do not show.
3. Mean and standard error over seeds or pieces, beside the score of uniform attention.
4. A head is labeled where its score passes the threshold and lies three standard errors above uniform attention's.
5. Beside it, from the weights alone, the identity score Tr(W_V W_O) / (sqrt(d_head) ||W_V W_O||_F). It lies in [-1, 1]
   because a matrix of rank d_head has a trace of at most sqrt(d_head) times its Frobenius norm: 1 where a head copies
   every direction it reads, -1 where it removes what is there. The sign is kept: the published identity heads of GPT-2
   are strongly negative, L4H7 the lowest of all 144.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.heads import Heads
from headspan.lenses.detect import check_choices
from headspan.lenses.detect.schema import REPEATED, TEXT
from headspan.runtime import RunnableModel
from headspan.runtime.budget import memory_left
from headspan.runtime.detectors import DETECTORS, Detection, detect_repeated, detect_text, surrounding_tokens

ERRORS_ABOVE = 3
LENGTH = 32
NULL = "uniform attention over the positions in reach; identity from weights: independent random W_V and W_O"
GRID = ("layer", "head")


def measure(
    running: RunnableModel,
    *,
    text: str | Sequence[str] | None = None,
    threshold: float = 0.4,
    length: int | None = None,
    batch: int = 4,
    seeds: int = 10,
    seed: int = 0,
) -> xr.Dataset:
    """`headspan.detect` on a running model."""
    check_choices(threshold, seeds)
    chosen = _length(running) if length is None else length
    texts = [text] if isinstance(text, str) else text
    detections = {REPEATED: detect_repeated(running, range(seed, seed + seeds), chosen, batch)}
    if texts:
        detections[TEXT] = detect_text(running, texts, 2 * chosen)
    variables = _score_variables(detections, threshold) | _identity(running.heads(), running.stack.repeats)
    attrs = {"null": NULL, "threshold": threshold, "seed": seed, "seeds": seeds, "segment": chosen, "batch": batch}
    attrs |= {"causal": int(running.causal), "errors_above": ERRORS_ABOVE}
    attrs["pieces"] = len(detections[TEXT].scores) if TEXT in detections else 0
    coords = {"prompt": np.array(list(detections), dtype=object), "layer": np.array(running.layer_numbers)}
    return xr.Dataset(variables, coords=coords, attrs=attrs)


def measure_weights(heads: Heads) -> xr.Dataset:
    """The part of the result that needs no running model: identity scores."""
    return xr.Dataset(_identity(heads, 1), coords={"layer": np.array(heads.layers)}, attrs={"null": NULL})


def _length(model: RunnableModel) -> int:
    edges = sum(map(len, surrounding_tokens(model)))
    return LENGTH if model.max_context is None else min(LENGTH, (model.max_context - edges) // 2)


def _score_variables(detections: dict[str, Detection], threshold: float) -> dict[str, Any]:
    score, error, uniform = (np.stack(each) for each in zip(*map(_summary, detections.values()), strict=True))
    above = score - uniform[..., None, None] > ERRORS_ABOVE * np.nan_to_num(error, nan=0.0)
    label, dims = (score > threshold) & above, ("prompt", *GRID)
    found: dict[str, Any] = {}
    for place, name in enumerate(DETECTORS):
        found |= {name: (dims, score[:, place]), f"{name}_null": ("prompt", uniform[:, place])}
        found |= {f"{name}_se": (dims, error[:, place]), f"{name}_label": (dims, label[:, place])}
    return found


def _summary(found: Detection) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean [detector, layer, head] over draws that have one, its standard error, and that of uniform attention."""
    values = found.scores.numpy()
    counts = np.isfinite(values).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(counts > 0, np.nansum(values, axis=0) / counts, np.nan)
        spread = np.nansum((values - mean) ** 2, axis=0) / (counts - 1)
        error = np.where(counts > 1, np.sqrt(spread / counts), np.nan)
    known = np.isfinite(found.chance.numpy())
    total = np.where(known, found.chance.numpy(), 0).sum(axis=0)
    return mean, error, np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan)


def _identity(heads: Heads, repeats: int) -> dict[str, Any]:
    scores = np.tile(identity_scores(heads, memory_left("1GB")).numpy(), (repeats, 1))
    sd = identity_null_sd(heads)
    return {
        "identity_weights": (GRID, scores),
        "identity_weights_null": 0.0,
        "identity_weights_null_sd": sd,
        "identity_weights_z": (GRID, scores / sd),
    }


def identity_scores(heads: Heads, memory: int | str = "1GB") -> Float[Tensor, "layer head"]:
    """The signed identity score of every head.

    Parameters
    ----------
    heads
        Any heads; in grouped models W_V of a head is that of the kv head it reads.
    memory
        Budget for one block of layers.

    Returns
    -------
    Tensor [layer, head], float64
        In [-1, 1]; for random weights 0 with standard deviation `identity_null_sd`. NaN for a head that writes nothing.
    """
    found = []
    for block in heads.blocks(memory, ("V", "O")):
        W_V, W_O = heads.per_query_head(block.W_V.double()), block.W_O.double()
        trace = torch.einsum("lhdv,lhvd->lh", W_V, W_O)
        # ||W_V W_O||_F^2 = Tr(W_V^T W_V W_O W_O^T), from matrices of d_head x d_head.
        squares = torch.einsum("lhvw,lhwv->lh", W_V.mT @ W_V, W_O @ W_O.mT)
        found.append(trace / (heads.d_value * squares).sqrt())
    return torch.cat(found)


def identity_null_sd(heads: Heads) -> float:
    """Standard deviation of the identity score for random weights: 1 / sqrt(d_model d_head)."""
    return float((heads.d_model * heads.d_value) ** -0.5)
