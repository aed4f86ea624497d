"""Chapter 4 of the thesis, sections 1 and 2: the joint Gaussian of a sequence, under linear maps."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import (
    JointGaussian,
    bigram_joint,
    entropy,
    entropy_change,
    kl_divergence,
    mapped,
    mutual_information,
    pairwise_information,
    sample_moments,
    token_moments,
)
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, at_least, at_most, equals, same
from headspan.subspaces import numerical_rank

claim = ClaimsOf("003")


def _joint(draws: Draws, n: int, d: int) -> JointGaussian:
    blocks = draws.covariance(n * d).reshape(n, d, n, d).transpose(1, 2).contiguous()
    return JointGaussian(draws.normal(n, d), blocks)


@claim(
    "4.1a",
    kind="formula",
    status="holds",
    statement="The covariance of a sequence is made of blocks with Sigma_ij = Sigma_ji^T.",
    tolerance="1e-12",
    reference="thesis 4.1",
)
def blocks(draws: Draws) -> Evidence:
    x = draws.normal(60, 4, 3)
    joint = JointGaussian.from_samples(x)
    by_hand = (x[:, 1] - x[:, 1].mean(0)).T @ (x[:, 3] - x[:, 3].mean(0)) / 59
    return Evidence(
        truth=(
            same("Sigma_ij less Sigma_ji^T", joint.blocks, joint.blocks.transpose(0, 1).mT, 1e-12),
            same("Sigma_24", joint.row(1)[3], by_hand, 1e-12),
        )
    )


@claim(
    "4.1b",
    kind="text",
    status="wrong",
    statement="The fitted covariance of a sequence is positive definite.",
    correction="Positive semidefinite: its rank is at most the number of samples less one.",
    tolerance="the rank is exactly samples - 1",
    reference="thesis 4.1",
)
def definite(draws: Draws) -> Evidence:
    m, d = 8, 12
    rank = numerical_rank(sample_moments(draws.normal(m, d))[1])
    return Evidence(printed=(at_least("rank", rank, d),), truth=(equals("rank", rank, m - 1, 0),))


@claim(
    "4.2a",
    kind="text",
    status="wrong",
    statement="The determinant of Sigma_ij governs the information between x_i and x_j.",
    correction="The canonical correlations do, I = -1/2 sum log(1 - rho_k^2): a block of determinant 0 may carry more "
    "than one of determinant 0.09.",
    tolerance="1e-12",
    reference="thesis 4.2",
)
def determinant_of_a_block(draws: Draws) -> Evidence:
    eye = torch.eye(2, dtype=torch.float64)
    Q, R = draws.haar(2), draws.haar(2)

    def information(*rho: float) -> Tensor:
        return mutual_information(eye, eye, Q @ torch.diag(torch.tensor(rho, dtype=torch.float64)) @ R)

    none, some = information(0.9, 0.0), information(0.3, 0.3)
    return Evidence(
        printed=(at_most("information at determinant 0", none, some),),
        truth=(
            equals("information at determinant 0", none, -0.5 * math.log(1 - 0.81), 1e-12),
            equals("information at determinant 0.09", some, -math.log(1 - 0.09), 1e-12),
        ),
    )


@claim(
    "4.2b",
    kind="formula",
    status="holds",
    statement="A map L of every vector gives blocks L Sigma_ij L^T and means L mu_i.",
    correction="In one matrix, (I x L) Sigma (I x L)^T.",
    tolerance="1e-12",
    reference="thesis 4.2",
)
def mapped_blocks(draws: Draws) -> Evidence:
    joint, L = _joint(draws, 3, 2), draws.normal(2, 2)
    found, whole = joint.mapped(L), torch.kron(torch.eye(3, dtype=torch.float64), L)
    return Evidence(
        truth=(
            same("covariance", found.dense(), whole @ joint.dense() @ whole.T, 1e-12),
            same("mean", found.mean.flatten(), whole @ joint.mean.flatten(), 1e-12),
        )
    )


@claim(
    "4.2.2a",
    kind="formula",
    status="holds",
    statement="H(L X) = H(X) + log|det L|, the sum of the logs of the singular values.",
    correction="It is the size of the determinant that counts, not its sign; a whole sequence shifts by n log|det L|.",
    tolerance="1e-10",
    reference="thesis 4.2.2",
)
def entropy_under_maps(draws: Draws) -> Evidence:
    joint, L = _joint(draws, 3, 4), draws.normal(4, 4)
    S = joint.marginals()[0]
    shift = entropy(L @ S @ L.T) - entropy(S)
    whole = entropy(joint.mapped(L).dense()) - entropy(joint.dense())
    negative = torch.diag(torch.tensor([-2.0, 1, 1, 1], dtype=torch.float64))
    return Evidence(
        truth=(
            equals("shift", shift, entropy_change(L), 1e-10),
            equals("shift by singular values", shift, torch.linalg.svdvals(L).log().sum(), 1e-10),
            equals("shift of three vectors", whole, 3 * entropy_change(L), 1e-10),
            equals("shift at det = -2", entropy(negative @ S @ negative) - entropy(S), math.log(2), 1e-10),
        )
    )


@claim(
    "4.2.2b",
    kind="formula",
    status="holds",
    statement="For a pair det Sigma becomes det(L)^4 det Sigma, and the mutual information stays.",
    correction="For square invertible L.",
    tolerance="1e-10",
    reference="thesis 4.2.2",
)
def pair_under_maps(draws: Draws) -> Evidence:
    joint, L = _joint(draws, 2, 3), draws.normal(3, 3)
    after = joint.mapped(L)
    ratio = torch.logdet(after.dense()) - torch.logdet(joint.dense())
    return Evidence(
        truth=(
            equals("log ratio of determinants", ratio, 4 * entropy_change(L), 1e-10),
            equals("information", pairwise_information(after)[0, 1], pairwise_information(joint)[0, 1], 1e-10),
        )
    )


def _information_by_quadrature(u: Tensor, density: Tensor) -> float:
    """sum p log(p / (p_u p_v)) with the trapezoid rule on the points u of both variables."""
    width = torch.zeros_like(u)
    width[1:] += u.diff() / 2
    width[:-1] += u.diff() / 2
    first, second = density @ width, width @ density
    ratio = torch.where(density > 0, density / (first[:, None] * second), 1.0)
    return float(width @ (density * ratio.log()) @ width)


@claim(
    "4.2.2c",
    kind="text",
    status="wrong",
    statement="Only non-linear maps change mutual information.",
    correction="A one-to-one map of each variable keeps it, linear or not; a linear map that loses rank, as every "
    "head's projection does, lowers it.",
    tolerance="1e-4 by quadrature",
    reference="thesis 4.2.2",
)
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
    return Evidence(
        printed=(
            equals("after a linear map of rank 2", after, before, 1e-6),
            at_least("change under sinh", abs(bent - exact), 1e-3),
        ),
        truth=(equals("after sinh of both", bent, exact, 1e-4), at_most("after a map of rank 2", after, before)),
        figures={"before": float(before), "after": float(after)},
    )


@claim(
    "4.2.2d",
    kind="formula",
    status="holds",
    statement="KL divergence does not change under an invertible L.",
    tolerance="1e-10 of its size",
    reference="thesis 4.2.2",
)
def kl_under_maps(draws: Draws) -> Evidence:
    p, q = (draws.normal(4), draws.covariance(4)), (draws.normal(4), draws.covariance(4))
    L = draws.haar(4) @ torch.diag(0.5 + draws.uniform(4)) @ draws.haar(4)
    before = kl_divergence(*p, *q)
    return Evidence(
        truth=(equals("divergence", kl_divergence(*mapped(*p, L), *mapped(*q, L)), before, 1e-10 * float(before + 1)),)
    )


@claim(
    "4.2.3",
    kind="text",
    status="observational",
    statement="A token's vector is modelled given the token before it: its likeliest successors, the rest as noise.",
    correction="That is a bigram model. Its moments are sum lambda v and sum lambda v v^T - mu mu^T + eps I; how well "
    "it fits a text is not checked here, only that these are its moments.",
    tolerance="1e-12",
    reference="thesis 4.2.3",
)
def bigram(draws: Draws) -> Evidence:
    V, P = draws.normal(5, 3), draws.normal(5, 5).softmax(-1)
    start, noise = draws.normal(5).softmax(-1), 0.1
    joint = bigram_joint(V, start, P, 2, noise)
    weight = start[:, None] * P
    cross = torch.einsum("ab,ai,bj->ij", weight, V, V) - torch.outer(start @ V, start @ P @ V)
    mean, S = token_moments(V, P[2], noise=noise)
    expected = (
        torch.einsum("a,ai,aj->ij", P[2], V, V) - torch.outer(mean, mean) + noise * torch.eye(3, dtype=torch.float64)
    )
    return Evidence(
        truth=(
            same("covariance with the token before", joint.row(0)[1], cross, 1e-12),
            same("covariance given a token", S, expected, 1e-12),
        )
    )
