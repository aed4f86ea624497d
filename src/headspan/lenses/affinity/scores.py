"""The two affinity scores of one pairing, each with its nulls, and what sums them up.

A score of a pair that composes stands beside three nulls. `two-way`: what its two heads and layers share in general,
fitted to the model's own pairs (`statistics.two_way_fit`). `reverse`: pairs of the same model in reverse order, whose
source layer comes after the destination's, equally many layers apart. `haar`: independent random subspaces (for the
composition score a random rotation that keeps both spectra); mean, standard deviation and tail follow from each pair's
dimensions or spectra. z is the score less the null's mean in standard deviations (two-way: of logarithms); q is taken
within a pairing and null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.dims import KV_ROLES, PAIR_DIMS
from headspan.heads import Heads
from headspan.lenses.affinity.pair_tables import KernelTables, OverlapTables, roles_of
from headspan.lenses.affinity.schema import COMPOSITION, HAAR, KERNEL, REVERSE, SIGNIFICANT, STRONG, TWO_WAY
from headspan.statistics import (
    bootstrap_mean_interval,
    direction_test,
    kl_from_normal,
    layer_distance,
    q_values,
    reverse_order_p_values,
    two_way,
)
from headspan.statistics.permutation import Array, Layers
from headspan.subspaces import kernel_null_mean, kernel_null_variance, log_upper_tail
from headspan.subspaces.nulls import energy_shares, log_rotation_tail, rotation_variance

TAIL_PAIRS = 2**18
"""Pairs whose p-values are found at a time: the arithmetic of tails takes some twenty arrays of that length."""


@dataclass(frozen=True)
class Score:
    """One score of all ordered pairs [src_layer, src_head, dst_layer, dst_head], whether they compose or not.

    `null`, `null_sd` and `p` are each pair's under haar; `mean_null` and `sd_null` those of heads of full rank, or the
    pairs' average.
    """

    values: Array
    null: Array
    null_sd: Array
    p: Array
    mean_null: float
    sd_null: float


def pair_shape(heads: Heads, pairing: str) -> tuple[int, int, int, int]:
    """Lengths of the four axes of a pairing's scores."""
    src, dst = (heads.shape(role) for role in roles_of(pairing))
    return (*src[:2], *dst[:2])


def kernel_score(heads: Heads, found: KernelTables, pairing: str) -> Score:
    """The projection kernel ||U^T V||_F^2 of every pair, in [0, min(p, q)].

    Haar null: two independent random subspaces of each pair's true dimensions; mean pq/d.
    """
    d, kernel, shape = heads.d_stream, found.tables[pairing], pair_shape(heads, pairing)
    src, dst = (found.ranks[role] for role in roles_of(pairing))
    p, q = (min(heads.shape(role)[2:]) for role in roles_of(pairing))
    p_values = _by_rows(kernel, src[:, None], partial(_log_kernel_tail, dst[None, :], d))
    return Score(
        values=_array(kernel).reshape(shape),
        null=_array(kernel_null_mean(src[:, None], dst[None, :], d)).reshape(shape),
        null_sd=_array(kernel_null_variance(src[:, None], dst[None, :], d).sqrt()).reshape(shape),
        p=p_values.reshape(shape),
        mean_null=float(kernel_null_mean(p, q, d)),
        sd_null=float(kernel_null_variance(p, q, d)) ** 0.5,
    )


def composition_score(heads: Heads, found: OverlapTables, pairing: str) -> Score:
    """C = ||M N||_F / (||M||_F ||N||_F) of every pair, in [0, 1], for OQ, OK, OV; NaN where a circuit is zero.

    Haar null: a random rotation between the two circuits that keeps both spectra; E[C^2] = 1/d. Mean and standard
    deviation of C follow from those of C^2 to second order.
    """
    d, overlap, dst = heads.d_stream, found.tables[pairing], found.readers[pairing[1]]
    energies = found.source.square().sum(-1)[:, None] * dst.square().sum(-1)[None, :]
    # Rounding of a pair whose factors align completely must not push a score above 1.
    squared = torch.where(energies > 0, overlap / energies, torch.nan).clamp(max=1.0)
    a, b = energy_shares(found.source), energy_shares(dst)
    variance, shape = rotation_variance(a, b, d), pair_shape(heads, pairing)
    average = float(variance.nanmean())
    p_values = _by_rows(squared, a, partial(_log_composition_tail, b, d))
    return Score(
        values=_array(squared.sqrt()).reshape(shape),
        null=_array(d**-0.5 - variance * d**1.5 / 8).reshape(shape),
        null_sd=_array(variance.sqrt() * d**0.5 / 2).reshape(shape),
        p=p_values.reshape(shape),
        mean_null=d**-0.5 - average * d**1.5 / 8,
        sd_null=average**0.5 * d**0.5 / 2,
    )


def _by_rows(table: Float[Tensor, "n m"], about: Tensor, log_tail: Callable[[Tensor, Tensor], Tensor]) -> Array:
    """p-values of a table: exp of the tail of blocks of its rows, each with what `about` says of those rows."""
    step = max(1, TAIL_PAIRS // max(1, table.shape[1]))
    starts = range(0, len(table), step)
    parts = [_array(log_tail(table[start : start + step], about[start : start + step]).exp()) for start in starts]
    return np.concatenate(parts) if parts else np.zeros(tuple(table.shape))


def _log_kernel_tail(dst_rank: Tensor, d: int, kernel: Tensor, src_rank: Tensor) -> Tensor:
    return log_upper_tail(kernel, src_rank, dst_rank, d)


def _log_composition_tail(dst_shares: Tensor, d: int, squared: Tensor, src_shares: Tensor) -> Tensor:
    return log_rotation_tail(squared, src_shares, dst_shares, d)


def _array(tensor: Tensor) -> Array:
    return tensor.detach().double().cpu().numpy().astype(np.float64, copy=False)


def pairing_dataset(
    heads: Heads,
    pairing: str,
    kernels: KernelTables | None,
    overlaps: OverlapTables | None,
    nulls: Sequence[str],
    seed: int,
    draws: int,
) -> xr.Dataset:
    """One pairing's scores, nulls and summaries, [src_layer, src_head, dst_layer, dst_head]; see the schema."""
    layers, shape = np.asarray(heads.layers), pair_shape(heads, pairing)
    if pairing[0] == pairing[1] and nulls[0] == REVERSE:
        nulls = (HAAR, REVERSE)  # symmetric: no order to reverse
    distance = np.broadcast_to(layer_distance(layers, layers), shape)
    scores: dict[str, Score] = {}
    if kernels is not None and pairing in kernels.tables:
        scores[KERNEL] = kernel_score(heads, kernels, pairing)
    if overlaps is not None and pairing in overlaps.tables:
        scores[COMPOSITION] = composition_score(heads, overlaps, pairing)
    variables: dict[str, Any] = {}
    for name, score in scores.items():
        variables |= _pair_variables(name, score, distance, layers, pairing, nulls)
        variables |= _summary(name, score, distance, layers, pairing, (min(heads.d_head, heads.d_value), seed, draws))
    variables["n_pairs"] = int(np.any([~np.isnan(variables[name][1]) for name in scores], axis=0).sum())
    leading = next(iter(scores))
    variables |= {what: variables[f"{leading}_{what}"] for what in ("n_significant", "n_significant_reverse", "scale")}
    if KERNEL in scores:
        variables |= _rank_variables(kernels, pairing, variables[KERNEL][1])
    return xr.Dataset(
        variables,
        coords={"src_layer": layers, "dst_layer": layers, "null": list(nulls)},
        attrs=kv_sides(heads, pairing),
    )


def kv_sides(heads: Heads, pairing: str) -> dict[str, int]:
    """Which sides of a pairing count kv heads: 1 where they are fewer than the heads."""
    grouped = heads.n_kv_heads < heads.n_heads
    return {f"{side}_kv": int(grouped and role in KV_ROLES) for side, role in zip(("src", "dst"), pairing, strict=True)}


@dataclass(frozen=True)
class Expectation:
    """What one null says of every pair: mean, standard deviation, z, p, and q over the pairs that compose."""

    null: Array
    null_sd: Array
    z: Array
    p: Array
    q: Array

    def of(self, pairs: npt.NDArray[np.bool_]) -> dict[str, Array]:
        """The numbers of these pairs, NaN elsewhere."""
        return {each.name: np.where(pairs, getattr(self, each.name), np.nan) for each in fields(self)}


def _pair_variables(
    name: str, score: Score, distance: Layers, layers: Layers, pairing: str, nulls: Sequence[str]
) -> dict[str, Any]:
    """The score of pairs that compose, of pairs in reverse order, and what each null says, [null, pair]."""
    values = np.where(distance > 0, score.values, np.nan)
    composing = ~np.isnan(values)
    found = {HAAR: _expectation(values, score.null, score.null_sd, score.p)}
    found[REVERSE] = _under_reverse_order(values, score.values, distance, layers, pairing)
    variables = {
        name: (PAIR_DIMS, values),
        f"{name}_reverse": (PAIR_DIMS, np.where(distance < 0, score.values, np.nan)),
        **dict.fromkeys((f"{name}_n_significant_reverse", f"{name}_n_strong", f"{name}_scale"), np.nan),
    }
    if TWO_WAY in nulls:
        found[TWO_WAY], more = _under_two_way(score.values, distance, layers)
        variables |= {f"{name}_{what}": value for what, value in more.items()}
    numbers = [found[null].of(composing) for null in nulls]
    counts = [int((each["q"] < SIGNIFICANT).sum()) for each in numbers]
    stacked = {what: np.stack([each[what] for each in numbers]) for what in numbers[0]}
    variables |= {f"{name}_{what}": (("null", *PAIR_DIMS), each) for what, each in stacked.items()}
    return {**variables, f"{name}_n_significant": ("null", counts)}


def _expectation(values: Array, null: Array, null_sd: Array, p: Array) -> Expectation:
    p = np.where(np.isnan(values), np.nan, p)
    return Expectation(null, null_sd, standardized(values, null, null_sd), p, q_values(p))


def _under_reverse_order(values: Array, everyone: Array, distance: Layers, layers: Layers, pairing: str) -> Expectation:
    """A role paired with itself is symmetric: it has no reverse null."""
    if pairing[0] == pairing[1]:
        return Expectation(*(np.full(values.shape, np.nan),) * 5)
    return _expectation(values, *reverse_moments(everyone, distance), reverse_order_p_values(everyone, layers))


def _under_two_way(values: Array, distance: Layers, layers: Layers) -> tuple[Expectation, dict[str, Any]]:
    """What the two-way fit says of every pair, and the mirror check beside it."""
    n_src, n_dst = (values.shape[axis] for axis in (1, 3))
    flat = values.reshape(len(layers) * n_src, len(layers) * n_dst)
    fit = two_way(flat, np.repeat(layers, n_src), np.repeat(layers, n_dst))
    table = {what: getattr(fit, what).reshape(values.shape) for what in ("expected", "z", "p", "q", "mirror_fdr")}
    spread, mirror = np.full(values.shape, fit.scale), table["mirror_fdr"]
    more = {
        "mirror_fdr": (PAIR_DIMS, np.where(distance > 0, mirror, np.nan)),
        "n_significant_reverse": int((table["q"][distance < 0] < SIGNIFICANT).sum()),
        "n_strong": int(((mirror <= STRONG) & (table["q"] < SIGNIFICANT))[distance > 0].sum()),
        "scale": fit.scale,
    }
    return Expectation(table["expected"], spread, table["z"], table["p"], table["q"]), more


def standardized(values: Array, mean: Array, sd: Array) -> Array:
    """Standard deviations from the mean; NaN where there is no spread."""
    z: Array = np.divide(values - mean, sd, out=np.full(mean.shape, np.nan), where=sd > 0)
    return z


def reverse_moments(values: Array, distance: Layers) -> tuple[Array, Array]:
    """Mean and standard deviation of pairs in reverse order, equally many layers apart, for pairs that compose."""
    mean, sd = np.full(values.shape, np.nan), np.full(values.shape, np.nan)
    for apart in np.unique(distance[distance > 0]):
        null = values[(distance == -apart) & ~np.isnan(values)]
        if null.size:
            mean[distance == apart], sd[distance == apart] = null.mean(), null.std()
    return mean, sd


def _rank_variables(kernels: KernelTables | None, pairing: str, kernel: Array) -> dict[str, Any]:
    if kernels is None:
        return {}
    src, dst = (kernels.ranks[role].cpu().numpy() for role in roles_of(pairing))
    scale = np.sqrt(src[:, None] * dst[None, :], dtype=np.float64).reshape(kernel.shape)
    normalized = np.divide(kernel, scale, out=np.full(kernel.shape, np.nan), where=scale > 0)
    return {
        "normalized_kernel": (PAIR_DIMS, normalized),
        "src_rank": (PAIR_DIMS[:2], src.reshape(kernel.shape[:2])),
        "dst_rank": (PAIR_DIMS[2:], dst.reshape(kernel.shape[2:])),
    }


def _summary(
    name: str, score: Score, distance: Layers, layers: Layers, pairing: str, settings: tuple[int, int, int]
) -> Mapping[str, Any]:
    """Numbers over all composing pairs of one score; NaN for what they or the pairing do not define."""
    width, seed, draws = settings
    composing: Array = np.where(distance > 0, score.values, np.nan)
    values = composing[~np.isnan(composing)]
    some = values.size > 0
    low, high = bootstrap_mean_interval(composing, draws, seed) if some else (np.nan, np.nan)
    directed = some and pairing[0] != pairing[1]
    test = direction_test(score.values, layers, seed=seed) if directed else None
    numbers = {
        "n_pairs": int(values.size),
        "mean": float(values.mean()) if some else np.nan,
        "mean_low": low,
        "mean_high": high,
        "mean_null": score.mean_null,
        "sd": float(values.std()) if some else np.nan,
        "sd_null": score.sd_null,
        "direction": np.nan if test is None else test.difference,
        "direction_p": np.nan if test is None else test.p_value,
        "direction_ks": np.nan if test is None else test.ks_distance,
    }
    if name == KERNEL:
        numbers["kl"] = kl_from_normal(values, width, score.mean_null, score.sd_null**2) if some else np.nan
    return {f"{name}_{what}": value for what, value in numbers.items()}
