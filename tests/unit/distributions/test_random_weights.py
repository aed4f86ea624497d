"""What random weights do, against explicit matrices."""

from __future__ import annotations

import math

import pytest
import torch

from headspan.distributions import (
    aligned_trace_variance,
    best_alignment,
    expected_largest_square,
    expected_norm,
    expected_smallest_gap,
    singular_vector_bound,
)
from headspan.distributions.random_matrices import BEST_ONE_SIDE, SAME_TURN
from headspan.errors import ArgumentError, ShapeError
from headspan.statistics import random_singular_values
from tests.unit.distributions.moments import normal, stream


def haar(count: int, n: int, seed: int) -> torch.Tensor:
    q, r = torch.linalg.qr(torch.randn(count, n, n, generator=stream(seed), dtype=torch.float64))
    return q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)


@pytest.mark.parametrize("m", [1, 3, 64])
def test_random_maps_stretch_unit_vectors_as_expected(m: int) -> None:
    lengths = 0.5 * normal(50_000, m, seed=1).norm(dim=-1)
    assert abs(float(lengths.mean()) - expected_norm(m, 0.5)) < 4 * float(lengths.std()) / math.sqrt(50_000)


def test_the_largest_singular_value_follows_tracy_and_widom() -> None:
    for m, n in ((64, 64), (32, 256)):
        found = (random_singular_values(m, n, 400, seed=1)[:, 0] ** 2).mean()
        assert float(found) == pytest.approx(expected_largest_square(m, n), rel=0.01)


def test_the_smallest_gap_shrinks_with_the_side() -> None:
    values = random_singular_values(100, 100, 1500, seed=2)
    gap = (values[:, :-1] - values[:, 1:]).amin(-1).mean()
    assert float(gap) == pytest.approx(expected_smallest_gap(100), rel=0.06)


def test_the_trace_of_turned_matrices_sees_only_their_norms() -> None:
    A, B = normal(4, 6, seed=3) * torch.tensor([3.0, 1, 1, 1, 1, 0]), normal(4, 6, seed=4)
    turned = haar(20_000, 4, 5) @ A @ haar(20_000, 6, 6)
    traces = (turned * B).sum((-1, -2))
    expected = float(aligned_trace_variance(A, B))
    assert abs(float((traces**2).mean()) - expected) < 4 * float((traces**2).std()) / math.sqrt(20_000)


def test_no_rotation_aligns_better_than_the_best() -> None:
    A, B = normal(5, 5, seed=7), normal(5, 5, seed=8)
    best, both = float(best_alignment(A, B)), float(best_alignment(A, B, both_sides=True))
    U, _, Vh = torch.linalg.svd(A @ B.T)
    assert float((A.T @ (U @ Vh) @ B).trace()) == pytest.approx(best)
    traces = torch.einsum("ba,sbc,ca->s", A, haar(2000, 5, 9), B)
    assert float(traces.max()) <= best <= both <= float(A.norm() * B.norm())


def test_independent_matrices_align_to_three_quarters_at_best() -> None:
    n = 200
    A, B = normal(2, n, n, seed=10)
    assert float(best_alignment(A, B)) / n**2 == pytest.approx(BEST_ONE_SIDE, rel=0.01)
    assert float(best_alignment(A, B, both_sides=True)) / n**2 == pytest.approx(1.0, rel=0.01)
    assert pytest.approx(0.7205, abs=1e-4) == SAME_TURN


def test_singular_vectors_turn_no_more_than_wedin_allows() -> None:
    A = normal(200, 6, 6, seed=11)
    E = 0.02 * normal(200, 6, 6, seed=12)
    (U, s, _), (V, _, _) = torch.linalg.svd(A), torch.linalg.svd(A + E)
    for i in range(200):
        sine = math.sqrt(max(0.0, 1 - float(U[i, :, 0] @ V[i, :, 0]) ** 2))
        assert sine <= singular_vector_bound(float(s[i, 0] - s[i, 1]), float(torch.linalg.matrix_norm(E[i], 2))) + 1e-12
    assert singular_vector_bound(1.0, 2.0) == 1.0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: expected_norm(0), ArgumentError, "at least one row"),
        (lambda: expected_smallest_gap(1), ArgumentError, "needs two singular values"),
        (lambda: aligned_trace_variance(normal(2, 3), normal(3, 2)), ShapeError, "need one shape"),
        (lambda: best_alignment(normal(2, 3), normal(3, 2)), ShapeError, "need one shape"),
        (lambda: singular_vector_bound(-1.0, 0.0), ArgumentError, "at least 0"),
    ],
)
def test_what_has_no_answer_is_refused(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
