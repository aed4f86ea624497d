"""Numbers that sum up a spectrum, each with its mean and spread for random matrices of the same shape.

The same functions are applied to the singular values of a model and to those of random matrices (`Law.drawn`), so that
value and chance mean the same thing: the fitted scale is fitted in both.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from scipy import special  # type: ignore[import-untyped,unused-ignore]

from headspan.lenses.spectra.law import Law, bulk_scale, law_of
from headspan.statistics import tw_log_upper_tail

LEVEL = 0.01
"""A singular value is a spike if even the largest of a random matrix reaches it with a probability below this."""
Arrays = dict[str, np.ndarray]


def shape_statistics(values: Float[np.ndarray, "*batch k"], tolerance: float) -> Arrays:
    """What does not depend on a matrix's scale; NaN for a zero matrix.

    `largest_share` s_1^2 / sum s^2 in [1/k, 1]; `stable_rank` its inverse; `entropy` of s^2 / sum s^2, in [0, log k];
    `effective_rank` the exponential of the entropy of s / sum s, in [1, k] (Roy and Vetterli 2007); `log_condition`
    log(s_1 / s_k), infinite if s_k is at most `tolerance` times s_1.
    """
    first, last = values[..., 0], values[..., -1]
    known = np.where(first > 0, first, np.nan)
    relative = values / known[..., None]
    power = relative**2 / (relative**2).sum(-1, keepdims=True)
    weight = relative / relative.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        condition = -np.log(np.where(last > tolerance * first, last, 0.0) / known)
    return {
        "largest_share": power[..., 0],
        "stable_rank": 1 / power[..., 0],
        "effective_rank": np.exp(special.entr(weight).sum(-1)),
        "entropy": special.entr(power).sum(-1),
        "log_condition": condition,
    }


def law_statistics(values: Float[np.ndarray, "*batch k"], law: Law, sigma: Float[np.ndarray, "*batch"]) -> Arrays:
    """How a spectrum lies to the law of entries of standard deviation sigma; NaN where sigma is 0 or unknown.

    `ks`, the Kolmogorov-Smirnov distance sup |F_observed - F|, in [0, 1]; `above`, the share of singular values above
    their quantile, the i-th largest against the i-th largest expected, in [0, 1], about 1/2 by chance.
    """
    k = values.shape[-1]
    unit = values / np.where(sigma > 0, sigma, np.nan)[..., None]
    share = law.cdf(unit[..., ::-1])
    steps = np.arange(k + 1) / k
    distance = np.maximum(steps[1:] - share, share - steps[:-1]).max(-1)
    above = (unit > law.typical).mean(-1)
    undefined = np.isnan(unit[..., 0])
    return {"ks": np.where(undefined, np.nan, distance), "above": np.where(undefined, np.nan, above)}


def spike_log_p(
    values: Float[np.ndarray, "*batch k"], law: Law, sigma: Float[np.ndarray, "*batch"]
) -> Float[np.ndarray, "*batch k"]:
    """log of the probability that the largest singular value of a random matrix reaches each of these.

    In [-inf, 0]; by chance the first is the log of a uniform variable and the others lie above it. -inf where the
    fitted sigma is 0 and the value is not; NaN where no sigma can be fitted, or both are 0.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        square = (values / sigma[..., None]) ** 2
    return tw_log_upper_tail(torch.as_tensor((square - law.centre) / law.scale)).numpy()


def spike_count(log_p: Float[np.ndarray, "*batch k"]) -> Float[np.ndarray, "*batch"]:
    """How many singular values are beyond what the largest of a random matrix reaches; LEVEL by chance, NaN unknown."""
    count = (log_p < np.log(LEVEL)).sum(-1).astype(float)
    return np.where(np.isnan(log_p[..., 0]), np.nan, count)


@lru_cache(maxsize=256)
def chance_moments(m: int, n: int, inner: int | None, seed: int) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of every statistic over draws of a shape's law."""
    law = law_of(m, n, inner, seed)
    ones, fitted = np.ones(len(law.drawn)), bulk_scale(law.drawn, law.typical)
    arrays = shape_statistics(law.drawn, 0.0)
    arrays |= law_statistics(law.drawn, law, fitted)
    arrays |= {f"{name}_init": array for name, array in law_statistics(law.drawn, law, ones).items()}
    arrays["spikes"] = spike_count(spike_log_p(law.drawn, law, fitted))
    arrays["energy_ratio"] = (law.drawn**2).sum(-1) / law.mean_energy
    moments = {name: (float(array.mean()), float(array.std(ddof=1))) for name, array in arrays.items()}
    # Known without draws.
    moments["energy_ratio"] = (1.0, moments["energy_ratio"][1])
    return moments
