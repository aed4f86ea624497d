"""Document 001, the projection kernel between heads: its mathematics, and what it shows on GPT-2 small."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headspan.ledger.claim import check
from headspan.ledger.models import (
    agreement_after_folding,
    class_lead_p,
    class_precision,
    heads_in_graphs,
    hub_ranks,
    hub_test,
    identity_extremes,
    kernel_statistics,
    ranks_and_kernels,
    strongest_pairs,
)
from headspan.ledger.trial import Draws, Evidence, at_least, at_most, equals, evidence, mean_is, variance_is
from headspan.subspaces import (
    kernel_null_mean,
    kernel_null_variance,
    orthonormal_basis,
    principal_angles,
    projection_kernel,
)

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint


D, P = 48, 6
"""Width of the stream and of a head in the computed rows."""
METRICS = ("projection_kernel", "composition_score")


def _kernel(first: Tensor, second: Tensor) -> Tensor:
    return projection_kernel(orthonormal_basis(first[None]), orthonormal_basis(second[None]))[0, 0]


def _composition(M: Tensor, N: Tensor) -> Tensor:
    score: Tensor = torch.linalg.matrix_norm(M @ N) / (torch.linalg.matrix_norm(M) * torch.linalg.matrix_norm(N))
    return score


@check("S1.1")
def kernel_and_angles(draws: Draws) -> Evidence:
    first, second = draws.normal(D, P), draws.normal(D, P)
    U, V = torch.linalg.qr(first).Q, torch.linalg.qr(second).Q
    angles = principal_angles(orthonormal_basis(first), orthonormal_basis(second))
    return evidence(
        equals("against |U^T V|_F^2", _kernel(first, second), (U.T @ V).square().sum(), 1e-12),
        equals("against the angles", _kernel(first, second), angles.cos().square().sum(), 1e-12),
        at_most("largest angle", angles.max(), math.pi / 2),
    )


@check("S1.2")
def range_of_kernel(draws: Draws) -> Evidence:
    turn = draws.haar(D)
    large = [torch.linalg.qr(draws.normal(D, 30)).Q for _ in range(2)]
    return evidence(
        equals("orthogonal spans", _kernel(turn[:, :P], turn[:, P : 2 * P]), 0.0, 1e-12),
        equals("equal spans", _kernel(turn[:, :P], turn[:, :P] @ draws.normal(P, P)), P, 1e-12),
        at_least("two spans of 30 in 48 dimensions", _kernel(*large), 2 * 30 - D, 1e-12),
    )


@check("S1.3")
def invariance(draws: Draws) -> Evidence:
    first, second, turn = draws.normal(D, P), draws.normal(D, P), draws.haar(D)
    plain = _kernel(first, second)
    return evidence(
        equals("after a change of basis", _kernel(first @ draws.normal(P, P), 7 * second), plain, 1e-10),
        equals("after a rotation of the stream", _kernel(turn @ first, turn @ second), plain, 1e-10),
    )


@check("S1.4")
def baseline(draws: Draws) -> Evidence:
    U, V = (orthonormal_basis(draws.normal(4000, D, P)).basis for _ in range(2))
    found = (U.mT @ V).square().sum((-2, -1))
    return evidence(
        mean_is("mean", found, kernel_null_mean(P, P, D)),
        variance_is("variance", found, kernel_null_variance(P, P, D)),
        equals("mean for GPT-2", kernel_null_mean(64, 64, 768), 5.3333, 1e-4),
        equals("standard deviation for GPT-2", math.sqrt(kernel_null_variance(64, 64, 768)), 0.10796, 1e-5),
    )


@check("S1.5")
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
    return evidence(
        equals("composition after scaling by 7", _composition(7 * left @ out, read @ right), plain, 1e-12),
        equals("change of the kernel", spans, 0.0, 1e-12),
        at_least("change of composition with the spectrum", (sharp / blunt - 1).abs(), 0.1),
    )


@check("S1.6")
def deficient_heads(draws: Draws) -> Evidence:
    W = draws.normal(D, 4) @ draws.normal(4, P)
    filled = torch.linalg.qr(W).Q
    return evidence(
        equals("rank found", orthonormal_basis(W).rank, 4.0, 0.0),
        equals("kernel with itself", _kernel(W, W), 4.0, 1e-10),
        equals("the same by plain QR", (filled.T @ filled).square().sum(), P, 1e-10),
    )


@check("S1.7")
def folding(draws: Draws) -> Evidence:
    first, second = draws.normal(D, P), draws.normal(D, P)
    plain = _kernel(first, second)
    gains = 1 + 0.1 * draws.normal(D, 1), draws.normal(D, 1).exp()
    return evidence(
        equals("equal gains", _kernel(first, 3 * second), plain, 1e-12),
        at_least("change under uneven gains", (_kernel(first, gains[1] * second) - plain).abs(), 1e-6),
        figures={"change under gains of 1 +- 0.1": _kernel(first, gains[0] * second) - plain},
    )


@check("S1.8")
def above_null(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    found = kernel_statistics(checkpoint)
    mean, divergence = found["mean"], found["divergence"]
    return evidence(
        equals("mean kernel of QQ", mean["QQ"], 8.467, 5e-4),
        equals("mean kernel of VO", mean["VO"], 5.664, 5e-4),
        equals("divergence of QQ from the null", divergence["QQ"], 2.876, 5e-4),
        equals("largest divergence", max(divergence.values()), divergence["QQ"], 0.0),
        equals("smallest divergence", min(divergence.values()), divergence["VO"], 0.0),
        figures={"kernel expected under the null": found["null"]["QQ"]},
    )


@check("S1.9")
def known_pairs(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    published = [("L4H11", "L5H1"), ("L4H7", "L5H1"), ("L4H11", "L6H9")]
    agreeing = sum(a == b for a, b in zip(strongest_pairs(checkpoint, "OK", 3), published, strict=True))
    return evidence(equals("of the three strongest pairs, as published", agreeing, 3, 0))


@check("S1.10")
def heads_in_classes(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    (kernel, kernel_known), (composition, composition_known) = (heads_in_graphs(checkpoint)[m] for m in METRICS)
    return evidence(
        equals("heads by kernel", kernel, 52, 0),
        equals("of them in a class", kernel_known, 24, 0),
        equals("heads by composition score", composition, 46, 0),
        equals("of them in a class (composition)", composition_known, 16, 0),
    )


@check("S1.11")
def detection(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    found, drawn = class_precision(checkpoint, "ioi"), class_precision(checkpoint, "2601.10266")
    kernel, composition = ({name: found[name, metric] for name in ("largest", "mean")} for metric in METRICS)
    base = found["base rate", ""]
    return evidence(
        at_least("by the largest affinity, kernel less composition", kernel["largest"] - composition["largest"], 0.1),
        at_most("its p-value, members drawn within layers", class_lead_p(checkpoint, "ioi", "largest"), 0.05),
        at_most("by the mean affinity, kernel less base rate", kernel["mean"] - base, 0.02),
        at_least("the p-value of its lead", class_lead_p(checkpoint, "ioi", "mean"), 0.05),
        figures={
            "largest, kernel": kernel["largest"],
            "composition": composition["largest"],
            "mean, kernel": kernel["mean"],
            "composition by the mean": composition["mean"],
            "base rate": base,
            "largest, kernel, labels of the paper's figure": drawn["largest", METRICS[0]],
        },
    )


@check("S1.12")
def hub(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    removing, copying = identity_extremes(checkpoint, 7)
    ranks = {name: hub_ranks(checkpoint, removing, name) for name in ("excess", "kernel", "degree")}
    tests = {name: hub_test(checkpoint, removing, name) for name in ranks}
    others = hub_test(checkpoint, [head for head in removing if head != "L4H7"])
    return evidence(
        equals("worst rank of L4H7", max(hub_ranks(checkpoint, ["L4H7"], name)[0] for name in ranks), 1, 0),
        at_most("worst rank of the seven heads of lowest identity score", max(ranks["excess"]), 24),
        *(at_most(f"p-value of the seven, {name}", found.p, 0.01) for name, found in tests.items()),
        at_most("p-value of the six besides L4H7", others.p, 0.01),
        figures={
            "rank of L1H11": hub_ranks(checkpoint, ["L1H11"])[0],
            "p-value of the seven of highest identity score": hub_test(checkpoint, copying).p,
            "p-value of the ten of lowest": hub_test(checkpoint, identity_extremes(checkpoint, 10)[0]).p,
            "degree": hub_test(checkpoint, identity_extremes(checkpoint, 10)[0], "degree").p,
        },
    )


@check("S1.13")
def folding_of_gpt2(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    found = agreement_after_folding(checkpoint)
    kernel, composition = found["projection_kernel"], found["composition_score"]
    return evidence(
        at_least("lowest rank correlation of kernels", min(rho for rho, _ in kernel.values()), 0.95),
        at_least("least lead over composition", min(kernel[key][0] - composition[key][0] for key in kernel), 0.01),
        at_least("strongest 20 kept through OQ", kernel["OQ"][1], 17),
        at_most("the same, composition", composition["OQ"][1], 5),
    )


@check("S1.14")
def full_rank(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    ranks, kernels = ranks_and_kernels(checkpoint)
    return evidence(
        equals("smallest rank", ranks.min(), 64, 0),
        at_most("largest kernel", np.nanmax(kernels), 64),
        at_least("smallest kernel", np.nanmin(kernels), 0),
    )
