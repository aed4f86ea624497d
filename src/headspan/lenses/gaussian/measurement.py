"""Is the stream as good as Gaussian? Logits and attention entropy predicted from moments, beside measured ones.

1. Sequences are sampled, and what every layer's attention reads is noted (`sequences`).
2. On one half of them a Gaussian is fitted to queries and keys, for three kinds of pairs (`pairs`).
3. From its moments alone: mean, spread and kurtosis of each head's logits (`prediction`), and its attention's entropy
   (`entropy`).
4. On the other half the same is measured, and the two compared over the heads of each layer (`agreement`).
5. How much neighboring tokens say about each other, by the same picture (`information`).
"""

from __future__ import annotations

from typing import Any

import torch
import xarray as xr

from headspan.dims import HEAD, LAYER
from headspan.distributions.token_course import information_at, leading_components
from headspan.heads import Heads
from headspan.heads.logits import queries_or_keys
from headspan.lenses.gaussian.entropy import (
    AT_ONCE,
    bilinear_form,
    row_entropies,
    uniform_entropy,
)
from headspan.lenses.gaussian.pairs import SELF, QueriesAndKeys, distances, fitted, gaussian_sample, logits
from headspan.lenses.gaussian.prediction import (
    LogitMoments,
    explained,
    measured_logits,
    predicted_logits,
    size_ratio,
    slope,
)
from headspan.lenses.gaussian.schema import MOMENTS, PAIRS
from headspan.lenses.gaussian.sequences import Reads, sampled_reads
from headspan.runtime import RunnableModel
from headspan.runtime.budget import FEWER, require_memory

PAIR, DISTANCE = "pair", "distance"
DRAWN = 128
"""Sequences drawn from the Gaussian for a head's predicted entropy."""
LOOKED_AT = (1, 2, 4, 8, 16, 32)
"""Distances between tokens at which their mutual information is estimated."""


def measure(
    heads: Heads,
    *,
    running: RunnableModel | str,
    text: str | None = None,
    sequences: int = 64,
    length: int = 64,
    seed: int = 0,
) -> xr.Dataset:
    """`headspan.gaussian` on heads; `running` is the same model opened, or in words why it cannot be run."""
    plain = heads.refolded("none").to("float64")
    found = sampled_reads(plain, running, text, sequences, length, seed)
    require_memory(layer_bytes(plain, sequences, length), "one layer's queries, keys and logits", FEWER)
    layers = [_layer(plain, layer, found, seed) for layer in found.layers]
    joined = xr.concat(layers, dim=LAYER, join="exact", combine_attrs="drop_conflicts", data_vars="all")
    result = joined.assign_coords({LAYER: list(found.layers)})
    attrs = {"fold": "none", "source": found.source, "seed": seed, "left_out": "; ".join(_left_out(heads, found))}
    return _with_agreement(result).assign_attrs(attrs)


def layer_bytes(heads: Heads, sequences: int, length: int) -> int:
    """What one layer takes at most: queries and keys as sampled and as drawn, and patterns, each with what is made of
    them."""
    rows = 8 * heads.n_heads * length
    return rows * ((3 * sequences + 4 * DRAWN) * 2 * heads.d_head + 4 * AT_ONCE * length)


def _left_out(heads: Heads, found: Reads) -> list[str]:
    """What is in the model's logits and not in the prediction, or missing from the result."""
    stack, notes = heads.stack, []
    if stack.positions in ("alibi", "relative") or stack.position_terms:
        notes.append(f"position terms of the logits ({stack.positions}) are measured in the entropy, not predicted")
    if stack.softcap is not None:
        notes.append(f"logits are those before the cap at {stack.softcap:g}")
    if stack.sinks is not None:
        notes.append("sinks are left out of the entropy")
    if not found.entropy:
        notes.append("layers above 0, which need a run of the model")
    return notes


def _layer(heads: Heads, layer: int, found: Reads, seed: int) -> xr.Dataset:
    """Everything about one layer."""
    reads = found.layers[layer].double()
    q, k = (queries_or_keys(heads, role, layer, reads) for role in ("Q", "K"))
    sample = QueriesAndKeys(q, k.repeat_interleave(q.shape[1] // k.shape[1], dim=1))
    half, length = len(reads) // 2, reads.shape[1]
    fit, held = sample.part(slice(half)), sample.part(slice(half, None))
    predicted: list[LogitMoments] = []
    measured: list[LogitMoments] = []
    for kind in PAIRS:
        deltas = distances(kind, bool(heads.stack.rotary), length)
        forms = [bilinear_form(heads, layer, delta) for delta in deltas]
        predicted.append(predicted_logits(fitted(fit, kind), forms))
        measured.append(measured_logits(list(logits(held, kind, forms))))
    gaussian = row_entropies(heads, layer, gaussian_sample(fitted(fit, SELF), DRAWN, seed))
    rows = found.entropy[layer][half:] if found.entropy else row_entropies(heads, layer, held)
    variables: dict[str, Any] = {
        "entropy": ((HEAD,), gaussian.mean((0, 2)).numpy(force=True)),
        "entropy_measured": ((HEAD,), rows.double().mean((0, 2)).numpy(force=True)),
        "entropy_uniform": uniform_entropy(length, heads.stack.causal),
        **_moment_variables("", predicted),
        **_moment_variables("_measured", measured),
    }
    return xr.Dataset({**variables, **_information(reads)}, coords={PAIR: list(PAIRS)})


def _moment_variables(suffix: str, moments: list[LogitMoments]) -> dict[str, Any]:
    return {
        f"logit_{name}{suffix}": (
            (HEAD, PAIR),
            torch.stack([getattr(each, name).cpu() for each in moments], -1).numpy(),
        )
        for name in MOMENTS
    }


def _information(reads: torch.Tensor) -> dict[str, Any]:
    """Mutual information of the stream's leading components at several distances, and what places alone give."""
    components = leading_components(reads)
    deltas = [delta for delta in LOOKED_AT if delta < reads.shape[1]]
    rows = {
        name: [float(information_at(components, delta, related)) for delta in deltas]
        for name, related in (("information", True), ("information_null", False))
    }
    return {name: ((DISTANCE,), values) for name, values in rows.items()} | {DISTANCE: deltas}


def _with_agreement(result: xr.Dataset) -> xr.Dataset:
    """R^2, slope and ratio of measured against predicted over the heads of each layer, and over all heads."""
    new: dict[str, xr.DataArray] = {}
    for name, measure in (("r2", explained), ("slope", slope), ("ratio", size_ratio)):
        for quantity in ("logit_sd", "entropy"):
            predicted, measured = result[quantity], result[f"{quantity}_measured"]
            new[f"{quantity}_{name}"] = _over(measure, predicted, measured, (HEAD,))
            new[f"{quantity}_{name}_all"] = _over(measure, predicted, measured, (LAYER, HEAD))
    return result.assign(new)


def _over(measure: Any, predicted: xr.DataArray, measured: xr.DataArray, dims: tuple[str, ...]) -> xr.DataArray:
    flat = [values.stack(one=dims) for values in (predicted, measured)]
    agreement: xr.DataArray = xr.apply_ufunc(measure, *flat, input_core_dims=[["one"], ["one"]], vectorize=True)
    return agreement
