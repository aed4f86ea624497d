"""Chapter 2 of the thesis, section 1: moments of Gaussians, their ellipsoids, and singular values.

Chapter 2 of the thesis, section 2: entropy, divergence and mutual information of Gaussians.
"""

from __future__ import annotations

import math

import torch
from scipy import linalg
from torch import Tensor
from torch.distributions import MultivariateNormal

from headspan.distributions import (
    canonical_correlations,
    cross_entropy,
    entropy,
    information_estimate,
    jensen_shannon,
    kl_divergence,
    linear_image,
    moment_matched_jsd,
    mutual_information,
    sample_moments,
)
from headspan.ledger.claim import check
from headspan.ledger.trial import Draws, Evidence, at_least, at_most, equals, evidence, mean_is, near, same


@check("2.1a")
def likelihood(draws: Draws) -> Evidence:
    n, d = 40, 3
    x = draws.normal(n, d)
    logs = []
    for unbiased in (False, True):
        mean, S = sample_moments(x, unbiased=unbiased)
        law = torch.distributions.MultivariateNormal(mean, S)
        logs.append(float(law.log_prob(x).sum()))  # type: ignore[no-untyped-call]
    gain = logs[0] - logs[1]
    return evidence(
        equals("gain of divisor n", gain, n * d / 2 * math.log(n / (n - 1)) - d / 2, 1e-8),
        printed=[at_most("gain of divisor n", gain, 0.0)],
    )


@check("2.1b")
def half_axes(draws: Draws) -> Evidence:
    x = draws.normal(30, 4) + 1
    mean, S = sample_moments(x)
    values, axes = torch.linalg.eigh(S)
    half = values.sqrt()
    ends = half * axes
    form = (ends * torch.linalg.solve(S, ends)).sum(0)
    centered = torch.linalg.svdvals(x - mean).flip(0) / math.sqrt(len(x) - 1)
    return evidence(
        same("Q at the ends of the axes less 1", form, 1.0, 1e-12),
        same("half-axes", half, centered, 1e-12),
        printed=[
            same("Q at the ends of the axes less 0", form, 0.0, 1e-12),
            same("axes less singular values", half, torch.linalg.svdvals(x).flip(0), 1e-12),
        ],
    )


def _volume_draws(draws: Draws, S: Tensor, count: int) -> Tensor:
    """The volume of the box around x^T S^-1 x <= 1 where a uniform point of it falls inside, else 0."""
    half = S.diagonal().sqrt()
    x = (2 * draws.uniform(count, len(S)) - 1) * half
    inside = (x * torch.linalg.solve(S, x.T).T).sum(1) <= 1
    volumes: Tensor = inside.double() * (2 * half).prod()
    return volumes


def _ball(d: int) -> float:
    return float(math.pi ** (d / 2) / math.gamma(d / 2 + 1))


@check("2.1c")
def volume(draws: Draws) -> Evidence:
    S = 2 * draws.covariance(3)
    found, root = _volume_draws(draws, S, 400_000), math.sqrt(float(torch.det(S)))
    return evidence(mean_is("volume", found, _ball(3) * root), printed=[mean_is("volume", found, _ball(3) / root)])


@check("2.1d")
def eigenvalues(draws: Draws) -> Evidence:
    general = draws.normal(6, 6)
    symmetric = general + general.T
    sizes = torch.linalg.eigvals(general).abs().sort(descending=True).values
    spectrum = torch.linalg.svdvals(general)
    absolute = torch.linalg.eigvalsh(symmetric).abs().sort(descending=True).values
    return evidence(
        same("symmetric: s less |lambda|", torch.linalg.svdvals(symmetric), absolute, 1e-12),
        equals("products", (spectrum.log() - sizes.log()).sum(), 0.0, 1e-12),
        printed=[same("s^2 less |lambda|", spectrum**2, sizes, 1e-6)],
        figures={"largest s^2": spectrum[0] ** 2, "largest |lambda|": sizes[0]},
    )


@check("2.1e")
def singular_vectors(draws: Draws) -> Evidence:
    x, square = draws.normal(9, 4), draws.normal(5, 5)
    U, s, Vh = torch.linalg.svd(x, full_matrices=False)
    _, t, Wh = torch.linalg.svd(square)
    return evidence(
        same("X^T X V less V D^2", x.T @ x @ Vh.T, Vh.T * s**2, 1e-10),
        same("X X^T U less U D^2", x @ x.T @ U, U * s**2, 1e-10),
        printed=[same("X X^T V less V D^2", square @ square.T @ Wh.T, Wh.T * t**2, 1e-10)],
    )


@check("2.1f")
def same_gaussian(draws: Draws) -> Evidence:
    n, d = 12, 3
    x = draws.normal(n, d)
    start = torch.cat([torch.ones(n, 1, dtype=torch.float64), draws.normal(n, n - 1)], 1)
    Q = torch.linalg.qr(start).Q
    turned = Q[:, :1] @ (Q[:, :1].T @ x) + Q[:, 1:] @ (draws.haar(n - 1) @ (Q[:, 1:].T @ x))
    first, second = sample_moments(x), sample_moments(turned)
    gap = float((x - turned).abs().max())
    diagonalizable = torch.tensor([[1.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
    P = torch.linalg.eig(diagonalizable).eigenvectors.real
    return evidence(
        same("means", first[0], second[0], 1e-12),
        same("covariances", first[1], second[1], 1e-12),
        at_least("data differ by", gap, 0.1),
        printed=[equals("data of one Gaussian differ by", gap, 0.0, 1e-6), same("P^T P", P.T @ P, torch.eye(2), 1e-6)],
    )


@check("2.1g")
def affine_map(draws: Draws) -> Evidence:
    x, a = draws.normal(50, 4), draws.normal(3, 4)
    mean, S = linear_image(*sample_moments(x), a)
    return evidence(same("mean", (x @ a.T).mean(0), mean, 1e-12), same("covariance", torch.cov((x @ a.T).T), S, 1e-12))


@check("2.2b")
def determinant_as_volume(draws: Draws) -> Evidence:
    S = 2 * draws.covariance(3)
    found, determinant = _volume_draws(draws, S, 400_000), float(torch.det(S))
    return evidence(
        mean_is("volume", found, _ball(3) * math.sqrt(determinant)),
        printed=[mean_is("volume", found, determinant), mean_is("volume", found, _ball(3) * determinant)],
    )


COUNT = 200_000


def _pair(draws: Draws, d: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return draws.normal(d), draws.covariance(d), draws.normal(d), draws.covariance(d)


def _printed_cross_entropy(mu1: Tensor, S1: Tensor, mu2: Tensor, S2: Tensor) -> Tensor:
    gap = mu1 - mu2
    rest = torch.linalg.solve(S2, S1).trace() + gap @ torch.linalg.solve(S2, gap)
    printed: Tensor = 0.5 * (len(gap) * math.log(2 * math.pi * math.e) + torch.logdet(S2) + rest)
    return printed


def _log_density(mu: Tensor, S: Tensor, x: Tensor) -> Tensor:
    """By torch's own law, so that nothing of ours judges itself."""
    density: Tensor = MultivariateNormal(mu, S).log_prob(x)  # type: ignore[no-untyped-call]
    return density


def _surprise(draws: Draws, pair: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    """-log q at draws of p."""
    return -_log_density(pair[2], pair[3], draws.gaussian(*pair[:2], COUNT))


@check("2.2a")
def gaussian_entropy(draws: Draws) -> Evidence:
    mu, S = draws.normal(4), draws.covariance(4)
    return evidence(mean_is("entropy", _surprise(draws, (mu, S, mu, S)), entropy(S)))


@check("2.2c")
def gaussian_cross_entropy(draws: Draws) -> Evidence:
    pair = _pair(draws, 4)
    surprise, printed, right = _surprise(draws, pair), _printed_cross_entropy(*pair), cross_entropy(*pair)
    return evidence(
        mean_is("cross-entropy", surprise, right),
        equals("excess", printed - right, 2.0, 1e-12),
        printed=[mean_is("cross-entropy", surprise, printed)],
    )


@check("2.2d")
def gaussian_kl(draws: Draws) -> Evidence:
    mu1, S1, mu2, S2 = _pair(draws, 4)
    x = draws.gaussian(mu1, S1, COUNT)
    gain = _log_density(mu1, S1, x) - _log_density(mu2, S2, x)
    own = _printed_cross_entropy(mu1, S1, mu1, S1) - entropy(S1)
    return evidence(
        mean_is("KL", gain, kl_divergence(mu1, S1, mu2, S2)),
        equals("KL(p || p)", kl_divergence(mu1, S1, mu1, S1), 0.0, 1e-12),
        printed=[equals("KL(p || p)", own, 0.0, 1e-12)],
    )


@check("2.2e")
def terms_of_cross_entropy(draws: Draws) -> Evidence:
    d = 4
    mu1, S1, mu2, S2 = _pair(draws, d)
    gap = mu1 - mu2
    squared = float(gap @ torch.linalg.solve(S2, gap))
    trace = 0.5 * float(torch.linalg.solve(S2, S1).trace())
    first = 0.5 * (d * math.log(2 * math.pi) + float(torch.logdet(S2)))
    third = float(cross_entropy(mu1, S1, mu2, S2)) - first - trace
    return evidence(
        equals("first", first, entropy(S2) - d / 2, 1e-12),
        equals("third", third, squared / 2, 1e-12),
        printed=[equals("first", first, entropy(S2), 1e-9), equals("third", third, math.sqrt(squared), 1e-9)],
    )


@check("2.2f")
def trace_term(draws: Draws) -> Evidence:
    S1, S2 = draws.covariance(4), draws.covariance(4)
    flat = torch.diag(S2.diagonal())

    def literal(T: Tensor) -> float:
        return float(((S1 * T).sum(0) / T.square().sum(0)).sum())

    def trace(T: Tensor) -> Tensor:
        found: Tensor = torch.linalg.solve(T, S1).trace()
        return found

    return evidence(
        equals("trace", trace(S2), linalg.eigh(S1.numpy(), S2.numpy(), eigvals_only=True).sum(), 1e-10),
        equals("diagonal S2: trace", trace(flat), literal(flat), 1e-10),
        printed=[equals("trace", trace(S2), literal(S2), 1e-6)],
    )


@check("2.2g")
def gaussian_jsd(draws: Draws) -> Evidence:
    one, zero, four = torch.eye(1, dtype=torch.float64), torch.zeros(1).double(), torch.full((1,), 4.0).double()
    exact, matched = jensen_shannon(zero, one, four, one), float(moment_matched_jsd(zero, one, four, one))
    x = torch.cat([draws.normal(COUNT), draws.normal(COUNT) + 4])
    log_m = torch.logaddexp(-0.5 * x**2, -0.5 * (x - 4) ** 2) - math.log(2) - 0.5 * math.log(2 * math.pi)
    log_g = -0.5 * (x - 2) ** 2 / 5 - 0.5 * math.log(2 * math.pi * 5)
    pair = _pair(draws, 3)
    drawn = jensen_shannon(*pair, samples=20_000, seed=draws.seed())
    again = jensen_shannon(*pair, samples=20_000, seed=draws.seed())
    error = math.hypot(float(drawn.standard_error), float(again.standard_error))
    # Both halves of the sample come from one component each, so their mean is stratified: errors are a little too wide.
    return evidence(
        equals("gap 4: divergence", exact.value, 0.6327, 5e-5),
        at_most("gap 4: divergence", exact.value, math.log(2)),
        mean_is("moment-matched less divergence", log_m - log_g, matched - float(exact.value)),
        equals("two seeds", drawn.value, again.value, 4 * error),
        figures={"moment-matched": matched, "averaged parameters": 2.0, "log 2": math.log(2)},
    )


@check("2.2h")
def root_is_a_metric(draws: Draws) -> Evidence:
    mean, sd = 2 * draws.normal(900, 3, 1), 0.2 + 2 * draws.uniform(900, 3, 1)

    def divergence(i: int, j: int) -> Tensor:
        return jensen_shannon(mean[:, i], sd[:, i, :, None] ** 2, mean[:, j], sd[:, j, :, None] ** 2).value

    first, second, whole = divergence(0, 1), divergence(1, 2), divergence(0, 2)
    detour = first.sqrt() + second.sqrt()
    return evidence(
        equals("violations by the root", (whole.sqrt() > detour + 1e-9).sum(), 0, 0),
        at_least("violations by the divergence", (whole > first + second + 1e-9).sum(), 1),
    )


@check("2.2i")
def gaussian_information(draws: Draws) -> Evidence:
    S, zero = draws.covariance(4), torch.zeros(4, dtype=torch.float64)
    z = draws.gaussian(zero, S, COUNT)
    parts = [_log_density(zero[:2], S[i : i + 2, i : i + 2], z[:, i : i + 2]) for i in (0, 2)]
    gain = _log_density(zero, S, z) - parts[0] - parts[1]
    formula = 0.5 * (torch.logdet(S[:2, :2]) + torch.logdet(S[2:, 2:]) - torch.logdet(S))
    found = mutual_information(S[:2, :2], S[2:, 2:], S[:2, 2:])
    return evidence(mean_is("information", gain, found), equals("formula", formula, found, 1e-12))


@check("2.2j")
def plug_in(draws: Draws) -> Evidence:
    n, p, q = 1000, 5, 6
    x = draws.normal(200, n, p + q)
    plain = information_estimate(x[..., :p], x[..., p:], correct=False)
    corrected = information_estimate(x[..., :p], x[..., p:])
    raw = x[0] + 1.5
    S = raw.T @ raw / (n - 1)
    uncentered = mutual_information(S[:p, :p], S[p:, p:], S[:p, p:])
    S = sample_moments(raw)[1]
    return evidence(
        near("mean plug-in of independent vectors", plain.mean(), p * q / (2 * n), 0.1),
        mean_is("corrected", corrected, 0.0),
        equals("centered", mutual_information(S[:p, :p], S[p:, p:], S[:p, p:]), 0.0, 0.1),
        printed=[equals("uncentered information", uncentered, 0.0, 0.1)],
    )


@check("2.2k")
def joint_entropy(draws: Draws) -> Evidence:
    S = draws.covariance(5)
    rho = canonical_correlations(S[:2, :2], S[2:, 2:], S[:2, 2:])
    information = -0.5 * torch.log1p(-(rho**2)).sum()
    none = mutual_information(S[:2, :2], S[2:, 2:], torch.zeros(2, 3, dtype=torch.float64))
    return evidence(
        equals("joint entropy", entropy(S), entropy(S[:2, :2]) + entropy(S[2:, 2:]) - information, 1e-12),
        equals("information of independent vectors", none, 0.0, 1e-12),
    )
