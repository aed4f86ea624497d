"""Is the stream as good as Gaussian? Logits and attention entropy predicted from moments, beside measured ones.

1. Sequences are sampled, and what every layer's attention reads is noted (`reading`).
2. On one half of them the moments of queries and keys are fitted, for three kinds of pairs (`pairs`).
3. From these moments alone: mean, spread and kurtosis of each head's logits, and its attention's entropy
   (`prediction`).
4. On the other half the same is measured, and the two compared over the heads of each layer (`agreement`).
5. How much neighbouring tokens say about each other, by the same picture (`information`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import xarray as xr

from headspan.dims import HEAD, LAYER
from headspan.heads import Heads
from headspan.heads.projecting import projected
from headspan.heads.rotary import relative_rotation
from headspan.lenses.gaussian.agreement import explained, size_ratio, slope
from headspan.lenses.gaussian.information import information_at, leading_components
from headspan.lenses.gaussian.pairs import (
    PAIRS,
    QueriesAndKeys,
    distances,
    first_key_share,
    fitted,
    logits,
    spread_within,
)
from headspan.lenses.gaussian.prediction import (
    LogitMoments,
    measured_logits,
    predicted_logits,
    predicted_row_entropy,
    row_lengths,
)
from headspan.lenses.gaussian.reading import Reads, sampled_reads
from headspan.lenses.gaussian.tables import DISTANCE, MOMENTS, PAIR

LOOKED_AT = (1, 2, 4, 8, 16, 32)
"""Distances between tokens at which their mutual information is estimated."""


def compute(
    heads: Heads, *, text: str | None = None, sequences: int = 64, length: int = 64, seed: int = 0
) -> xr.Dataset:
    """Predicted and measured logits and attention entropies of every head.

    Parameters
    ----------
    heads
        Of a model that can be run, or whose tables make up what layer 0 reads. Weights are taken as stored.
    text
        Windows of this text are the sequences; random tokens otherwise.
    sequences, length
        How many sequences, of how many tokens.
    seed
        Fixes tokens, the choice of windows, and Gaussian draws.

    Returns
    -------
    Dataset
        `logit_mean`, `logit_sd`, `logit_excess_kurtosis [layer, head, pair]` predicted and `..._measured`;
        `entropy [layer, head]` in nats, predicted and measured, `entropy_uniform` the most it can be, which is chance
        for a head that looks at nothing in particular; `logit_sd_r2`, `_slope`, `_ratio [layer, pair]` and
        `entropy_r2` ... `[layer]`, R^2 in (-inf, 1], 0 for a constant guess, `..._all` over all heads;
        `information [layer, distance]` in nats with `information_chance`; `first_key_share [layer, head]`, large where
        the first token's key is an outlier.
    """
    plain = heads.refolded("none").to("float64")
    found = sampled_reads(plain, text, sequences, length, seed)
    layers = [_layer(plain, layer, found, seed) for layer in found.layers]
    joined = xr.concat(layers, dim=LAYER, join="exact", combine_attrs="drop_conflicts", data_vars="all")
    result = joined.assign_coords({LAYER: list(found.layers)})
    return _with_agreement(result).assign_attrs(
        {
            **heads.provenance(),
            "lens": "gaussian",
            "fold": "none",
            "source": found.source,
            "seed": seed,
            "left_out": "; ".join(_left_out(heads, found)),
        }
    )


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
    q, k = (projected(heads, role, layer, reads) for role in ("Q", "K"))
    sample = QueriesAndKeys(q, k.repeat_interleave(q.shape[1] // k.shape[1], dim=1))
    half, length = len(reads) // 2, reads.shape[1]
    fit, held = sample.part(slice(half)), sample.part(slice(half, None))
    predicted: list[LogitMoments] = []
    measured: list[LogitMoments] = []
    for kind in PAIRS:
        forms = _forms(heads, layer, distances(kind, bool(heads.stack.rotary), length))
        moments = fitted(fit, kind)
        predicted.append(predicted_logits(moments, forms))
        measured.append(measured_logits(list(logits(held, kind, forms))))
    lengths = row_lengths(length, heads.stack.causal)
    variables: dict[str, Any] = {
        "entropy": ((HEAD,), predicted_row_entropy(moments, spread_within(fit), forms, lengths, seed).numpy()),
        "entropy_measured": ((HEAD,), _measured_entropy(heads, layer, held, found, half)),
        "first_key_share": ((HEAD,), first_key_share(held).numpy()),
        "first_key_share_chance": 1 / length,
        "entropy_uniform": float(lengths.double().log().mean()),
    }
    for suffix, moments_of_pairs in (("", predicted), ("_measured", measured)):
        for name in MOMENTS:
            values = torch.stack([getattr(each, name) for each in moments_of_pairs], dim=-1)
            variables[f"logit_{name}{suffix}"] = ((HEAD, PAIR), values.numpy())
    return xr.Dataset({**variables, **_information(reads)}, coords={PAIR: list(PAIRS)})


def _forms(heads: Heads, layer: int, deltas: tuple[int, ...]) -> list[torch.Tensor]:
    """scale * R_delta of a layer, for each distance: [1, d_head, d_head]."""
    scale, forms = heads.stack.scale[layer], []
    for delta in deltas:
        R = relative_rotation(heads, delta, [layer])
        forms.append(scale * (torch.eye(heads.d_head, dtype=torch.float64)[None] if R is None else R[0].double()))
    return forms


def _measured_entropy(heads: Heads, layer: int, held: QueriesAndKeys, found: Reads, half: int) -> np.ndarray:
    """Mean entropy of a head's rows on the sequences held back: of the run, or of our own logits without one."""
    rows = found.entropy[layer][half:] if found.entropy else _own_entropy(heads, layer, held)
    values: np.ndarray = rows.double().mean((0, 2)).numpy()
    return values


def _own_entropy(heads: Heads, layer: int, held: QueriesAndKeys) -> torch.Tensor:
    """Entropy of softmax rows, from queries and keys turned to their positions."""
    q, k, n = held.q, held.k, held.q.shape[2]
    if heads.stack.rotary:
        turns = torch.stack([_forms(heads, layer, (place,))[0][0] for place in range(n)]) / heads.stack.scale[layer]
        q, k = (torch.einsum("shpd,pde->shpe", side, turns) for side in (q, k))
    scores = heads.stack.scale[layer] * q @ k.mT
    if heads.stack.causal:
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
    entropy: torch.Tensor = torch.special.entr(scores.softmax(-1)).sum(-1)
    return entropy


def _information(reads: torch.Tensor) -> dict[str, Any]:
    """Mutual information of the stream's leading components at several distances, and what places alone give."""
    components = leading_components(reads)
    deltas = [delta for delta in LOOKED_AT if delta < reads.shape[1]]
    rows = {
        name: [float(information_at(components, delta, related)) for delta in deltas]
        for name, related in (("information", True), ("information_chance", False))
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
