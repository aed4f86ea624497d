"""The verified pairs of a sketch as a dataset that stands where a table of all pairs would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.dims import KV_ROLES, PAIR_DIMS
from headspan.heads import Heads
from headspan.lenses.affinity.certifying import Candidates
from headspan.lenses.affinity.pair_tables import roles_of
from headspan.lenses.affinity.sketching import Estimates
from headspan.lenses.affinity.verifying import Pair
from headspan.statistics.permutation import Array
from headspan.subspaces import kernel_null_mean, kernel_null_variance, log_upper_tail
from headspan.subspaces.sketch import kernel_standard_error

METRICS, NULLS = ("pk", "cs"), ("haar", "anticausal")


@dataclass(frozen=True)
class SketchedPairing:
    """What a sketch and its verification found of one pairing."""

    pairing: str
    estimates: Estimates
    kernels: Mapping[Pair, float]
    candidates: Candidates


def sketched_dataset(heads: Heads, found: SketchedPairing) -> xr.Dataset:
    """One pairing's verified pairs, strongest first, and what the estimates say of every head.

    Per `pair`: `pair_src_layer`, `pair_src_head`, `pair_dst_layer`, `pair_dst_head`; `projection_kernel`, exact, in
    [0, p], pq/d by chance; `estimate` and `standard_error` (an upper bound, at the exact kernel) of the sketch;
    `p_value` and `q_value` [metric, null, pair] under haar, the q-value an upper bound, exact where it is 1 / rank of
    what is known; NaN under the anti-causal null, which needs all pairs. Per head: `outgoing` [src_layer, src_head] and
    `incoming` [dst_layer, dst_head], mean estimates over the pairs that compose, unbiased; ranks. Summaries as in
    `lens.pairing_dataset`, NaN where they need all pairs. Attributes: `verified`, `certified`, `threshold`.
    """
    src, dst = roles_of(found.pairing)
    table, width = found.estimates.tables[found.pairing], found.estimates.width
    n_src, n_dst = (heads.shape(role)[1] for role in (src, dst))
    pairs = sorted(found.kernels, key=lambda pair: -found.kernels[pair])
    rows, columns = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    layers = np.asarray(heads.layers)
    kernel = np.array([found.kernels[pair] for pair in pairs], dtype=np.float64)
    p, q = (found.estimates.ranks[role].cpu() for role in (src, dst))
    exact, p_pair, q_pair = torch.from_numpy(kernel), p[rows], q[columns]
    levelled = _levelled(found.estimates, found.pairing)
    variables: dict[str, Any] = {
        "pair_src_layer": ("pair", layers[rows // n_src]),
        "pair_src_head": ("pair", rows % n_src),
        "pair_dst_layer": ("pair", layers[columns // n_dst]),
        "pair_dst_head": ("pair", columns % n_dst),
        "projection_kernel": ("pair", kernel),
        "estimate": ("pair", table[rows, columns].double().cpu().numpy()),
        "standard_error": ("pair", kernel_standard_error(exact, p_pair.double(), q_pair.double(), width).numpy()),
        "src_rank": (PAIR_DIMS[:2], p.numpy().reshape(-1, n_src)),
        "dst_rank": (PAIR_DIMS[2:], q.numpy().reshape(-1, n_dst)),
        "outgoing": (PAIR_DIMS[:2], _mean(levelled, 1).reshape(-1, n_src)),
        "incoming": (PAIR_DIMS[2:], _mean(levelled, 0).reshape(-1, n_dst)),
    }
    n_pairs = int((~table.isnan()).sum())
    p_values = log_upper_tail(exact, p_pair, q_pair, heads.d_model).exp().numpy()
    variables |= _significance(p_values, n_pairs) | _summaries(heads, found, n_pairs)
    grouped = heads.n_kv_heads < heads.n_heads
    return xr.Dataset(
        variables,
        coords={"src_layer": layers, "dst_layer": layers, "metric": list(METRICS), "null": list(NULLS)},
        attrs={
            "pairing": found.pairing,
            "src_kv": int(grouped and src in KV_ROLES),
            "dst_kv": int(grouped and dst in KV_ROLES),
            "verified": len(pairs),
            "certified": found.candidates.certified,
            "threshold": found.candidates.threshold,
        },
    )


def _levelled(estimates: Estimates, pairing: str) -> Float[Tensor, "n m"]:
    """Estimates less what the size of either sketch adds to all pairs of a head alike; unbiased up to 2 PK / m^2.

    Single pairs gain little; a head's mean over thousands of pairs would otherwise keep the error they share.
    """
    (p, t), (q, u) = (
        (estimates.ranks[role].to(estimates.sizes[role]), estimates.sizes[role]) for role in roles_of(pairing)
    )
    shared = (t[:, None] * u[None, :] - p[:, None] * q[None, :]) / (estimates.width + 1)
    return estimates.tables[pairing] - shared


def _mean(table: Float[Tensor, "n m"], axis: int) -> Array:
    """Mean estimate over the pairs that compose; NaN where there is none."""
    mean: Array = torch.nanmean(table, dim=axis).double().cpu().numpy()
    return mean


def _significance(p_values: Array, n_pairs: int) -> dict[str, Any]:
    """p under haar, and the least p n / rank from there down, which Benjamini and Hochberg's q cannot exceed."""
    p, q = np.full((2, len(METRICS), len(NULLS), len(p_values)), np.nan)
    p[0, 0] = p_values
    by_rank = p_values * n_pairs / np.arange(1, len(p_values) + 1)
    q[0, 0] = np.minimum(np.minimum.accumulate(by_rank[::-1])[::-1], 1.0)
    return {"p_value": (("metric", "null", "pair"), p), "q_value": (("metric", "null", "pair"), q)}


def _summaries(heads: Heads, found: SketchedPairing, n_pairs: int) -> dict[str, Any]:
    p, q = (min(heads.shape(role)[2:]) for role in roles_of(found.pairing))
    numbers = {
        "n_pairs": float(n_pairs),
        "mean": float(_levelled(found.estimates, found.pairing).double().nanmean()),
        "chance_mean": float(kernel_null_mean(p, q, heads.d_model)),
        "chance_std": float(kernel_null_variance(p, q, heads.d_model)) ** 0.5,
    }
    unknown = ("mean_low", "mean_high", "std", "kl", "direction", "direction_p_value", "direction_ks")
    numbers |= dict.fromkeys(unknown, np.nan)
    return {name: ("metric", np.array([value, np.nan])) for name, value in numbers.items()}
