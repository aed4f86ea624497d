"""Seed 000: row and null spaces of a head's query and key maps, in GPT-2's sizes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, at_least, at_most, equals, near, same
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

claim = ClaimsOf("000")
D, K = 768, 64


def _query_and_key(draws: Draws) -> tuple[Tensor, Tensor]:
    W = draws.normal(2, D, K, sd=1 / math.sqrt(D))
    return W[0], W[1]


@claim(
    "S0.1",
    kind="formula",
    status="holds",
    statement="A head's map has rank at most 64 and nullity at least 704, and R^768 is the sum of row and null space.",
    correction="Rows and null space are those of W^T (64 x 768), since tokens are row vectors.",
    tolerance="exact",
    reference="null space of the attention mechanism",
)
def rank_and_nullity(draws: Draws) -> Evidence:
    W, _ = _query_and_key(draws)
    rows, null = orthonormal_basis(W), null_space(W)
    return Evidence(
        truth=(
            equals("rank", numerical_rank(W), K, 0),
            equals("nullity", null.rank, D - K, 0),
            equals("dimension of the sum", subspace_sum(rows, null).rank, D, 0),
            same("null space through W", null.basis.T @ W, 0.0, 1e-12),
        )
    )


@claim(
    "S0.2",
    kind="text",
    status="approximate",
    statement="Scores stay exactly when queries are shifted inside Null(W_Q) and keys inside Null(W_K).",
    correction="True of raw scores, for all tokens and both maps of full rank. A W_K of lower rank hides more query "
    "shifts, and after softmax any common shift of the keys is invisible.",
    tolerance="1e-10",
    reference="null space of the attention mechanism",
)
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
    return Evidence(
        truth=(
            same("inside both null spaces", hidden, plain, 1e-10),
            at_least("common key shift, scores", (shifted - plain).abs().max(), 0.1),
            same("common key shift, softmax", shifted.softmax(-1), plain.softmax(-1), 1e-10),
            equals("length of the query's shift, W_K of rank 63", torch.linalg.vector_norm(seen @ W_Q), 1.0, 1e-10),
            same("its effect on scores", scores(seen, zero, low), scores(zero, zero, low), 1e-10),
        )
    )


@claim(
    "S0.3",
    kind="code",
    status="wrong",
    statement="The code for bases of null and row space transposes a matrix that has fewer rows than columns.",
    correction="It must transpose one that has more. As printed both orientations end at 768 x 64, whose right "
    "singular vectors live in R^64: the null space is empty, all angles are 0. Docstring and labels are exchanged too.",
    tolerance="shapes exact",
    reference="null_row_basis",
)
def printed_code(draws: Draws) -> Evidence:
    W, _ = _query_and_key(draws)

    def right_vectors(matrix: Tensor, transpose: bool) -> Tensor:
        vectors: Tensor = torch.linalg.svd(matrix.T if transpose else matrix).Vh
        return vectors

    rank = int(numerical_rank(W))
    printed, fixed = right_vectors(W, W.shape[0] < W.shape[1]), right_vectors(W, W.shape[0] > W.shape[1])
    return Evidence(
        printed=(
            equals("ambient dimension", printed.shape[1], D, 0),
            equals("nullity", len(printed) - rank, D - K, 0),
        ),
        truth=(
            equals("ambient dimension", fixed.shape[1], D, 0),
            equals("nullity", len(fixed) - rank, D - K, 0),
            same("null space through W", fixed[rank:] @ W, 0.0, 1e-12),
        ),
    )


@claim(
    "S0.4",
    kind="text",
    status="holds",
    statement="The null spaces of query and key overlap in about 640 dimensions.",
    correction="Any two in general position do: 2 x 704 - 768 = 640. The other 64 angles are those of the row spaces.",
    tolerance="exact; angles to 1e-6",
    reference="figure 1",
)
def overlap_of_null_spaces(draws: Draws) -> Evidence:
    W_Q, W_K = _query_and_key(draws)
    null = principal_angles(null_space(W_Q), null_space(W_K)).sort().values
    rows = principal_angles(orthonormal_basis(W_Q), orthonormal_basis(W_K)).sort().values
    return Evidence(
        truth=(
            equals("angles that are 0", (null < 1e-6).sum(), 2 * (D - K) - D, 0),
            same("other angles less those of row spaces", null[-K:], rows, 1e-6),
        )
    )


@claim(
    "S0.5",
    kind="text",
    status="approximate",
    statement="Angles between row spaces near 90 degrees show that they are orthogonal.",
    correction="Random ones have 56 to 90 degrees: squared cosines have the mean a = 1/12 and the edge 4 a (1 - a). "
    "Only angles against this baseline say something.",
    tolerance="edge to 2 degrees; mean squared cosine to 2 %",
    reference="figure 1",
)
def baseline_of_angles(draws: Draws) -> Evidence:
    a = K / D
    angles = random_principal_angles(D, K, K, 20, seed=draws.seed())
    edge = math.degrees(math.acos(math.sqrt(4 * a * (1 - a))))
    return Evidence(
        truth=(
            equals("smallest angle", angles.amin(1).rad2deg().mean(), edge, 2.0),
            near("mean squared cosine", angles.cos().square().mean(), a, 0.02),
        ),
        figures={"median": float(angles.rad2deg().median()), "largest": float(angles.rad2deg().max())},
    )


@claim(
    "S0.6",
    kind="text",
    status="approximate",
    statement="R^768 is the sum of both row spaces and the common null space, orthogonal to one another.",
    correction="A direct sum in general position (64 + 64 + 640), the third part orthogonal to both others. The row "
    "spaces are not orthogonal to each other, nor inside each other's null space.",
    tolerance="dimensions exact; 1e-10",
    reference="decomposition",
)
def decomposition(draws: Draws) -> Evidence:
    rows_q, rows_k = (orthonormal_basis(W) for W in _query_and_key(draws))
    common = intersection(complement(rows_q), complement(rows_k))
    span = subspace_sum(rows_q, rows_k)
    return Evidence(
        truth=(
            equals("dimension of the common null space", common.rank, D - 2 * K, 0),
            equals("dimension of all three", subspace_sum(span, common).rank, D, 0),
            same("common null space on row spaces", common.basis.T @ span.basis, 0.0, 1e-10),
            at_least("largest cosine of the row spaces", principal_angles(rows_q, rows_k).cos().max(), 0.4),
        )
    )


@claim(
    "S0.7",
    kind="code",
    status="wrong",
    statement="The attention space of a head is the union of both row spaces.",
    correction="A union of two subspaces is not one, and the function is not given. Their sum is meant: the span of "
    "both bases, of 128 dimensions in general position.",
    tolerance="dimension exact; 1e-10",
    reference="union_subspace",
)
def union(draws: Draws) -> Evidence:
    rows_q, rows_k = (orthonormal_basis(W) for W in _query_and_key(draws))
    both, x = subspace_sum(rows_q, rows_k), rows_q.basis[:, 0] + rows_k.basis[:, 0]

    def beyond(U: Tensor) -> Tensor:
        distance: Tensor = torch.linalg.vector_norm(x - U @ (U.T @ x))
        return distance

    nearest = torch.minimum(beyond(rows_q.basis), beyond(rows_k.basis))
    return Evidence(
        printed=(equals("distance of a sum of two members from the union", nearest, 0.0, 1e-6),),
        truth=(
            equals("dimension of the sum", both.rank, 2 * K, 0),
            equals("distance of the same vector from the sum", beyond(both.basis), 0.0, 1e-10),
        ),
    )


@claim(
    "S0.8",
    kind="formula",
    status="holds",
    statement="The Grassmann distance is the root of the sum of squared principal angles.",
    correction="Its largest value is (pi/2) sqrt k, 17.77 for k = 128; random spaces of 128 dimensions are 13.82 "
    "apart, of 64 dimensions 10.62. It does not see the basis. Twelve spaces of 128 dimensions cannot all be "
    "orthogonal.",
    tolerance="baseline 1 %; invariance 1e-10",
    reference="grassmann_distance",
)
def grassmann(draws: Draws) -> Evidence:
    wide = grassmann_distance(random_principal_angles(D, 2 * K, 2 * K, 8, seed=draws.seed()))
    narrow = grassmann_distance(random_principal_angles(D, K, K, 8, seed=draws.seed()))
    W, V = _query_and_key(draws)
    theta = principal_angles(orthonormal_basis(W), orthonormal_basis(V))
    other = principal_angles(orthonormal_basis(W @ draws.normal(K, K)), orthonormal_basis(V))
    return Evidence(
        truth=(
            equals("distance", grassmann_distance(theta), theta.square().sum().sqrt(), 1e-10),
            equals("after W -> W M", grassmann_distance(other), grassmann_distance(theta), 1e-10),
            near("random, 128 dimensions", wide.mean(), 13.82, 0.01),
            near("random, 64 dimensions", narrow.mean(), 10.62, 0.01),
            at_most("largest", wide.max(), math.pi / 2 * math.sqrt(2 * K)),
        ),
        figures={"sd, 128 dimensions": float(wide.std())},
    )
