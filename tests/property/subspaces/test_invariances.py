"""What no quantity may depend on: the basis, the scale, rotations of R^d, the order of heads."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headspan.subspaces import (
    Factored,
    Subspace,
    binet_cauchy_distance,
    chordal_distance,
    complement,
    fubini_study_distance,
    grassmann_distance,
    intersection,
    kernel_null_mean,
    kernel_null_variance,
    log_lower_tail,
    log_upper_tail,
    null_space_angles,
    orthonormal_basis,
    principal_angles,
    procrustes_distance,
    project,
    projection_distance,
    projection_kernel,
    random_subspaces,
    spectral_distance,
    subspace_sum,
)
from tests.unit.subspaces.overlaps import pairwise_overlaps

METRICS = (
    grassmann_distance,
    chordal_distance,
    projection_distance,
    fubini_study_distance,
    binet_cauchy_distance,
    spectral_distance,
    procrustes_distance,
)
SEEDS = st.integers(0, 2**31 - 1)


@st.composite
def cases(draw: st.DrawFn, largest: int = 14) -> tuple[int, int, int, int]:
    """d, p, q and a seed; the tensors are made in the test, since strategies may not use other randomness."""
    d = draw(st.integers(1, largest))
    return d, draw(st.integers(1, d)), draw(st.integers(1, d)), draw(SEEDS)


def pair(case: tuple[int, int, int, int]) -> tuple[Subspace, Subspace, int]:
    d, p, q, seed = case
    return random_subspaces((2,), d, p, seed), random_subspaces((2,), d, q, seed + 1), seed


def turned(S: Subspace, seed: int) -> Subspace:
    """The same subspaces in other bases, from a random invertible mixing of the columns."""
    mixing = torch.randn(*S.batch_shape, S.width, S.width, generator=torch.Generator().manual_seed(seed)).double()
    return orthonormal_basis(S.basis @ (mixing + 3 * torch.eye(S.width)))


def projector(S: Subspace) -> Tensor:
    return S.basis @ S.basis.mT


@given(cases())
def test_projection_kernel_does_not_see_the_basis(case: tuple[int, int, int, int]) -> None:
    S, T, seed = pair(case)
    for algorithm in ("gram", "projector"):
        before = projection_kernel(S, T, algorithm=algorithm)
        after = projection_kernel(turned(S, seed), turned(T, seed + 1), algorithm=algorithm)
        torch.testing.assert_close(before, after, atol=1e-8, rtol=0)


@given(cases())
def test_both_algorithms_agree_and_source_and_destination_exchange_by_transposing(
    case: tuple[int, int, int, int],
) -> None:
    S, T, _ = pair(case)
    gram = projection_kernel(S, T, algorithm="gram")
    torch.testing.assert_close(gram, projection_kernel(S, T, algorithm="projector"), atol=1e-12, rtol=0)
    torch.testing.assert_close(gram, projection_kernel(T, S, algorithm="projector").T, atol=1e-12, rtol=0)


@given(cases())
def test_a_kernel_and_that_with_the_complement_share_out_the_dimension(case: tuple[int, int, int, int]) -> None:
    S, T, _ = pair(case)
    if T.width < T.ambient:
        total = projection_kernel(S, T) + projection_kernel(S, complement(T))
        torch.testing.assert_close(total, torch.full((2, 2), float(S.width)).double(), atol=1e-12, rtol=0)


@given(cases())
def test_angles_do_not_see_a_rotation_of_the_space_nor_the_basis_nor_the_order(
    case: tuple[int, int, int, int],
) -> None:
    S, T, seed = pair(case)
    theta = principal_angles(S, T)
    Q = random_subspaces((), S.ambient, S.ambient, seed + 2).basis
    rotated = principal_angles(Subspace(Q @ S.basis, S.rank), Subspace(Q @ T.basis, T.rank))
    torch.testing.assert_close(rotated, theta, atol=1e-12, rtol=0)
    torch.testing.assert_close(principal_angles(T, S), theta, atol=1e-12, rtol=0)
    torch.testing.assert_close(principal_angles(turned(S, seed), T), theta, atol=1e-8, rtol=0)
    assert bool((theta.diff() >= -1e-15).all())
    assert 0 <= float(theta.min()) <= float(theta.max()) <= math.pi / 2


@given(cases())
def test_null_space_angles_are_those_of_explicit_complements(case: tuple[int, int, int, int]) -> None:
    S, T, _ = pair(case)
    derived = null_space_angles(principal_angles(S, T), S.ambient, S.width, T.width)
    for ours, spaces in (
        (derived.null_null, (complement(S), complement(T))),
        (derived.row_null, (S, complement(T))),
        (derived.null_row, (complement(S), T)),
    ):
        torch.testing.assert_close(ours, principal_angles(*spaces), atol=1e-12, rtol=0)


@given(cases())
def test_dimensions_of_sum_and_intersection_add_up(case: tuple[int, int, int, int]) -> None:
    S, T, _ = pair(case)
    total = subspace_sum(S, T).rank + intersection(S, T, tolerance=1e-9).rank
    assert total.tolist() == [S.width + T.width] * 2


@given(st.integers(2, 9), st.integers(1, 4), SEEDS)
def test_distances_are_metrics(d: int, p: int, seed: int) -> None:
    p = min(p, d)
    S, T, R = (random_subspaces((), d, p, seed + i) for i in range(3))
    for metric in METRICS:
        there, back, a, b = (float(metric(principal_angles(x, y))) for x, y in ((S, T), (T, S), (S, R), (R, T)))
        assert abs(there - back) < 1e-9
        assert there <= a + b + 1e-9


@given(SEEDS, st.integers(1, 10), st.integers(1, 10), st.integers(0, 10))
def test_the_basis_does_not_depend_on_scale_mixing_or_method(seed: int, d: int, p: int, rank: int) -> None:
    rank = min(rank, d, p)
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(d, rank, generator=generator).double() @ torch.randn(rank, p, generator=generator).double()
    S = orthonormal_basis(A, tolerance=1e-10)
    assert int(S.rank) <= rank
    for other in (A * 1e-7, A.flip(-1), -A):
        torch.testing.assert_close(
            projector(orthonormal_basis(other, tolerance=1e-10)), projector(S), atol=1e-6, rtol=0
        )
    for method in ("cholesky", "qr", "svd"):
        torch.testing.assert_close(
            projector(orthonormal_basis(A, tolerance=1e-10, method=method)), projector(S), atol=1e-6, rtol=0
        )


@given(cases())
def test_projecting_twice_is_projecting_once(case: tuple[int, int, int, int]) -> None:
    S, _, seed = pair(case)
    x = torch.randn(2, 3, S.ambient, generator=torch.Generator().manual_seed(seed)).double()
    once = project(x, S)
    torch.testing.assert_close(project(once, S), once, atol=1e-12, rtol=0)
    assert bool((once.norm(dim=-1) <= x.norm(dim=-1) + 1e-12).all())


@given(
    SEEDS, st.lists(st.integers(0, 4), min_size=1, max_size=12), st.lists(st.integers(0, 4), min_size=1, max_size=12)
)
def test_composing_pairs_are_found_in_any_order_of_heads(seed: int, src: list[int], dst: list[int]) -> None:
    generator = torch.Generator().manual_seed(seed)
    A, B = (torch.randn(len(layers), 5, 2, generator=generator).double() for layers in (src, dst))
    src_layer, dst_layer = torch.tensor(src), torch.tensor(dst)
    wanted = torch.where(src_layer[:, None] < dst_layer, pairwise_overlaps(A, B), torch.nan)
    for algorithm in ("gram", "projector"):
        ours = pairwise_overlaps(A, B, src_layer=src_layer, dst_layer=dst_layer, algorithm=algorithm)
        torch.testing.assert_close(ours, wanted, equal_nan=True, atol=1e-11, rtol=0)


@given(st.integers(2, 200), st.data())
def test_chance_is_symmetric_and_knows_complements(d: int, data: st.DataObject) -> None:
    p, q = data.draw(st.integers(1, d - 1)), data.draw(st.integers(1, d))
    share = data.draw(st.floats(0.05, 0.95))
    low, high = max(0, p + q - d), min(p, q)
    t = torch.tensor(low + share * (high - low), dtype=torch.float64)
    torch.testing.assert_close(kernel_null_mean(p, q, d), kernel_null_mean(q, p, d))
    torch.testing.assert_close(
        kernel_null_mean(p, q, d) + kernel_null_mean(d - p, q, d), torch.tensor(float(q)).double()
    )
    torch.testing.assert_close(kernel_null_variance(p, q, d), kernel_null_variance(d - p, q, d))
    torch.testing.assert_close(log_upper_tail(t, p, q, d), log_upper_tail(t, q, p, d))
    if q < d:
        # PK(U, V) = q - PK(complement of U, V): one's upper tail is the other's lower tail.
        torch.testing.assert_close(log_upper_tail(t, p, q, d), log_lower_tail(q - t, d - p, q, d), rtol=1e-6, atol=1e-9)


@given(st.integers(2, 60), st.integers(1, 30), st.integers(1, 30))
@settings(max_examples=50)
def test_tails_fall_monotonically(d: int, p: int, q: int) -> None:
    p, q = min(p, d - 1), min(q, d - 1)
    t = torch.linspace(max(0, p + q - d), min(p, q), 30, dtype=torch.float64)
    assert bool((log_upper_tail(t, p, q, d).diff() <= 1e-12).all())
    assert bool((log_lower_tail(t, p, q, d).diff() >= -1e-12).all())


@given(SEEDS, st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
def test_a_factored_matrix_does_not_see_how_it_is_split(seed: int, m: int, n: int, r: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    A, B = (torch.randn(size, r, generator=generator).double() for size in (m, n))
    mixing = torch.randn(r, r, generator=generator).double() + 4 * torch.eye(r)
    M, N = Factored(A, B), Factored(A @ mixing, torch.linalg.solve(mixing, B.mT).mT)
    torch.testing.assert_close(M.singular_values(), N.singular_values(), atol=1e-9, rtol=0)
    torch.testing.assert_close(M.frobenius_norm(), N.frobenius_norm(), atol=1e-9, rtol=0)
    torch.testing.assert_close(M.mT.nuclear_norm(), N.nuclear_norm(), atol=1e-9, rtol=0)
    if m == n:
        torch.testing.assert_close(M.trace(), N.trace(), atol=1e-9, rtol=0)
