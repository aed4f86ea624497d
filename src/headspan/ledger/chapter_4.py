"""Chapter 4 of the thesis: the joint Gaussian of a sequence under linear maps, and a token's own covariance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headspan.distributions import (
    JointGaussian,
    bigram_joint,
    entropy,
    entropy_change,
    kl_divergence,
    linear_image,
    mutual_information,
    pairwise_information,
    sample_moments,
    token_moments,
)
from headspan.ledger.claim import check
from headspan.ledger.running import next_token_laws
from headspan.ledger.trial import Draws, Evidence, at_least, at_most, equals, evidence, near, same
from headspan.subspaces import numerical_rank

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint


def _joint(draws: Draws, n: int, d: int) -> JointGaussian:
    blocks = draws.covariance(n * d).reshape(n, d, n, d).transpose(1, 2).contiguous()
    return JointGaussian(draws.normal(n, d), blocks)


@check("4.1a")
def blocks(draws: Draws) -> Evidence:
    x = draws.normal(60, 4, 3)
    joint = JointGaussian.from_samples(x)
    by_hand = (x[:, 1] - x[:, 1].mean(0)).T @ (x[:, 3] - x[:, 3].mean(0)) / 59
    return evidence(
        same("Sigma_ij less Sigma_ji^T", joint.blocks, joint.blocks.transpose(0, 1).mT, 1e-12),
        same("Sigma_24", joint.row(1)[3], by_hand, 1e-12),
    )


@check("4.1b")
def definite(draws: Draws) -> Evidence:
    m, d = 8, 12
    rank = numerical_rank(sample_moments(draws.normal(m, d))[1])
    return evidence(equals("rank", rank, m - 1, 0), printed=[at_least("rank", rank, d)])


@check("4.2a")
def determinant_of_a_block(draws: Draws) -> Evidence:
    eye = torch.eye(2, dtype=torch.float64)
    Q, R = draws.haar(2), draws.haar(2)

    def information(*rho: float) -> Tensor:
        return mutual_information(eye, eye, Q @ torch.diag(torch.tensor(rho, dtype=torch.float64)) @ R)

    none, some = information(0.9, 0.0), information(0.3, 0.3)
    return evidence(
        equals("information at determinant 0", none, -0.5 * math.log(1 - 0.81), 1e-12),
        equals("information at determinant 0.09", some, -math.log(1 - 0.09), 1e-12),
        printed=[at_most("information at determinant 0", none, some)],
    )


@check("4.2b")
def mapped_blocks(draws: Draws) -> Evidence:
    joint, L = _joint(draws, 3, 2), draws.normal(2, 2)
    found, whole = joint.image(L), torch.kron(torch.eye(3, dtype=torch.float64), L)
    return evidence(
        same("covariance", found.dense(), whole @ joint.dense() @ whole.T, 1e-12),
        same("mean", found.mean.flatten(), whole @ joint.mean.flatten(), 1e-12),
    )


@check("4.2.2a")
def entropy_under_maps(draws: Draws) -> Evidence:
    joint, L = _joint(draws, 3, 4), draws.normal(4, 4)
    S = joint.marginals()[0]
    shift = entropy(L @ S @ L.T) - entropy(S)
    whole = entropy(joint.image(L).dense()) - entropy(joint.dense())
    negative = torch.diag(torch.tensor([-2.0, 1, 1, 1], dtype=torch.float64))
    return evidence(
        equals("shift", shift, entropy_change(L), 1e-10),
        equals("shift by singular values", shift, torch.linalg.svdvals(L).log().sum(), 1e-10),
        equals("shift of three vectors", whole, 3 * entropy_change(L), 1e-10),
        equals("shift at det = -2", entropy(negative @ S @ negative) - entropy(S), math.log(2), 1e-10),
    )


@check("4.2.2b")
def pair_under_maps(draws: Draws) -> Evidence:
    joint, L = _joint(draws, 2, 3), draws.normal(3, 3)
    after = joint.image(L)
    ratio = torch.logdet(after.dense()) - torch.logdet(joint.dense())
    return evidence(
        equals("log ratio of determinants", ratio, 4 * entropy_change(L), 1e-10),
        equals("information", pairwise_information(after)[0, 1], pairwise_information(joint)[0, 1], 1e-10),
    )


def _information_by_quadrature(u: Tensor, density: Tensor) -> float:
    """sum p log(p / (p_u p_v)) with the trapezoid rule on the points u of both variables."""
    width = torch.zeros_like(u)
    width[1:] += u.diff() / 2
    width[:-1] += u.diff() / 2
    first, second = density @ width, width @ density
    ratio = torch.where(density > 0, density / (first[:, None] * second), 1.0)
    return float(width @ (density * ratio.log()) @ width)


@check("4.2.2c")
def information_under_maps(draws: Draws) -> Evidence:
    rho = 0.7
    x = torch.linspace(-7, 7, 901, dtype=torch.float64)
    joint = torch.exp(-(x[:, None] ** 2 - 2 * rho * x[:, None] * x + x**2) / (2 * (1 - rho**2)))
    joint = joint / (2 * math.pi * math.sqrt(1 - rho**2))
    exact = -0.5 * math.log(1 - rho**2)
    bent = _information_by_quadrature(x.sinh(), joint / (x.cosh()[:, None] * x.cosh()))
    S, L = draws.covariance(6), draws.normal(2, 3)
    before = mutual_information(S[:3, :3], S[3:, 3:], S[:3, 3:])
    after = mutual_information(L @ S[:3, :3] @ L.T, L @ S[3:, 3:] @ L.T, L @ S[:3, 3:] @ L.T)
    return evidence(
        equals("after sinh of both", bent, exact, 1e-4),
        at_most("after a map of rank 2", after, before),
        printed=[
            equals("after a linear map of rank 2", after, before, 1e-6),
            at_least("change under sinh", abs(bent - exact), 1e-3),
        ],
        figures={"before": before, "after": after},
    )


@check("4.2.2d")
def kl_under_maps(draws: Draws) -> Evidence:
    p, q = (draws.normal(4), draws.covariance(4)), (draws.normal(4), draws.covariance(4))
    L = draws.haar(4) @ torch.diag(0.5 + draws.uniform(4)) @ draws.haar(4)
    before = kl_divergence(*p, *q)
    return evidence(
        equals(
            "divergence", kl_divergence(*linear_image(*p, L), *linear_image(*q, L)), before, 1e-10 * float(before + 1)
        )
    )


def _simple_covariance(V: Tensor, laws: Tensor, top: int = 5) -> Tensor:
    """Covariance [law, d, d] of the likeliest successors, the rest as noise that keeps the trace."""
    full, kept = token_moments(V, laws)[1], token_moments(V, laws, top=top)[1]
    lost = (full - kept).diagonal(dim1=-2, dim2=-1).mean(-1).clamp(min=0)
    return kept + lost[:, None, None] * torch.eye(V.shape[-1], dtype=V.dtype)


@check("4.2.3")
def bigram(draws: Draws, checkpoint: Checkpoint | None = None) -> Evidence:
    if checkpoint is None:
        return _bigram_moments(draws)
    V, laws = next_token_laws(checkpoint)
    average = laws.mean(0, keepdim=True)

    def error(P: Tensor) -> Tensor:
        full = token_moments(V, P)[1]
        off = torch.linalg.matrix_norm(_simple_covariance(V, P) - full) / torch.linalg.matrix_norm(full)
        mean: Tensor = off.mean()
        return mean

    given, without = (P.topk(5).values.sum(-1) for P in (laws, average))
    return evidence(
        at_least("probability of five successors, gained by the token before", given.mean() - without.mean(), 0.1),
        at_most("error of their covariance, over that without the token before", error(laws) / error(average), 0.9),
        figures={
            "probability of five successors": given.mean(),
            "share of tokens with more than 0.9": (given > 0.9).double().mean(),
            "relative error of their covariance": error(laws),
        },
    )


def _bigram_moments(draws: Draws) -> Evidence:
    """That these are the model's moments, for any tokens."""
    V, P = draws.normal(5, 3), draws.normal(5, 5).softmax(-1)
    start, noise = draws.normal(5).softmax(-1), 0.1
    joint = bigram_joint(V, start, P, 2, noise)
    weight = start[:, None] * P
    cross = torch.einsum("ab,ai,bj->ij", weight, V, V) - torch.outer(start @ V, start @ P @ V)
    mean, S = token_moments(V, P[2], noise=noise)
    expected = (
        torch.einsum("a,ai,aj->ij", P[2], V, V) - torch.outer(mean, mean) + noise * torch.eye(3, dtype=torch.float64)
    )
    return evidence(
        same("covariance with the token before", joint.row(0)[1], cross, 1e-12),
        same("covariance given a token", S, expected, 1e-12),
    )


def _tokens(draws: Draws, k: int, d: int) -> tuple[Tensor, Tensor]:
    """Unit vectors in rows, and their probabilities."""
    return draws.sphere(k, d), draws.normal(k).softmax(0)


@check("4.3a")
def stacking(draws: Draws) -> Evidence:
    V = draws.sphere(4, 6)
    counts = torch.tensor([8, 6, 4, 2])
    share = counts / counts.sum().double()
    rows = V.repeat_interleave(counts, 0)
    second = rows.T @ rows / len(rows)
    mean, S = token_moments(V, share)
    return evidence(
        same("second moment", second, (V.T * share) @ V, 1e-12),
        same("covariance", S, second - torch.outer(mean, mean), 1e-12),
        equals("trace", second.trace(), 1.0, 1e-12),
        printed=[same("second moment", second, (V.T * share**2) @ V, 1e-3)],
        figures={"trace as printed": (share**2).sum()},
    )


@check("4.3b")
def rank(draws: Draws) -> Evidence:
    V, share = _tokens(draws, 5, 9)
    return evidence(
        equals("rank of the second moment", numerical_rank((V.T * share) @ V), 5, 0),
        equals("rank of the covariance", numerical_rank(token_moments(V, share)[1]), 4, 0),
    )


@check("4.3c")
def gram(draws: Draws) -> Evidence:
    V, share = _tokens(draws, 5, 9)
    Y = V.T * share
    gram_values = torch.linalg.eigvalsh(Y.T @ Y)
    return evidence(
        same("spectra", torch.linalg.eigvalsh(Y @ Y.T)[-5:], gram_values, 1e-12),
        equals("trace", gram_values.sum(), (share**2).sum(), 1e-12),
        equals("trace for sqrt(lambda)", (V.T * share.sqrt()).square().sum(), 1.0, 1e-12),
    )


@check("4.3d")
def gram_determinant(draws: Draws) -> Evidence:
    V, share = _tokens(draws, 5, 9)
    Y = V.T * share
    found = torch.logdet(Y.T @ Y)
    simple = 2 * share.log().sum() + torch.logdet(V @ V.T)
    gap = (found - simple).abs()
    return evidence(
        equals("log determinant", found, simple, 1e-10),
        printed=[at_least("relative error of the simple form", gap, 1e-3)],
    )


def _pair_gram(first: float, second: float, cosine: float) -> Tensor:
    cross = first * second * cosine
    return torch.tensor([[first**2, cross], [cross, second**2]], dtype=torch.float64)


@check("4.3.2a")
def two_tokens(draws: Draws) -> Evidence:
    first, second, cosine = 0.7, 0.3, float(2 * draws.uniform(1) - 1)
    root = math.sqrt((first**2 - second**2) ** 2 + 4 * (first * second * cosine) ** 2)
    formula = torch.tensor([first**2 + second**2 - root, first**2 + second**2 + root], dtype=torch.float64) / 2
    return evidence(same("eigenvalues", torch.linalg.eigvalsh(_pair_gram(first, second, cosine)), formula, 1e-12))


@check("4.3.2b")
def equal_weights(draws: Draws) -> Evidence:
    weight, cosine = 0.3, 0.6
    found = torch.linalg.eigvalsh(_pair_gram(weight, weight, cosine))
    spread = torch.tensor([1 - cosine, 1 + cosine], dtype=torch.float64)
    rooted = torch.linalg.eigvalsh(_pair_gram(math.sqrt(weight), math.sqrt(weight), cosine))
    return evidence(
        same("eigenvalues", found, weight**2 * spread, 1e-12),
        same("eigenvalues for sqrt(lambda)", rooted, weight * spread, 1e-12),
        printed=[same("eigenvalues", found, weight * spread, 1e-12)],
        figures={"smaller": found[0], "larger": found[1]},
    )


@check("4.3.2c")
def spread_of_spectrum(draws: Draws) -> Evidence:
    k = 12
    V = draws.sphere(k, 40)
    cosines = V @ V.T
    variance = torch.linalg.eigvalsh(cosines).var(correction=0)
    return evidence(equals("variance of eigenvalues", variance, (cosines.square().sum() - k) / k, 1e-10))


@check("4.3.2d")
def thin_shell(draws: Draws) -> Evidence:
    d = 256
    radius = torch.linalg.vector_norm(draws.normal(20_000, d), dim=1)
    return evidence(near("relative deviation", radius.std() / radius.mean(), 1 / math.sqrt(2 * d), 0.05))
