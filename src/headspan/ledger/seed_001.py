"""Seed 001, the projection kernel between heads: its mathematics, computed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, at_least, at_most, equals, mean_is, variance_is
from headspan.subspaces import (
    kernel_null_mean,
    kernel_null_variance,
    orthonormal_basis,
    principal_angles,
    projection_kernel,
)

claim = ClaimsOf("001")
D, P = 48, 6
"""Width of the stream and of a head in the computed rows."""


def _kernel(first: Tensor, second: Tensor) -> Tensor:
    return projection_kernel(orthonormal_basis(first[None]), orthonormal_basis(second[None]))[0, 0]


def _composition(M: Tensor, N: Tensor) -> Tensor:
    score: Tensor = torch.linalg.matrix_norm(M @ N) / (torch.linalg.matrix_norm(M) * torch.linalg.matrix_norm(N))
    return score


@claim(
    "S1.1",
    kind="formula",
    status="holds",
    statement="The projection kernel |U^T V|_F^2 of orthonormal bases is the sum of squared cosines of principal "
    "angles.",
    tolerance="1e-12",
    reference="arXiv 2601.10266, method",
)
def kernel_and_angles(draws: Draws) -> Evidence:
    first, second = draws.normal(D, P), draws.normal(D, P)
    U, V = torch.linalg.qr(first).Q, torch.linalg.qr(second).Q
    angles = principal_angles(orthonormal_basis(first), orthonormal_basis(second))
    return Evidence(
        truth=(
            equals("against |U^T V|_F^2", _kernel(first, second), (U.T @ V).square().sum(), 1e-12),
            equals("against the angles", _kernel(first, second), angles.cos().square().sum(), 1e-12),
            at_most("largest angle", angles.max(), math.pi / 2),
        )
    )


@claim(
    "S1.2",
    kind="formula",
    status="holds",
    statement="The kernel lies between 0 and the dimension of a head.",
    correction="0 for orthogonal spans, d_head for equal ones; where p + q > d it cannot fall below p + q - d.",
    tolerance="1e-12",
    reference="arXiv 2601.10266, method",
)
def range_of_kernel(draws: Draws) -> Evidence:
    turn = draws.haar(D)
    large = [torch.linalg.qr(draws.normal(D, 30)).Q for _ in range(2)]
    return Evidence(
        truth=(
            equals("orthogonal spans", _kernel(turn[:, :P], turn[:, P : 2 * P]), 0.0, 1e-12),
            equals("equal spans", _kernel(turn[:, :P], turn[:, :P] @ draws.normal(P, P)), float(P), 1e-12),
            at_least("two spans of 30 in 48 dimensions", _kernel(*large), 2 * 30 - D, 1e-12),
        )
    )


@claim(
    "S1.3",
    kind="text",
    status="holds",
    statement="The kernel depends on spans alone: neither scale nor the choice of a basis inside a head changes it.",
    correction="W -> W M for any invertible M, and one rotation of the whole stream.",
    tolerance="1e-10",
    reference="arXiv 2601.10266, method",
)
def invariance(draws: Draws) -> Evidence:
    first, second, turn = draws.normal(D, P), draws.normal(D, P), draws.haar(D)
    plain = _kernel(first, second)
    return Evidence(
        truth=(
            equals("after a change of basis", _kernel(first @ draws.normal(P, P), 7 * second), plain, 1e-10),
            equals("after a rotation of the stream", _kernel(turn @ first, turn @ second), plain, 1e-10),
        )
    )


@claim(
    "S1.4",
    kind="text",
    status="holds",
    statement="Random orthogonal bases give a baseline that kernels can be compared with.",
    correction="Its mean is p q / d and its variance 2 p q (d - p)(d - q) / (d^2 (d - 1)(d + 2)): 5.333 and 0.108^2 "
    "for heads of 64 in 768 dimensions. A reference line, not a filter: most trained pairs are above it.",
    tolerance="4 standard errors; 1e-4",
    reference="arXiv 2601.10266, figure 1; Collins and Sniady 2006",
)
def baseline(draws: Draws) -> Evidence:
    U, V = (orthonormal_basis(draws.normal(4000, D, P)).basis for _ in range(2))
    found = (U.mT @ V).square().sum((-2, -1))
    return Evidence(
        truth=(
            mean_is("mean", found, kernel_null_mean(P, P, D)),
            variance_is("variance", found, kernel_null_variance(P, P, D)),
            equals("mean for GPT-2", kernel_null_mean(64, 64, 768), 5.3333, 1e-4),
            equals("standard deviation for GPT-2", math.sqrt(kernel_null_variance(64, 64, 768)), 0.10796, 1e-5),
        )
    )


@claim(
    "S1.5",
    kind="text",
    status="approximate",
    statement="The composition score suffers from normalisation and scaling, the kernel does not.",
    correction="Scaling a head by a number changes neither. What the composition score sees and the kernel does not is "
    "the spectrum: how strongly each direction is used. Its chance value is 1/d for the square.",
    tolerance="1e-12; a spectrum of 1 to 10 moves the score by 10 % or more",
    reference="arXiv 2601.10266, introduction",
)
def scaling_of_scores(draws: Draws) -> Evidence:
    out, read, right = draws.normal(P, D), draws.normal(D, P), draws.normal(P, D)
    left = draws.normal(D, P)
    plain = _composition(left @ out, read @ right)
    tilted = torch.diag(torch.logspace(0, 1, P, dtype=torch.float64))
    # Tilt what is read along the principal directions shared with what is written: spans stay, weights change.
    U, _, Vh = torch.linalg.svd(torch.linalg.qr(out.T).Q.T @ torch.linalg.qr(read).Q)
    aligned, basis = torch.linalg.qr(out.T).Q @ U, torch.linalg.qr(read).Q @ Vh.T
    sharp = _composition(left @ aligned.T, basis @ tilted.flip(0, 1) @ right)
    blunt = _composition(left @ aligned.T, basis @ tilted @ right)
    spans = _kernel(out.T, basis @ tilted) - _kernel(out.T, read)
    return Evidence(
        truth=(
            equals("composition after scaling by 7", _composition(7 * left @ out, read @ right), plain, 1e-12),
            equals("change of the kernel", spans, 0.0, 1e-12),
            at_least("change of composition with the spectrum", (sharp / blunt - 1).abs(), 0.1),
        )
    )


@claim(
    "S1.6",
    kind="text",
    status="approximate",
    statement="The kernel needs weights of full rank.",
    correction="A plain QR basis does: it fills a rank-deficient head up with directions it does not have. With the "
    "true rank the kernel is well defined, in [0, rank].",
    tolerance="1e-10",
    reference="arXiv 2601.10266, limitations",
)
def deficient_heads(draws: Draws) -> Evidence:
    W = draws.normal(D, 4) @ draws.normal(4, P)
    filled = torch.linalg.qr(W).Q
    return Evidence(
        truth=(
            equals("rank found", orthonormal_basis(W).rank, 4.0, 0.0),
            equals("kernel with itself", _kernel(W, W), 4.0, 1e-10),
            equals("the same by plain QR", (filled.T @ filled).square().sum(), float(P), 1e-10),
        )
    )


@claim(
    "S1.7",
    kind="text",
    status="approximate",
    statement="The kernel is unmoved when LayerNorm is folded into the weights.",
    correction="Exactly so only for equal gains. Folding stretches the axes of the stream on the reading side, which "
    "turns spans; how much depends on how uneven the gains are.",
    tolerance="1e-12 for equal gains; some change for uneven ones",
    reference="arXiv 2601.10266, robustness",
)
def folding(draws: Draws) -> Evidence:
    first, second = draws.normal(D, P), draws.normal(D, P)
    plain = _kernel(first, second)
    gains = 1 + 0.1 * draws.normal(D, 1), draws.normal(D, 1).exp()
    return Evidence(
        truth=(
            equals("equal gains", _kernel(first, 3 * second), plain, 1e-12),
            at_least("change under uneven gains", (_kernel(first, gains[1] * second) - plain).abs(), 1e-6),
        ),
        figures={"change under gains of 1 +- 0.1": float(_kernel(first, gains[0] * second) - plain)},
    )
