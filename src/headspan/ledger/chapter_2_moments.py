"""Chapter 2 of the thesis, section 1: moments of Gaussians, their ellipsoids, and singular values."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import mapped, sample_moments
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, at_least, at_most, equals, mean_is, same

claim = ClaimsOf("003")


@claim(
    "2.1a",
    kind="text",
    status="wrong",
    statement="The covariance with divisor n - 1 is the maximum-likelihood estimate of a Gaussian.",
    correction="The likelihood is largest for divisor n; n - 1 makes the estimate unbiased instead.",
    tolerance="the gain is (n d / 2) log(n / (n - 1)) - d / 2 to 1e-8",
    reference="thesis 2.1",
)
def likelihood(draws: Draws) -> Evidence:
    n, d = 40, 3
    x = draws.normal(n, d)
    logs = []
    for unbiased in (False, True):
        mean, S = sample_moments(x, unbiased=unbiased)
        law = torch.distributions.MultivariateNormal(mean, S)
        logs.append(float(law.log_prob(x).sum()))  # type: ignore[no-untyped-call]
    gain = logs[0] - logs[1]
    return Evidence(
        printed=(at_most("gain of divisor n", gain, 0.0),),
        truth=(equals("gain of divisor n", gain, n * d / 2 * math.log(n / (n - 1)) - d / 2, 1e-8),),
    )


@claim(
    "2.1b",
    kind="text",
    status="wrong",
    statement="The ellipsoid of a Gaussian is where its quadratic form Q is 0, with the singular values of X as axes.",
    correction="Q = 0 is the mean alone. Q = 1 is the ellipsoid, with half-axes s_i(centred X) / sqrt(n - 1).",
    tolerance="1e-12",
    reference="thesis 2.1",
)
def half_axes(draws: Draws) -> Evidence:
    x = draws.normal(30, 4) + 1
    mean, S = sample_moments(x)
    values, axes = torch.linalg.eigh(S)
    half = values.sqrt()
    ends = half * axes
    form = (ends * torch.linalg.solve(S, ends)).sum(0)
    centred = torch.linalg.svdvals(x - mean).flip(0) / math.sqrt(len(x) - 1)
    return Evidence(
        printed=(
            same("Q at the ends of the axes less 0", form, 0.0, 1e-12),
            same("axes less singular values", half, torch.linalg.svdvals(x).flip(0), 1e-12),
        ),
        truth=(same("Q at the ends of the axes less 1", form, 1.0, 1e-12), same("half-axes", half, centred, 1e-12)),
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


@claim(
    "2.1c",
    kind="formula",
    status="wrong",
    statement="The volume of the ellipsoid is in proportion to 1 / sqrt|Sigma|.",
    correction="It is pi^(d/2) / Gamma(d/2 + 1) sqrt|Sigma|; the inverse root belongs to the height of the density.",
    tolerance="4 standard errors",
    reference="thesis 2.1",
)
def volume(draws: Draws) -> Evidence:
    S = 2 * draws.covariance(3)
    found, root = _volume_draws(draws, S, 400_000), math.sqrt(float(torch.det(S)))
    return Evidence(
        printed=(mean_is("volume", found, _ball(3) / root),), truth=(mean_is("volume", found, _ball(3) * root),)
    )


@claim(
    "2.1d",
    kind="text",
    status="wrong",
    statement="Squared singular values are the absolute eigenvalues.",
    correction="For normal matrices s_i = |lambda_i|, not squared; in general only the products over all i agree.",
    tolerance="1e-12",
    reference="thesis 2.1",
)
def eigenvalues(draws: Draws) -> Evidence:
    general = draws.normal(6, 6)
    symmetric = general + general.T
    sizes = torch.linalg.eigvals(general).abs().sort(descending=True).values
    spectrum = torch.linalg.svdvals(general)
    absolute = torch.linalg.eigvalsh(symmetric).abs().sort(descending=True).values
    return Evidence(
        printed=(same("s^2 less |lambda|", spectrum**2, sizes, 1e-6),),
        truth=(
            same("symmetric: s less |lambda|", torch.linalg.svdvals(symmetric), absolute, 1e-12),
            equals("products", (spectrum.log() - sizes.log()).sum(), 0.0, 1e-12),
        ),
        figures={"largest s^2": float(spectrum[0] ** 2), "largest |lambda|": float(sizes[0])},
    )


@claim(
    "2.1e",
    kind="typo",
    status="wrong",
    statement="In X = U D V^T (n x d) the columns of V are eigenvectors of X X^T, those of U of X^T X.",
    correction="The other way round: V belongs to X^T X, and U to X X^T.",
    tolerance="1e-10",
    reference="thesis 2.1",
)
def singular_vectors(draws: Draws) -> Evidence:
    x, square = draws.normal(9, 4), draws.normal(5, 5)
    U, s, Vh = torch.linalg.svd(x, full_matrices=False)
    _, t, Wh = torch.linalg.svd(square)
    return Evidence(
        printed=(same("X X^T V less V D^2", square @ square.T @ Wh.T, Wh.T * t**2, 1e-10),),
        truth=(
            same("X^T X V less V D^2", x.T @ x @ Vh.T, Vh.T * s**2, 1e-10),
            same("X X^T U less U D^2", x @ x.T @ U, U * s**2, 1e-10),
        ),
    )


@claim(
    "2.1f",
    kind="text",
    status="wrong",
    statement="A diagonalizable X is Q L Q^T, and data and fitted Gaussian determine each other.",
    correction="Orthogonal Q needs a symmetric X. Any rotation of the samples that keeps their mean gives other data "
    "with the same mean and covariance.",
    tolerance="1e-12",
    reference="thesis 2.1",
)
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
    return Evidence(
        printed=(equals("data of one Gaussian differ by", gap, 0.0, 1e-6), same("P^T P", P.T @ P, torch.eye(2), 1e-6)),
        truth=(
            same("means", first[0], second[0], 1e-12),
            same("covariances", first[1], second[1], 1e-12),
            at_least("data differ by", gap, 0.1),
        ),
    )


@claim(
    "2.1g",
    kind="formula",
    status="holds",
    statement="Under an affine map A the mean becomes A mu and the covariance A Sigma A^T.",
    correction="A has the shape m x d; the printed shape is n x m.",
    tolerance="1e-12",
    reference="thesis 2.1",
)
def affine_map(draws: Draws) -> Evidence:
    x, a = draws.normal(50, 4), draws.normal(3, 4)
    mean, S = mapped(*sample_moments(x), a)
    return Evidence(
        truth=(
            same("mean", (x @ a.T).mean(0), mean, 1e-12),
            same("covariance", torch.cov((x @ a.T).T), S, 1e-12),
        )
    )


@claim(
    "2.2b",
    kind="text",
    status="wrong",
    statement="|Sigma| is the volume of the ellipsoid.",
    correction="The volume goes with the root of the determinant (2.1c).",
    tolerance="4 standard errors",
    reference="thesis 2.2",
)
def determinant_as_volume(draws: Draws) -> Evidence:
    S = 2 * draws.covariance(3)
    found, determinant = _volume_draws(draws, S, 400_000), float(torch.det(S))
    return Evidence(
        printed=(mean_is("volume", found, determinant), mean_is("volume", found, _ball(3) * determinant)),
        truth=(mean_is("volume", found, _ball(3) * math.sqrt(determinant)),),
    )
