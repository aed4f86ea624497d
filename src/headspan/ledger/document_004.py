"""Document 004, orthogonal subspaces in a small copying transformer: tried on training runs, ours or a given one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from headspan.ledger.claim import check
from headspan.ledger.lab_numbers import Numbers, numbers_about
from headspan.ledger.trial import Draws, Evidence, at_least, at_most, evidence, mean_is
from headspan.subspaces import kernel_null_mean, orthonormal_basis, principal_angles, projection_kernel

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint


@check("S4.1")
def bridge_in_training(draws: Draws, run: Checkpoint | None = None) -> Evidence:
    d, k, r = 64, 35, 6
    middle, bridges = orthonormal_basis(draws.normal(1, d, k)), orthonormal_basis(draws.normal(400, d, r))
    random = projection_kernel(middle, bridges)[0] / r
    runs = numbers_about(run)
    return evidence(
        mean_is("share of a random bridge in the middle", random, kernel_null_mean(k, r, d) / r),
        at_most("largest p-value of a gap", _most(runs, "gap_p_value"), 0.001),
        at_least("least ratio of first to second value", _least(runs, "top_ratio"), 1.2),
        at_most("most of the middle beyond the null", _most(runs, "medium_excess"), -0.15),
        at_least("least of the bottom beyond the null", _least(runs, "bottom_excess"), 0.15),
        figures={
            "runs": len(runs),
            "least share of medium values": _least(runs, "medium_share"),
            "largest share of medium values": _most(runs, "medium_share"),
            "least of top in the bridge beyond the null": _least(runs, "top_in_bridge_excess"),
        },
    )


@check("S4.2")
def sides_of_bridge(draws: Draws) -> Evidence:
    W_q, W_k = draws.normal(64, 8), draws.normal(64, 8)
    U, _, Vh = torch.linalg.svd(W_q @ W_k.T)
    right = principal_angles(orthonormal_basis(Vh[:5].T.contiguous()), orthonormal_basis(W_k))
    left = principal_angles(orthonormal_basis(U[:, :5].contiguous()), orthonormal_basis(W_q))
    return evidence(
        at_most("largest angle of the right side to W_k", right.max(), 1e-10),
        at_most("largest angle of the left side to W_q", left.max(), 1e-10),
    )


@check("S4.3")
def learning_in_training(draws: Draws, run: Checkpoint | None = None) -> Evidence:
    runs = numbers_about(run)
    return evidence(
        at_least("least accuracy out of distribution", _least(runs, "ood_accuracy"), 0.9),
        at_most("longest rise, as a share of the time before it", _most(runs, "rise_share"), 0.5),
        at_least("least growth of the largest Hessian eigenvalue", _least(runs, "sharpness_growth"), 1.5),
        at_least(
            "fewest steps of the previous-token head before the induction head",
            _least(runs, "previous_before_induction"),
            0.0,
        ),
        figures={"runs": len(runs), "first transition": _least(runs, "transition_step")},
    )


@check("S4.4")
def offsets_in_training(draws: Draws, run: Checkpoint | None = None) -> Evidence:
    runs = numbers_about(run)
    return evidence(
        at_least("least variance of its logits due to the offset", _least(runs, "offset_share"), 0.5),
        at_least("least share of its score with tokens shuffled", _least(runs, "shuffled_share"), 0.8),
    )


@check("S4.5")
def jobs_in_training(draws: Draws, run: Checkpoint | None = None) -> Evidence:
    runs = numbers_about(run)
    return evidence(
        at_most("most that is left without bottom in layer 1's keys", _most(runs, "keys_without_bottom"), 0.5),
        at_most("most that is left without medium in layer 1's values", _most(runs, "values_without_medium"), 0.5),
        at_least("least that is left without bottom in the embedding", _least(runs, "embedding_without_bottom"), 0.8),
    )


@check("S4.6")
def saddle_in_training(draws: Draws, run: Checkpoint | None = None) -> Evidence:
    runs = numbers_about(run)
    return evidence(at_most("largest of the smallest eigenvalues", _most(runs, "plateau_curvature"), 0.0))


def _least(runs: list[Numbers], name: str) -> float:
    return float(np.min([row[name] for row in runs]))  # NaN, which a trial refuses, is not passed over


def _most(runs: list[Numbers], name: str) -> float:
    return float(np.max([row[name] for row in runs]))
