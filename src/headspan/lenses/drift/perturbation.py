"""What a random change of the same size would have done to a head: the chance that stands beside every drift.

Null: a Gaussian matrix of the same Frobenius norm as the change is added to the head as it was. A head with small
singular values turns far under a small change, so equal distances do not mean equal news; this null knows the head's
spectrum.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

from headspan.lenses.drift.motion import Motion, spectrum_ks
from headspan.statistics import prediction_tail, z_score
from headspan.subspaces import chordal_distance, grassmann_distance
from headspan.subspaces.random_angles import expected_perturbation_sines, random_perturbation

COMPARED = ("grassmann", "chordal", "projection_kernel", "spectrum_ks")
Array = np.ndarray


def chance_variables(
    found: Motion, d: int, draws: int, seed: tuple[int, ...], whole: bool
) -> dict[str, Float[Tensor, " head"]]:
    """Mean and standard deviation over draws of what is compared, and `chordal_expected`, which needs none.

    Zero for a head that did not change; NaN for one without a space. `chordal_expected` is known for whole spans only:
    leading directions also mix with those behind them, by how much depends on gaps of the spectrum.
    """
    generator = torch.Generator().manual_seed(_mixed(seed))
    ranks = list(zip(found.before.rank.tolist(), found.after.rank.tolist(), strict=True))
    names = [f"{name}_{part}" for name in COMPARED for part in ("chance", "sd")]
    columns: dict[str, list[float]] = {name: [] for name in (*names, "chordal_expected")}
    for place, rank in enumerate(ranks):
        s, size = found.values_before[place], found.size[place]
        moments = _moments(s, d, float(size), draws, generator, rank)
        for name in names:
            columns[name].append(moments[name])
        sines = expected_perturbation_sines(s, d, size, rank)
        columns["chordal_expected"].append(float(sines.square().sum().sqrt()) if whole and min(rank) else float("nan"))
    return {name: torch.tensor(column, dtype=torch.float64) for name, column in columns.items()}


def _moments(
    s: Tensor, d: int, size: float, draws: int, generator: torch.Generator, rank: tuple[int, int]
) -> dict[str, float]:
    """Mean and standard deviation of each compared quantity for one head."""
    if min(rank) == 0:
        return {f"{name}_{part}": float("nan") for name in COMPARED for part in ("chance", "sd")}
    if size == 0:
        still = {"grassmann": 0.0, "chordal": 0.0, "projection_kernel": float(min(rank)), "spectrum_ks": 0.0}
        means = {f"{name}_chance": value for name, value in still.items()}
        return means | {f"{name}_sd": 0.0 for name in still}
    drawn = random_perturbation(s.cpu(), d, size, draws, generator, rank)
    values = {
        "grassmann": grassmann_distance(drawn.angles),
        "chordal": chordal_distance(drawn.angles),
        "projection_kernel": (torch.cos(drawn.angles) ** 2).sum(-1),
        "spectrum_ks": spectrum_ks(s.cpu(), drawn.singular_values),
    }
    means = {f"{name}_chance": float(value.mean()) for name, value in values.items()}
    return means | {f"{name}_sd": float(value.std()) for name, value in values.items()}


def _mixed(seed: tuple[int, ...]) -> int:
    """One seed out of several numbers, so that every layer and role has draws of its own."""
    return int(np.random.SeedSequence(list(seed)).generate_state(1, np.uint64)[0] >> 1)


def drift_test(value: Array, mean: Array, sd: Array, draws: int) -> tuple[Array, Array]:
    """z-score against the draws, and its two-sided p-value.

    One more draw of a normal null would lie at z / sqrt(1 + 1/draws) of Student's law with draws - 1 degrees of
    freedom, which allows for a mean and a spread known from `draws` draws only. Uniform by chance; NaN where nothing
    changed.
    """
    z = z_score(value, mean, sd)
    p_value = 2 * prediction_tail(np.abs(z), draws)
    return z, p_value


def share_test(share: Array, rank: Array, d: int, p: int) -> Array:
    """Two-sided p-value of the share of a change that points out of the span: Beta(p(d-r)/2, pr/2) by chance."""
    a, b = p * (d - rank) / 2, p * rank / 2
    proper = np.isfinite(share) & (a > 0) & (b > 0)
    law = stats.beta(np.where(proper, a, 1.0), np.where(proper, b, 1.0))
    tails = 2 * np.minimum(law.cdf(share), law.sf(share))
    return np.where(proper, np.minimum(tails, 1.0), np.nan)
