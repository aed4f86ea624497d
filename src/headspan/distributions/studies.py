r"""Seeded studies behind the figures of this folder: paths on spheres of several radii, entropy over logit variance.

A study is a record of arrays that a figure can draw without arithmetic of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headspan.distributions.entropy_of_softmax import LARGEST_VARIANCE, expected_entropy, flat_entropy
from headspan.distributions.paths import (
    CosineFit,
    cosine_fit,
    mean_kl_law,
    random_pairs,
    softmax_path,
    sphere_alignment,
)
from headspan.errors import ArgumentError


@dataclass(frozen=True)
class PathStudy:
    """Divergence along random great circles of one sphere.

    `kl` [pairs, k] single curves over `t` [k], `fit` their cosines, `mean` [k] the average over all pairs with its
    standard error `error` [k], `law` [k] what theory gives for it, `residual` the median over pairs of the fits'
    residuals, and `jsd` [k] the average Jensen-Shannon divergence.
    """

    n: int
    radius: float
    angle: float
    t: Tensor
    kl: Tensor
    fit: CosineFit
    mean: Tensor
    error: Tensor
    law: Tensor
    jsd: Tensor
    residual: float


def path_study(
    n: int,
    radius: float,
    angle: float = math.pi / 2,
    pairs: int = 400,
    shown: int = 4,
    steps: int = 41,
    seed: int = 0,
) -> PathStudy:
    """KL along great circles between random points at an angle: a few single curves, their fits, and the average.

    The scale of the law is estimated from draws of its own, ten times as many as there are pairs.
    """
    if not 2 <= shown <= pairs:
        raise ArgumentError(f"a study shows 2 pairs or more and no more than it has, found {shown} of {pairs}")
    generator = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, steps, dtype=torch.float64)
    v, w = random_pairs(n, radius, angle, pairs, generator)
    path = softmax_path(v, w, t)
    fit = cosine_fit(path.kl, t, path.angle)
    scale, _ = sphere_alignment(n, radius, 10 * pairs, generator)
    return PathStudy(
        n=n,
        radius=radius,
        angle=angle,
        t=t,
        kl=path.kl[:shown],
        fit=cosine_fit(path.kl[:shown], t, path.angle[:shown]),
        mean=path.kl.mean(0),
        error=path.kl.std(0) / math.sqrt(pairs),
        law=mean_kl_law(scale, angle, t),
        jsd=path.jsd.mean(0),
        residual=float(fit.residual.median()),
    )


@dataclass(frozen=True)
class EntropyStudy:
    """Entropy as a share of log n: `exact` [keys, variance]; `flat` is 1 - v / (2 log n), NaN below 0."""

    keys: tuple[int, ...]
    variance: Tensor
    exact: Tensor
    flat: Tensor


def entropy_study(
    keys: Sequence[int] = (16, 128, 1024, 16384), largest: float = 100.0, steps: int = 60
) -> EntropyStudy:
    """Mean entropy of a softmax over Gaussian logits, over variances from 0.01 to `largest` and several lengths."""
    if min(keys, default=0) < 2 or not 0.01 < largest <= LARGEST_VARIANCE:
        raise ArgumentError(
            f"a study needs lengths of at least 2 and a largest variance in (0.01, {LARGEST_VARIANCE:g}]"
        )
    variance = torch.logspace(-2, math.log10(largest), steps, dtype=torch.float64)
    lengths = torch.tensor(list(keys))[:, None]
    full = lengths.double().log()
    flat = flat_entropy(variance, lengths) / full
    flat = torch.where(flat > 0, flat, math.nan)
    return EntropyStudy(tuple(keys), variance, expected_entropy(variance, lengths) / full, flat)
