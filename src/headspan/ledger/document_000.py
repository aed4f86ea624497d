"""Document 000, row and null spaces of queries and keys: of GPT-2 where it is given, else of random heads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headspan.ledger.claim import check
from headspan.ledger.trial import Draws, Evidence, at_least, at_most, equals, evidence, near, same
from headspan.subspaces import (
    complement,
    grassmann_distance,
    intersection,
    kernel_null_mean,
    kernel_null_variance,
    null_space,
    numerical_rank,
    orthonormal_basis,
    pairwise_principal_angles,
    principal_angles,
    random_principal_angles,
    subspace_sum,
)

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint

D, K, SYNTHETIC = 768, 64, 3


def _queries_and_keys(draws: Draws, checkpoint: Checkpoint | None, layer: int | None = 0) -> tuple[Tensor, Tensor]:
    """W_Q and W_K [head, d, k]: of a layer of GPT-2 or of all (None), or of a few random heads of the same sizes."""
    if checkpoint is None:
        W = draws.normal(2, SYNTHETIC, D, K, sd=1 / math.sqrt(D))
        return W[0], W[1]
    heads = checkpoint.heads(layers=None if layer is None else [layer])
    return heads.W_Q.double().flatten(0, 1), heads.W_K.double().flatten(0, 1)


def _query_and_key(draws: Draws, checkpoint: Checkpoint | None) -> tuple[Tensor, Tensor]:
    """Of the first head, as in the document."""
    W_Q, W_K = _queries_and_keys(draws, checkpoint)
    return W_Q[0], W_K[0]


@check("S0.1")
def rank_and_nullity(draws: Draws, checkpoint: Checkpoint | None = None) -> Evidence:
    W = torch.cat(_queries_and_keys(draws, checkpoint, None))
    rows, null = orthonormal_basis(W[:SYNTHETIC]), null_space(W[:SYNTHETIC])
    ranks = numerical_rank(W)
    return evidence(
        equals("smallest rank", ranks.min(), K, 0),
        equals("largest rank", ranks.max(), K, 0),
        equals("nullity", null.rank.max(), D - K, 0),
        equals("dimension of the sum", subspace_sum(rows, null).rank.min(), D, 0),
        same("null space through W", null.basis.mT @ W[:SYNTHETIC], 0.0, 1e-12 * float(W.abs().max()) * D),
        figures={"matrices": len(W)},
    )


@check("S0.2")
def invisible_shifts(draws: Draws, checkpoint: Checkpoint | None = None) -> Evidence:
    W_Q, W_K = _query_and_key(draws, checkpoint)
    x, y = draws.normal(2, 10, D)

    def scores(v: Tensor, w: Tensor, key: Tensor = W_K) -> Tensor:
        found: Tensor = (x + v) @ W_Q @ ((y + w) @ key).T
        return found

    zero, common = torch.zeros(D, dtype=torch.float64), draws.normal(D)
    hidden = scores(null_space(W_Q).basis[:, 0], null_space(W_K).basis[:, 0])
    plain, shifted = scores(zero, zero), scores(zero, common)
    low = W_K @ torch.diag((torch.arange(K) > 0).double())
    # A query shift that W_Q sees, but only in the coordinate that this W_K drops.
    seen = torch.linalg.lstsq(W_Q.T, torch.eye(K, dtype=torch.float64)[:, 0], driver="gelsd").solution
    slack = 1e-10 * float(plain.abs().max())
    return evidence(
        same("inside both null spaces", hidden, plain, slack),
        at_least("common key shift, scores", (shifted - plain).abs().max(), 0.1),
        same("common key shift, softmax", shifted.softmax(-1), plain.softmax(-1), 1e-9),
        equals("length of the query's shift, W_K of rank 63", torch.linalg.vector_norm(seen @ W_Q), 1.0, 1e-10),
        same("its effect on scores", scores(seen, zero, low), scores(zero, zero, low), slack),
    )


@check("S0.3")
def printed_code(draws: Draws, checkpoint: Checkpoint | None = None) -> Evidence:
    W, _ = _query_and_key(draws, checkpoint)

    def right_vectors(matrix: Tensor, transpose: bool) -> Tensor:
        vectors: Tensor = torch.linalg.svd(matrix.T if transpose else matrix).Vh
        return vectors

    rank = int(numerical_rank(W))
    printed, fixed = right_vectors(W, W.shape[0] < W.shape[1]), right_vectors(W, W.shape[0] > W.shape[1])
    return evidence(
        equals("ambient dimension", fixed.shape[1], D, 0),
        equals("nullity", len(fixed) - rank, D - K, 0),
        same("null space through W", fixed[rank:] @ W, 0.0, 1e-12 * float(W.abs().max()) * D),
        printed=[equals("ambient dimension", printed.shape[1], D, 0), equals("nullity", len(printed) - rank, D - K, 0)],
    )


@check("S0.4")
def overlap_of_null_spaces(draws: Draws, checkpoint: Checkpoint | None = None) -> Evidence:
    W_Q, W_K = (W[:SYNTHETIC] for W in _queries_and_keys(draws, checkpoint))
    null = principal_angles(null_space(W_Q), null_space(W_K)).sort().values
    rows = principal_angles(orthonormal_basis(W_Q), orthonormal_basis(W_K)).sort().values
    zeros = (null < 1e-6).sum(-1)
    return evidence(
        equals("fewest angles that are 0", zeros.min(), 2 * (D - K) - D, 0),
        equals("most", zeros.max(), 2 * (D - K) - D, 0),
        same("other angles less those of row spaces", null[:, -K:], rows, 1e-6),
    )


@check("S0.5")
def angles_of_row_spaces(draws: Draws, checkpoint: Checkpoint | None = None) -> Evidence:
    a = K / D
    angles = random_principal_angles(D, K, K, 20, seed=draws.seed())
    edge = math.degrees(math.acos(math.sqrt(4 * a * (1 - a))))
    baseline = (
        equals("smallest angle of random spaces", angles.amin(1).rad2deg().mean(), edge, 2.0),
        near("their mean squared cosine", angles.cos().square().mean(), a, 0.02),
    )
    if checkpoint is None:
        return evidence(*baseline, figures={"median": angles.rad2deg().median(), "largest": angles.rad2deg().max()})
    W_Q, W_K = _queries_and_keys(draws, checkpoint, None)
    found = principal_angles(orthonormal_basis(W_Q), orthonormal_basis(W_K))
    kernel, sd = found.cos().square().sum(-1), math.sqrt(kernel_null_variance(K, K, D))
    above = (kernel > kernel_null_mean(K, K, D) + 4 * sd).double().mean()
    return evidence(
        *baseline,
        at_least("share of GPT-2's heads with closer queries and keys, by 4 deviations", above, 0.9),
        at_most("smallest angle of the first head", found[0].rad2deg().min(), edge - 4),
        figures={"its mean squared cosine": kernel[0] / K, "median over heads": (kernel / K).median()},
    )


@check("S0.6")
def decomposition(draws: Draws, checkpoint: Checkpoint | None = None) -> Evidence:
    W_Q, W_K = (W[:SYNTHETIC] for W in _queries_and_keys(draws, checkpoint))
    rows_q, rows_k = orthonormal_basis(W_Q), orthonormal_basis(W_K)
    common = intersection(complement(rows_q), complement(rows_k))
    span = subspace_sum(rows_q, rows_k)
    return evidence(
        equals("dimension of the common null space", common.rank.min(), D - 2 * K, 0),
        equals("dimension of all three", subspace_sum(span, common).rank.min(), D, 0),
        same("common null space on row spaces", common.basis.mT @ span.basis, 0.0, 1e-10),
        at_least("least largest cosine of row spaces", principal_angles(rows_q, rows_k).cos().amax(-1).min(), 0.4),
    )


@check("S0.7")
def union(draws: Draws, checkpoint: Checkpoint | None = None) -> Evidence:
    rows_q, rows_k = (orthonormal_basis(W) for W in _query_and_key(draws, checkpoint))
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
def grassmann(draws: Draws, checkpoint: Checkpoint | None = None) -> Evidence:
    wide = grassmann_distance(random_principal_angles(D, 2 * K, 2 * K, 8, seed=draws.seed()))
    narrow = grassmann_distance(random_principal_angles(D, K, K, 8, seed=draws.seed()))
    W, V = _query_and_key(draws, checkpoint)
    theta = principal_angles(orthonormal_basis(W), orthonormal_basis(V))
    other = principal_angles(orthonormal_basis(W @ draws.normal(K, K)), orthonormal_basis(V))
    queries, keys = _queries_and_keys(draws, checkpoint)
    spaces = subspace_sum(orthonormal_basis(queries), orthonormal_basis(keys))
    within = grassmann_distance(pairwise_principal_angles(spaces, spaces)).triu(1)
    alone = principal_angles(spaces[0], spaces[1])
    figures = {"sd, 128 dimensions": wide.std(), "mean within a layer": within[within > 0].mean()}
    return evidence(
        equals("distance", grassmann_distance(theta), theta.square().sum().sqrt(), 1e-10),
        equals("after W -> W M", grassmann_distance(other), grassmann_distance(theta), 1e-8),
        near("random, 128 dimensions", wide.mean(), 13.82, 0.01),
        near("random, 64 dimensions", narrow.mean(), 10.62, 0.01),
        at_most("largest", wide.max(), math.pi / 2 * math.sqrt(2 * K)),
        at_most("largest within a layer", within.max(), math.pi / 2 * math.sqrt(2 * K)),
        equals("first two spaces by themselves", within[0, 1], grassmann_distance(alone), 1e-8),
        figures=figures,
    )
