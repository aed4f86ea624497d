"""Chapter 6 of the thesis on random weights: how well two align, and scores of vectors on spheres."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import aligned_trace_variance, best_alignment, random_form_covariance, sphere_score_moments
from headspan.distributions.random_matrices import BEST_ONE_SIDE, QUARTER_CIRCLE_MEAN, SAME_TURN
from headspan.ledger.claim import check
from headspan.ledger.trial import Draws, Evidence, Trial, at_least, equals, evidence, mean_is, near, variance_is
from headspan.statistics import random_singular_values


@check("6.24-6.29")
def same_turn(draws: Draws) -> Evidence:
    n, count = 64, 60
    a, b = (random_singular_values(n, n, count, draws.seed()) for _ in range(2))
    W = draws.haar(n, count)
    U, V = draws.haar(n, count), draws.haar(n, count)
    A, B = (U * a[:, None]) @ V.mT, (U @ W * b[:, None]) @ (V @ W).mT
    share = (A * B).sum((1, 2)) / n**2
    by_formula = torch.einsum("si,sij,sj->s", a, W**2, b) / n**2
    return evidence(
        near("trace over n^2", share.mean(), SAME_TURN, 0.02),
        equals("largest gap to the double sum", (share - by_formula).abs().max(), 0.0, 1e-10),
        printed=[near("trace over n^2", share.mean(), 1.0, 0.02)],
    )


@check("6.29b")
def best_rotation(draws: Draws) -> Evidence:
    n = 256
    A, B = draws.normal(2, 3, n, n)
    best = best_alignment(A, B).mean() / n**2
    return evidence(
        near("best trace over n^2", best, BEST_ONE_SIDE, 0.01),
        near("both sides", best_alignment(A, B, both_sides=True).mean() / n**2, 1.0, 0.01),
        printed=[near("best trace over n^2", best, 1.0, 0.01)],
    )


@check("6.29c")
def mean_singular_value(draws: Draws) -> Evidence:
    n = 256
    a, b = (random_singular_values(n, n, 20, draws.seed()) for _ in range(2))
    mean = a.mean() / math.sqrt(n)
    sorted_sum, unsorted = (a * b).sum(1).mean() / n**2, a.mean() * b.mean() / n
    return evidence(
        near("mean singular value", mean, QUARTER_CIRCLE_MEAN, 0.005),
        near("V_A = V_B", sorted_sum, 1.0, 0.02),
        near("V_A and V_B unrelated", unsorted, SAME_TURN, 0.02),
        printed=[near("mean singular value", mean, 1.0, 0.005), near("V_A = V_B", sorted_sum, unsorted, 0.02)],
    )


@check("6.2.5d")
def degrees_of_freedom(draws: Draws) -> Evidence:
    n = 5
    S = torch.diag(torch.arange(1.0, n + 1, dtype=torch.float64))
    # Directions in which U S V^T moves: one for every singular value, and those of both rotations' generators.
    moves = [torch.diag(torch.eye(n, dtype=torch.float64)[i]) for i in range(n)]
    for i in range(n):
        for j in range(i):
            G = torch.zeros(n, n, dtype=torch.float64)
            G[i, j], G[j, i] = 1.0, -1.0
            moves += [G @ S, S @ G]
    rank = torch.linalg.matrix_rank(torch.stack(moves).flatten(1))
    return evidence(equals("moves", len(moves), n**2, 0), equals("independent moves", rank, n**2, 0))


def _turned_traces(draws: Draws, a: Tensor, b: Tensor, count: int) -> Tensor:
    """tr(A^T B) for A = U diag(a) V^T, B = diag(b), U and V uniform rotations."""
    n = len(a)
    A = (draws.haar(n, count) * a) @ draws.haar(n, count).mT
    return (A.diagonal(dim1=1, dim2=2) * b).sum(1)


def _spectra(n: int) -> tuple[Tensor, Tensor]:
    """One with a spike, of unit mean square, and the same upside down."""
    a = torch.full((n,), 0.25, dtype=torch.float64)
    a[0] = math.sqrt(n - (n - 1) / 16)
    return a, a.flip(0)


@check("6.30-6.32")
def mean_with_other_spectra(draws: Draws) -> Evidence:
    a, _ = _spectra(16)
    return evidence(mean_is("trace", _turned_traces(draws, a, a, 9_000), 0.0))


@check("6.33-6.34")
def variance_with_other_spectra(draws: Draws) -> Evidence:
    n = 16
    a, reverse = _spectra(n)
    traces = _turned_traces(draws, a, a, 9_000)
    s = random_singular_values(64, 64, 20, draws.seed())
    doubled = (s**4).sum(1).mean() / 64 / 64**2
    return evidence(
        variance_is("variance", traces, aligned_trace_variance(torch.diag(a), torch.diag(a))),
        near("printed form on random spectra, over n^2 sigma^4", doubled, 2.0, 0.05),
        printed=[variance_is("variance", traces, (a**4).sum() / n)],
        figures={"printed, spectrum reversed": (a**2 * reverse**2).sum() / n},
    )


@check("6.34b")
def order_of_spectra(draws: Draws) -> Evidence:
    a, reverse = _spectra(16)
    same, other = _turned_traces(draws, a, a, 9_000), _turned_traces(draws, a, reverse, 9_000)
    expected = aligned_trace_variance(torch.diag(a), torch.diag(a))
    ratio = float((a**4).sum() / (a**2 * reverse**2).sum())
    return evidence(
        variance_is("variance, same order", same, expected),
        variance_is("variance, reversed", other, expected),
        printed=[near("ratio of variances", same.var() / other.var(), ratio, 0.5)],
    )


COUNT = 100_000


@check("6.35")
def sphere_variance(draws: Draws) -> Evidence:
    n, radius = 6, 1.5
    x = draws.sphere(COUNT, n, radius=radius)[:, 0]
    return evidence(mean_is("mean", x, 0.0), mean_is("mean square", x**2, radius**2 / n))


@check("6.36")
def sphere_covariance(draws: Draws) -> Evidence:
    n, radius = 6, 1.5
    x = draws.sphere(COUNT, n, radius=radius)
    centered = x - x.mean(1, keepdim=True)
    centered = radius * torch.nn.functional.normalize(centered, dim=1)
    squares = x**2 - radius**2 / n
    printed = -(radius**2) / (n * (n - 1))
    return evidence(
        mean_is("x_1 x_2", x[:, 0] * x[:, 1], 0.0),
        mean_is("x_1 x_2 where coordinates add up to 0", centered[:, 0] * centered[:, 1], printed),
        mean_is("covariance of squares", squares[:, 0] * squares[:, 1], -2 * radius**4 / (n**2 * (n + 2))),
        printed=[mean_is("x_1 x_2", x[:, 0] * x[:, 1], printed)],
    )


@check("6.37")
def same_coordinate(draws: Draws) -> Evidence:
    n, k, l1, l2 = 10, 0.4, 1.5, 2.0
    x, y = draws.pairs_at(k, COUNT, n)
    return evidence(mean_is("x_1 y_1", l1 * l2 * x[:, 0] * y[:, 0], k * l1 * l2 / n))


@check("6.38")
def other_coordinate(draws: Draws) -> Evidence:
    n, k = 10, 0.4
    x, y = draws.pairs_at(k, COUNT, n)
    C = draws.normal(n, n)
    mean, variance = sphere_score_moments(C, k)
    scores = ((x @ C) * y).sum(1)
    return evidence(
        mean_is("x_1 y_2", x[:, 0] * y[:, 1], 0.0),
        mean_is("score", scores, mean),
        variance_is("its variance", scores, variance),
    )


def _random_scores(draws: Draws, v: Tensor, w: Tensor, count: int) -> Tensor:
    """v^T C w over random C with entries of variance 1/n."""
    n = len(v)
    return torch.einsum("a,sab,b->s", v, draws.normal(count, n, n, sd=1 / math.sqrt(n)), w)


@check("6.39-6.41")
def mean_over_weights(draws: Draws) -> Evidence:
    v, w = draws.pairs_at(0.5, 1, 12)
    return evidence(mean_is("score", _random_scores(draws, v[0], w[0], 20_000), 0.0))


@check("6.43-6.47")
def variance_over_weights(draws: Draws) -> Evidence:
    n, count = 12, 20_000
    printed: list[Trial] = []
    truth: list[Trial] = []
    for k in (0.0, 0.5, 1.0):
        v, w = (x[0] for x in draws.pairs_at(k, 1, n))
        scores = _random_scores(draws, v, w, count)
        printed.append(variance_is(f"k = {k:g}", scores, k**2 / n + (n - 1) / n**2))
        truth.append(variance_is(f"k = {k:g}", scores, random_form_covariance(v, w, v, w, 1 / math.sqrt(n))))
    v = draws.sphere(n)
    half = draws.normal(count, n, n, sd=1 / math.sqrt(n))
    symmetric = torch.einsum("a,sab,b->s", v, (half + half.mT) / math.sqrt(2), v)
    tied = (half @ v).square().sum(1)
    truth += [variance_is("symmetric, k = 1", symmetric, 2 / n), variance_is("tied, k = 1", tied, 2 / n)]
    return evidence(*truth, printed=[*printed])


@check("6.45")
def sum_of_variances(draws: Draws) -> Evidence:
    n, k = 12, 0.8
    v, w = draws.pairs_at(k, COUNT, n)
    total = ((v * w - k / n) ** 2).sum(1)
    mixed = v[:, 0] ** 2 * w[:, 1] ** 2
    return evidence(
        mean_is("sum of variances", total, (1 + 2 * k**2) / (n + 2) - k**2 / n),
        mean_is("v_1^2 w_2^2", mixed, (n + 1 - 2 * k**2) / (n * (n - 1) * (n + 2))),
        printed=[mean_is("sum of variances", total, k**2)],
    )


@check("6.42/6.48")
def variance_of_mean_score(draws: Draws) -> Evidence:
    n, count = 12, 20_000
    center = draws.sphere(n)
    X, Y = (torch.nn.functional.normalize(center + 0.6 * draws.sphere(3, n), dim=1) for _ in range(2))
    lam = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    mu_x, mu_y = lam @ X, lam @ Y
    scores = _random_scores(draws, mu_x, mu_y, count)
    weights = torch.outer(lam**2, lam**2)
    printed = (weights * ((X @ Y.T) ** 2 / n + (n - 1) / n**2)).sum()
    right = random_form_covariance(mu_x, mu_y, mu_x, mu_y, 1 / math.sqrt(n))
    return evidence(variance_is("variance", scores, right), printed=[variance_is("variance", scores, printed)])


@check("6.48b")
def angle_of_keys(draws: Draws) -> Evidence:
    n, k = 12, 2 / 12
    x, (w, u) = draws.sphere(n), draws.pairs_at(0.6, 1, n)
    C = draws.normal(20_000, n, n, sd=1 / math.sqrt(n))
    first, second = (torch.einsum("a,sab,b->s", x, C, key[0]) for key in (w, u))
    threshold = math.sqrt(1 - 1 / n)
    return evidence(
        mean_is("product of two scores", first * second, 0.6 / n),
        equals("both terms at k = sqrt(1 - 1/n)", threshold**2 / n, (n - 1) / n**2, 1e-15),
        printed=[at_least("term of the angle at k = 2 / n", k**2 / n, (n - 1) / n**2)],
    )
