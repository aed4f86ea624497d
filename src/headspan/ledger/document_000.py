"""Document 000: row and null spaces of a head's query and key maps, in GPT-2's sizes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.ledger.claim import check
from headspan.ledger.trial import Draws, Evidence, at_least, at_most, equals, evidence, near, same
from headspan.subspaces import (
    complement,
    grassmann_distance,
    intersection,
    null_space,
    numerical_rank,
    orthonormal_basis,
    principal_angles,
    random_principal_angles,
    subspace_sum,
)

D, K = 768, 64


def _query_and_key(draws: Draws) -> tuple[Tensor, Tensor]:
    W = draws.normal(2, D, K, sd=1 / math.sqrt(D))
    return W[0], W[1]


@check("S0.1")
def rank_and_nullity(draws: Draws) -> Evidence:
    W, _ = _query_and_key(draws)
    rows, null = orthonormal_basis(W), null_space(W)
    return evidence(
        equals("rank", numerical_rank(W), K, 0),
        equals("nullity", null.rank, D - K, 0),
        equals("dimension of the sum", subspace_sum(rows, null).rank, D, 0),
        same("null space through W", null.basis.T @ W, 0.0, 1e-12),
    )


@check("S0.2")
def invisible_shifts(draws: Draws) -> Evidence:
    W_Q, W_K = _query_and_key(draws)
    x, y = draws.normal(2, 10, D)

    def scores(v: Tensor, w: Tensor, key: Tensor = W_K) -> Tensor:
        found: Tensor = (x + v) @ W_Q @ ((y + w) @ key).T
        return found

    zero, common = torch.zeros(D, dtype=torch.float64), draws.normal(D)
    hidden = scores(null_space(W_Q).basis[:, 0], null_space(W_K).basis[:, 0])
    plain, shifted = scores(zero, zero), scores(zero, common)
    low = W_K @ torch.diag((torch.arange(K) > 0).double())
    # A query shift that W_Q sees, but only in the coordinate that this W_K drops.
    seen = torch.linalg.lstsq(W_Q.T, torch.eye(K, dtype=torch.float64)[:, 0]).solution
    return evidence(
        same("inside both null spaces", hidden, plain, 1e-10),
        at_least("common key shift, scores", (shifted - plain).abs().max(), 0.1),
        same("common key shift, softmax", shifted.softmax(-1), plain.softmax(-1), 1e-10),
        equals("length of the query's shift, W_K of rank 63", torch.linalg.vector_norm(seen @ W_Q), 1.0, 1e-10),
        same("its effect on scores", scores(seen, zero, low), scores(zero, zero, low), 1e-10),
    )


@check("S0.3")
def printed_code(draws: Draws) -> Evidence:
    W, _ = _query_and_key(draws)

    def right_vectors(matrix: Tensor, transpose: bool) -> Tensor:
        vectors: Tensor = torch.linalg.svd(matrix.T if transpose else matrix).Vh
        return vectors

    rank = int(numerical_rank(W))
    printed, fixed = right_vectors(W, W.shape[0] < W.shape[1]), right_vectors(W, W.shape[0] > W.shape[1])
    return evidence(
        equals("ambient dimension", fixed.shape[1], D, 0),
        equals("nullity", len(fixed) - rank, D - K, 0),
        same("null space through W", fixed[rank:] @ W, 0.0, 1e-12),
        printed=[equals("ambient dimension", printed.shape[1], D, 0), equals("nullity", len(printed) - rank, D - K, 0)],
    )


@check("S0.4")
def overlap_of_null_spaces(draws: Draws) -> Evidence:
    W_Q, W_K = _query_and_key(draws)
    null = principal_angles(null_space(W_Q), null_space(W_K)).sort().values
    rows = principal_angles(orthonormal_basis(W_Q), orthonormal_basis(W_K)).sort().values
    return evidence(
        equals("angles that are 0", (null < 1e-6).sum(), 2 * (D - K) - D, 0),
        same("other angles less those of row spaces", null[-K:], rows, 1e-6),
    )


@check("S0.5")
def baseline_of_angles(draws: Draws) -> Evidence:
    a = K / D
    angles = random_principal_angles(D, K, K, 20, seed=draws.seed())
    edge = math.degrees(math.acos(math.sqrt(4 * a * (1 - a))))
    return evidence(
        equals("smallest angle", angles.amin(1).rad2deg().mean(), edge, 2.0),
        near("mean squared cosine", angles.cos().square().mean(), a, 0.02),
        figures={"median": angles.rad2deg().median(), "largest": angles.rad2deg().max()},
    )


@check("S0.6")
def decomposition(draws: Draws) -> Evidence:
    rows_q, rows_k = (orthonormal_basis(W) for W in _query_and_key(draws))
    common = intersection(complement(rows_q), complement(rows_k))
    span = subspace_sum(rows_q, rows_k)
    return evidence(
        equals("dimension of the common null space", common.rank, D - 2 * K, 0),
        equals("dimension of all three", subspace_sum(span, common).rank, D, 0),
        same("common null space on row spaces", common.basis.T @ span.basis, 0.0, 1e-10),
        at_least("largest cosine of the row spaces", principal_angles(rows_q, rows_k).cos().max(), 0.4),
    )


@check("S0.7")
def union(draws: Draws) -> Evidence:
    rows_q, rows_k = (orthonormal_basis(W) for W in _query_and_key(draws))
    both, x = subspace_sum(rows_q, rows_k), rows_q.basis[:, 0] + rows_k.basis[:, 0]

    def beyond(U: Tensor) -> Tensor:
        distance: Tensor = torch.linalg.vector_norm(x - U @ (U.T @ x))
        return distance

    nearest = torch.minimum(beyond(rows_q.basis), beyond(rows_k.basis))
    return evidence(
        equals("dimension of the sum", both.rank, 2 * K, 0),
        equals("distance of the same vector from the sum", beyond(both.basis), 0.0, 1e-10),
        printed=[equals("distance of a sum of two members from the union", nearest, 0.0, 1e-6)],
    )


@check("S0.8")
def grassmann(draws: Draws) -> Evidence:
    wide = grassmann_distance(random_principal_angles(D, 2 * K, 2 * K, 8, seed=draws.seed()))
    narrow = grassmann_distance(random_principal_angles(D, K, K, 8, seed=draws.seed()))
    W, V = _query_and_key(draws)
    theta = principal_angles(orthonormal_basis(W), orthonormal_basis(V))
    other = principal_angles(orthonormal_basis(W @ draws.normal(K, K)), orthonormal_basis(V))
    return evidence(
        equals("distance", grassmann_distance(theta), theta.square().sum().sqrt(), 1e-10),
        equals("after W -> W M", grassmann_distance(other), grassmann_distance(theta), 1e-10),
        near("random, 128 dimensions", wide.mean(), 13.82, 0.01),
        near("random, 64 dimensions", narrow.mean(), 10.62, 0.01),
        at_most("largest", wide.max(), math.pi / 2 * math.sqrt(2 * K)),
        figures={"sd, 128 dimensions": wide.std()},
    )
