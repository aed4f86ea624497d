"""Means, z-scores and two-sided p-values of shares of energy and of blocks of squared overlaps."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Int

from headspan.subspaces import kernel_null_mean, kernel_null_variance, log_lower_tail, log_upper_tail
from headspan.subspaces.nulls import rotated_trace_log_tail

Array = Float[np.ndarray, "..."]


def kernel_chance(p: Int[np.ndarray, ...], q: Int[np.ndarray, ...], d: int) -> tuple[Array, Array]:
    """Mean pq/d and sd of the sum of squared overlaps of p random directions with q others; NaN where one is 0."""
    first, second = (torch.as_tensor(np.array(side)) for side in np.broadcast_arrays(p, q))
    return kernel_null_mean(first, second, d).numpy(), kernel_null_variance(first, second, d).sqrt().numpy()


def kernel_log_p(value: Array, p: Int[np.ndarray, ...], q: Int[np.ndarray, ...], d: int) -> Array:
    """Two-sided log p-value under a uniformly random subspace; exact where p or q is 1."""
    observed = torch.as_tensor(np.asarray(value, dtype=np.float64))
    first, second = (torch.as_tensor(np.array(side)) for side in np.broadcast_arrays(p, q, value)[:2])
    upper, lower = (tail(observed, first, second, d).numpy() for tail in (log_upper_tail, log_lower_tail))
    return _two_sided(upper, lower)


def trace_log_p(value: Array, mean: Array, sd: Array, low: Array, high: Array) -> Array:
    """Two-sided log p-value of a share of energy under a random rotation."""
    upper = rotated_trace_log_tail(value, mean, sd, low, high, upper=True)
    return _two_sided(upper, rotated_trace_log_tail(value, mean, sd, low, high, upper=False))


def _two_sided(upper: Array, lower: Array) -> Array:
    return np.asarray(np.minimum(0.0, math.log(2) + np.minimum(upper, lower)))


def z_score(value: Array, mean: Array, sd: Array) -> Array:
    """(value - mean) / sd; NaN where chance leaves nothing to vary. 0 on average by chance."""
    varies = sd > 1e-9 * np.maximum(np.abs(mean), 1e-12)
    return np.where(varies, (value - mean) / np.where(varies, sd, 1.0), np.nan)
