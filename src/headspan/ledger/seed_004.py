"""Seed 004, orthogonal subspaces in a small copying transformer: held against training runs, ours or a given one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.lab_numbers import Numbers, numbers_about
from headspan.ledger.trial import Evidence, at_least, at_most, mean_is
from headspan.subspaces import kernel_null_mean, orthonormal_basis, principal_angles, projection_kernel

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint

claim = ClaimsOf("004")
ABOUT = {"needs": "lab", "otherwise": "our own runs of the presets default and published"}
"""Claims about training: `--model lab=RUN/model` tries them on another run."""


@claim(
    "S4.1",
    kind="text",
    status="observational",
    statement="The token table has one huge singular value, some 35 medium ones and a tail; the bridge subspace goes "
    "with top and bottom and is nearly orthogonal to the middle.",
    correction="Holds late: the gap comes around or after the transition, bottom and middle go with it, top only long "
    "after, and not at all without dropout. The share of a random r-dimensional subspace in a k-dimensional one is "
    "k/d, so with k = 35 of d = 64 an overlap of 0.55 is chance.",
    tolerance="every run; 4 standard errors for chance",
    reference="seed 004, Feb 9",
    **ABOUT,
)
def bridge_in_training(draws: Draws, run: Checkpoint | None = None) -> Evidence:
    d, k, r = 64, 35, 6
    middle, bridges = orthonormal_basis(draws.normal(1, d, k)), orthonormal_basis(draws.normal(400, d, r))
    random = projection_kernel(middle, bridges)[0] / r
    runs = numbers_about(run)
    return Evidence(
        truth=(
            mean_is("share of a random bridge in the middle", random, kernel_null_mean(k, r, d) / r),
            at_most("largest p-value of a gap", _most(runs, "gap_p_value"), 0.001),
            at_least("least ratio of first to second value", _least(runs, "top_ratio"), 1.2),
            at_most("most of the middle beyond chance", _most(runs, "medium_excess"), -0.15),
            at_least("least of the bottom beyond chance", _least(runs, "bottom_excess"), 0.15),
        ),
        figures={
            "runs": float(len(runs)),
            "least share of medium values": _least(runs, "medium_share"),
            "largest share of medium values": _most(runs, "medium_share"),
            "least of top in the bridge beyond chance": _least(runs, "top_in_bridge_excess"),
        },
    )


@claim(
    "S4.2",
    kind="text",
    status="holds",
    statement="The bridge subspace is the top right singular subspace of W_q W_k^T of the second layer.",
    correction="With row vectors the right side lies in the column span of W_k (what keys read), the left in that of "
    "W_q. The rank is not stated.",
    tolerance="angles 1e-10",
    reference="seed 004, Feb 9",
)
def sides_of_bridge(draws: Draws) -> Evidence:
    W_q, W_k = draws.normal(64, 8), draws.normal(64, 8)
    U, _, Vh = torch.linalg.svd(W_q @ W_k.T)
    right = principal_angles(orthonormal_basis(Vh[:5].T.contiguous()), orthonormal_basis(W_k))
    left = principal_angles(orthonormal_basis(U[:, :5].contiguous()), orthonormal_basis(W_q))
    return Evidence(
        truth=(
            at_most("largest angle of the right side to W_k", right.max(), 1e-10),
            at_most("largest angle of the left side to W_q", left.max(), 1e-10),
        )
    )


@claim(
    "S4.3",
    kind="text",
    status="observational",
    statement="Copying is learnt in a sharp transition with growing sharpness, the previous-token head first.",
    correction="Accuracy out of distribution rises from a tenth to nine tenths within half the time it took to get "
    "there; sharpness grows after the transition rather than with it.",
    tolerance="every run",
    reference="seed 004, Feb 5 and 9",
    **ABOUT,
)
def learning_in_training(draws: Draws, run: Checkpoint | None = None) -> Evidence:
    runs = numbers_about(run)
    return Evidence(
        truth=(
            at_least("least accuracy out of distribution", _least(runs, "ood_accuracy"), 0.9),
            at_most("longest rise, as a share of the time before it", _most(runs, "rise_share"), 0.5),
            at_least("least growth of the largest Hessian eigenvalue", _least(runs, "sharpness_growth"), 1.5),
            at_least(
                "fewest steps of the previous-token head before the induction head",
                _least(runs, "previous_before_induction"),
                0.0,
            ),
        ),
        figures={"runs": float(len(runs)), "first transition": _least(runs, "transition_step")},
    )


@claim(
    "S4.4",
    kind="added",
    status="observational",
    statement="The first layer's attention does not use the token embedding.",
    tolerance="every run",
    reference="seed 004, Feb 5",
    **ABOUT,
)
def offsets_in_training(draws: Draws, run: Checkpoint | None = None) -> Evidence:
    runs = numbers_about(run)
    return Evidence(
        truth=(
            at_least("least variance of its logits due to the offset", _least(runs, "offset_share"), 0.5),
            at_least("least share of its score with tokens shuffled", _least(runs, "shuffled_share"), 0.8),
        )
    )


@claim(
    "S4.5",
    kind="added",
    status="observational",
    statement="The two subspaces have separate jobs: medium holds tokens, bottom the previous token for matching.",
    tolerance="every run; shares of the accuracy without a removal",
    reference="seed 004, Feb 9",
    **ABOUT,
)
def jobs_in_training(draws: Draws, run: Checkpoint | None = None) -> Evidence:
    runs = numbers_about(run)
    return Evidence(
        truth=(
            at_most("most that is left without bottom in layer 1's keys", _most(runs, "keys_without_bottom"), 0.5),
            at_most("most that is left without medium in layer 1's values", _most(runs, "values_without_medium"), 0.5),
            at_least(
                "least that is left without bottom in the embedding", _least(runs, "embedding_without_bottom"), 0.8
            ),
        )
    )


@claim(
    "S4.6",
    kind="added",
    status="observational",
    statement="Asked: before the transition, is the model trapped at a bad saddle or a local minimum?",
    correction="Not at a minimum: the Hessian has a clearly negative eigenvalue. Its direction is not the way out: "
    "training moved along it does not learn sooner.",
    tolerance="every run; the eigenvalue with its error added",
    reference="seed 004, Feb 9",
    **ABOUT,
)
def saddle_in_training(draws: Draws, run: Checkpoint | None = None) -> Evidence:
    runs = numbers_about(run)
    return Evidence(truth=(at_most("largest of the smallest eigenvalues", _most(runs, "plateau_curvature"), 0.0),))


def _least(runs: list[Numbers], name: str) -> float:
    return float(np.min([row[name] for row in runs]))  # NaN, which a trial refuses, is not passed over


def _most(runs: list[Numbers], name: str) -> float:
    return float(np.max([row[name] for row in runs]))
