"""Chapter 6 of the thesis, section 2.5: how well two random weights can be aligned."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import aligned_trace_variance, best_alignment
from headspan.distributions.random_matrices import BEST_ONE_SIDE, QUARTER_CIRCLE_MEAN, SAME_TURN
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, equals, mean_is, near, variance_is
from headspan.statistics import random_singular_values

claim = ClaimsOf("003")


@claim(
    "6.24-6.29",
    kind="formula",
    status="wrong",
    statement="Choosing U_A^T U_B = V_A^T V_B gives E tr(A^T B) = n^2 sigma^2.",
    correction="With W that common turn the trace is sum_ij s_i(A) s_j(B) W_ij^2, not sum s_i s_i: (8 / 3 pi)^2 = "
    "0.7205 of n^2 sigma^2.",
    tolerance="2 % at n = 64",
    reference="thesis 6.2.5",
)
def same_turn(draws: Draws) -> Evidence:
    n, count = 64, 60
    a, b = (random_singular_values(n, n, count, draws.seed()) for _ in range(2))
    W = draws.haar(n, count)
    U, V = draws.haar(n, count), draws.haar(n, count)
    A, B = (U * a[:, None]) @ V.mT, (U @ W * b[:, None]) @ (V @ W).mT
    share = (A * B).sum((1, 2)) / n**2
    by_formula = torch.einsum("si,sij,sj->s", a, W**2, b) / n**2
    return Evidence(
        printed=(near("trace over n^2", share.mean(), 1.0, 0.02),),
        truth=(
            near("trace over n^2", share.mean(), SAME_TURN, 0.02),
            equals("largest gap to the double sum", (share - by_formula).abs().max(), 0.0, 1e-10),
        ),
    )


@claim(
    "6.29b",
    kind="formula",
    status="wrong",
    statement="So some rotation U attains n^2 sigma^2.",
    correction="The best over all U is the nuclear norm |B A^T|_*, 3/4 n^2 sigma^2 in the limit; n^2 sigma^2 takes "
    "V_A = V_B as well, where the trace is the sorted sum of s_i(A) s_i(B).",
    tolerance="1 % at n = 256",
    reference="thesis 6.2.5",
)
def best_rotation(draws: Draws) -> Evidence:
    n = 256
    A, B = draws.normal(2, 3, n, n)
    best = best_alignment(A, B).mean() / n**2
    return Evidence(
        printed=(near("best trace over n^2", best, 1.0, 0.01),),
        truth=(
            near("best trace over n^2", best, BEST_ONE_SIDE, 0.01),
            near("both sides", best_alignment(A, B, both_sides=True).mean() / n**2, 1.0, 0.01),
        ),
    )


@claim(
    "6.29c",
    kind="text",
    status="wrong",
    statement="The mean singular value is sqrt(n) sigma, and E tr does not depend on tr(V_B^T V_A).",
    correction="It is 8 / (3 pi) of that; V_A = V_B raises the trace from 0.72 to 1.00 of n^2 sigma^2.",
    tolerance="0.5 %; 2 % for traces",
    reference="thesis 6.2.5",
)
def mean_singular_value(draws: Draws) -> Evidence:
    n = 256
    a, b = (random_singular_values(n, n, 20, draws.seed()) for _ in range(2))
    mean = a.mean() / math.sqrt(n)
    sorted_sum, unsorted = (a * b).sum(1).mean() / n**2, a.mean() * b.mean() / n
    return Evidence(
        printed=(near("mean singular value", mean, 1.0, 0.005), near("V_A = V_B", sorted_sum, float(unsorted), 0.02)),
        truth=(
            near("mean singular value", mean, QUARTER_CIRCLE_MEAN, 0.005),
            near("V_A = V_B", sorted_sum, 1.0, 0.02),
            near("V_A and V_B unrelated", unsorted, SAME_TURN, 0.02),
        ),
    )


@claim(
    "6.2.5d",
    kind="text",
    status="holds",
    statement="A matrix has n^2 = n + 2 n (n - 1) / 2 degrees of freedom: spectrum and two rotations.",
    tolerance="exact",
    reference="thesis 6.2.5",
)
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
    return Evidence(truth=(equals("moves", len(moves), n**2, 0), equals("independent moves", rank, n**2, 0)))


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


@claim(
    "6.30-6.32",
    kind="formula",
    status="holds",
    statement="With other spectra, E tr(A^T B) is still 0.",
    correction="If the singular bases are uniform.",
    tolerance="4 standard errors",
    reference="thesis 6.2.5",
)
def mean_with_other_spectra(draws: Draws) -> Evidence:
    a, _ = _spectra(16)
    return Evidence(truth=(mean_is("trace", _turned_traces(draws, a, a, 9_000), 0.0),))


@claim(
    "6.33-6.34",
    kind="formula",
    status="wrong",
    statement="Var tr(A^T B) = (1/n) sum s_i(A)^2 s_i(B)^2.",
    correction="(1/n^2) sum s_i(A)^2 sum s_j(B)^2 = |A|_F^2 |B|_F^2 / n^2, exactly. As printed it is 2 n^2 sigma^4 "
    "for two random matrices, against 6.17.",
    tolerance="4 standard errors",
    reference="thesis 6.2.5",
)
def variance_with_other_spectra(draws: Draws) -> Evidence:
    n = 16
    a, reverse = _spectra(n)
    traces = _turned_traces(draws, a, a, 9_000)
    s = random_singular_values(64, 64, 20, draws.seed())
    doubled = (s**4).sum(1).mean() / 64 / 64**2
    return Evidence(
        printed=(variance_is("variance", traces, (a**4).sum() / n),),
        truth=(
            variance_is("variance", traces, aligned_trace_variance(torch.diag(a), torch.diag(a))),
            near("printed form on random spectra, over n^2 sigma^4", doubled, 2.0, 0.05),
        ),
        figures={"printed, spectrum reversed": float((a**2 * reverse**2).sum() / n)},
    )


@claim(
    "6.34b",
    kind="text",
    status="wrong",
    statement="The angle between both squared spectra controls how well weights align.",
    correction="Only the two Frobenius norms count: the order of the spectra makes no difference.",
    tolerance="4 standard errors",
    reference="thesis 6.2.5",
)
def order_of_spectra(draws: Draws) -> Evidence:
    a, reverse = _spectra(16)
    same, other = _turned_traces(draws, a, a, 9_000), _turned_traces(draws, a, reverse, 9_000)
    expected = aligned_trace_variance(torch.diag(a), torch.diag(a))
    ratio = float((a**4).sum() / (a**2 * reverse**2).sum())
    return Evidence(
        printed=(near("ratio of variances", same.var() / other.var(), ratio, 0.5),),
        truth=(
            variance_is("variance, same order", same, expected),
            variance_is("variance, reversed", other, expected),
        ),
    )
