"""Chapter 4 of the thesis, section 3: the spectrum of a token's own covariance."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import token_moments
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, at_least, equals, near, same
from headspan.subspaces import numerical_rank

claim = ClaimsOf("003")


def _tokens(draws: Draws, k: int, d: int) -> tuple[Tensor, Tensor]:
    """Unit vectors in rows, and their probabilities."""
    return draws.sphere(k, d), draws.normal(k).softmax(0)


@claim(
    "4.3a",
    kind="formula",
    status="wrong",
    statement="Stacked by frequency, tokens have Y Y^T = sum lambda_i^2 v_i v_i^T.",
    correction="Frequencies enter once: sum lambda_i v_i v_i^T, as if columns were scaled by sqrt(lambda); the "
    "covariance also subtracts mu mu^T.",
    tolerance="1e-12",
    reference="thesis 4.3",
)
def stacking(draws: Draws) -> Evidence:
    V = draws.sphere(4, 6)
    counts = torch.tensor([8, 6, 4, 2])
    share = counts / counts.sum().double()
    rows = V.repeat_interleave(counts, 0)
    second = rows.T @ rows / len(rows)
    mean, S = token_moments(V, share)
    return Evidence(
        printed=(same("second moment", second, (V.T * share**2) @ V, 1e-3),),
        truth=(
            same("second moment", second, (V.T * share) @ V, 1e-12),
            same("covariance", S, second - torch.outer(mean, mean), 1e-12),
            equals("trace", second.trace(), 1.0, 1e-12),
        ),
        figures={"trace as printed": float((share**2).sum())},
    )


@claim(
    "4.3b",
    kind="text",
    status="holds",
    statement="At most k singular values are not 0.",
    correction="k for the second moment, k - 1 for the covariance.",
    tolerance="exact",
    reference="thesis 4.3",
)
def rank(draws: Draws) -> Evidence:
    V, share = _tokens(draws, 5, 9)
    return Evidence(
        truth=(
            equals("rank of the second moment", numerical_rank((V.T * share) @ V), 5, 0),
            equals("rank of the covariance", numerical_rank(token_moments(V, share)[1]), 4, 0),
        )
    )


@claim(
    "4.3c",
    kind="formula",
    status="holds",
    statement="Gram matrix and covariance have the same non-zero spectrum, and tr(Y^T Y) = sum lambda^2.",
    correction="For columns scaled by lambda, as printed; scaled by sqrt(lambda) the trace is 1.",
    tolerance="1e-12",
    reference="thesis 4.3",
)
def gram(draws: Draws) -> Evidence:
    V, share = _tokens(draws, 5, 9)
    Y = V.T * share
    gram_values = torch.linalg.eigvalsh(Y.T @ Y)
    return Evidence(
        truth=(
            same("spectra", torch.linalg.eigvalsh(Y @ Y.T)[-5:], gram_values, 1e-12),
            equals("trace", gram_values.sum(), (share**2).sum(), 1e-12),
            equals("trace for sqrt(lambda)", (V.T * share.sqrt()).square().sum(), 1.0, 1e-12),
        )
    )


@claim(
    "4.3d",
    kind="text",
    status="wrong",
    statement="det(Y^T Y) cannot be had in a simple way.",
    correction="It is prod lambda_i^2 times the determinant of the matrix of cosines.",
    tolerance="1e-10 relative",
    reference="thesis 4.3",
)
def gram_determinant(draws: Draws) -> Evidence:
    V, share = _tokens(draws, 5, 9)
    Y = V.T * share
    found = torch.logdet(Y.T @ Y)
    simple = 2 * share.log().sum() + torch.logdet(V @ V.T)
    gap = (found - simple).abs()
    return Evidence(
        printed=(at_least("relative error of the simple form", gap, 1e-3),),
        truth=(equals("log determinant", found, simple, 1e-10),),
    )


def _pair_gram(first: float, second: float, cosine: float) -> Tensor:
    cross = first * second * cosine
    return torch.tensor([[first**2, cross], [cross, second**2]], dtype=torch.float64)


@claim(
    "4.3.2a",
    kind="formula",
    status="holds",
    statement="Eigenvalues of the Gram matrix of two tokens.",
    correction="[l1^2 + l2^2 ± sqrt((l1^2 - l2^2)^2 + 4 l1^2 l2^2 alpha^2)] / 2.",
    tolerance="1e-12",
    reference="thesis 4.3.2",
)
def two_tokens(draws: Draws) -> Evidence:
    first, second, cosine = 0.7, 0.3, float(2 * draws.uniform(1) - 1)
    root = math.sqrt((first**2 - second**2) ** 2 + 4 * (first * second * cosine) ** 2)
    formula = torch.tensor([first**2 + second**2 - root, first**2 + second**2 + root], dtype=torch.float64) / 2
    return Evidence(
        truth=(same("eigenvalues", torch.linalg.eigvalsh(_pair_gram(first, second, cosine)), formula, 1e-12),)
    )


@claim(
    "4.3.2b",
    kind="formula",
    status="wrong",
    statement="Two tokens of equal weight lambda have the eigenvalues lambda (1 ± alpha).",
    correction="lambda^2 (1 ± alpha) for the Gram matrix as printed; lambda (1 ± alpha) only when columns are scaled "
    "by sqrt(lambda) (4.3a).",
    tolerance="1e-12",
    reference="thesis 4.3.2",
)
def equal_weights(draws: Draws) -> Evidence:
    weight, cosine = 0.3, 0.6
    found = torch.linalg.eigvalsh(_pair_gram(weight, weight, cosine))
    spread = torch.tensor([1 - cosine, 1 + cosine], dtype=torch.float64)
    rooted = torch.linalg.eigvalsh(_pair_gram(math.sqrt(weight), math.sqrt(weight), cosine))
    return Evidence(
        printed=(same("eigenvalues", found, weight * spread, 1e-12),),
        truth=(
            same("eigenvalues", found, weight**2 * spread, 1e-12),
            same("eigenvalues for sqrt(lambda)", rooted, weight * spread, 1e-12),
        ),
        figures={"smaller": float(found[0]), "larger": float(found[1])},
    )


@claim(
    "4.3.2c",
    kind="text",
    status="holds",
    statement="Larger cosines spread the spectrum.",
    correction="Exactly: the variance of the eigenvalues of k unit vectors' Gram matrix is sum_(i != j) alpha_ij^2 / "
    "k.",
    tolerance="1e-10",
    reference="thesis 4.3.2",
)
def spread_of_spectrum(draws: Draws) -> Evidence:
    k = 12
    V = draws.sphere(k, 40)
    cosines = V @ V.T
    variance = torch.linalg.eigvalsh(cosines).var(correction=0)
    return Evidence(truth=(equals("variance of eigenvalues", variance, (cosines.square().sum() - k) / k, 1e-10),))


@claim(
    "4.3.2d",
    kind="text",
    status="asymptotic",
    statement="A Gaussian of high dimension resembles a sphere.",
    correction="The radius varies by 1 / sqrt(2 d) of its mean.",
    tolerance="5 % at d = 256",
    reference="thesis 4.3.2",
)
def thin_shell(draws: Draws) -> Evidence:
    d = 256
    radius = torch.linalg.vector_norm(draws.normal(20_000, d), dim=1)
    return Evidence(truth=(near("relative deviation", radius.std() / radius.mean(), 1 / math.sqrt(2 * d), 0.05),))
