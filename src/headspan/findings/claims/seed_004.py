"""Seed 004, orthogonal subspaces in a small copying transformer: what can be said without its training runs."""

from __future__ import annotations

import torch

from headspan.findings.claims.claim import ClaimsOf
from headspan.findings.claims.draws import Draws
from headspan.findings.claims.trial import Evidence, at_most, mean_is
from headspan.subspaces import chance_mean, orthonormal_basis, principal_angles, projection_kernel

claim = ClaimsOf("004")


@claim(
    "S4.1",
    kind="text",
    status="observational",
    statement="The token table has one huge singular value, some 35 medium ones and a tail; the bridge subspace goes "
    "with top and bottom and is nearly orthogonal to the middle.",
    correction="Needs a trained two-layer model. The share of a random r-dimensional subspace in a k-dimensional one "
    "is k/d, so with k = 35 of d = 64 an overlap of 0.55 is chance.",
    tolerance="4 standard errors",
    reference="seed 004, Feb 9",
)
def bridge_by_chance(draws: Draws) -> Evidence:
    d, k, r = 64, 35, 6
    middle, bridges = orthonormal_basis(draws.normal(1, d, k)), orthonormal_basis(draws.normal(400, d, r))
    found = projection_kernel(middle, bridges)[0] / r
    return Evidence(truth=(mean_is("share of a random bridge in the middle", found, chance_mean(k, r, d) / r),))


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


sharp_transition = claim.without_check(
    "S4.3",
    because="needs training runs: sharpness, accuracy out of distribution and overlaps, step by step",
    kind="text",
    status="observational",
    statement="Copying is learnt in a sharp transition with growing sharpness, the previous-token head first.",
    reference="seed 004, Feb 5 and 9",
)
