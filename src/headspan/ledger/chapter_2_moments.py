"""Chapter 2 of the thesis, section 1: moments of Gaussians, their ellipsoids, and singular values."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import linear_image, sample_moments
from headspan.ledger.claim import check
from headspan.ledger.trial import Draws, Evidence, at_least, at_most, equals, evidence, mean_is, same


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
