"""Distances of attention spaces: their definition, their digits, and their null."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headspan
from headspan.errors import MemoryBudgetError
from headspan.lenses.similarity import schema
from headspan.lenses.similarity.layers import diversity
from headspan.statistics import z_score
from headspan.subspaces import Subspace, chordal_distance, orthonormal_basis, principal_angles, random_subspaces
from headspan.subspaces.distance_tables import (
    DISTANCES,
    cross_distances,
    distance_moments,
    distance_table,
    null_moments,
)
from tests.unit.test_similarity import columns, gpt2, quick, tiny

MEMORY = 2**26


@pytest.fixture(scope="module")
def heads() -> headspan.Heads:
    return gpt2()


@pytest.fixture(scope="module")
def result(heads: headspan.Heads) -> headspan.Result:
    return quick(heads, maps=True)


@pytest.fixture(scope="module")
def grouped() -> headspan.Heads:
    return tiny("llama").heads()


def test_distances_within_layers_are_the_same_with_and_without_those_across(heads: headspan.Heads) -> None:
    both, within = quick(heads, across_layers=True), quick(heads, across_layers=False)
    np.testing.assert_allclose(both["layer_distance"], within["layer_distance"], rtol=0, atol=1e-12)


def test_scipy_finds_the_same_distances_within_and_across_layers(
    heads: headspan.Heads, result: headspan.Result
) -> None:
    both = torch.cat([heads.W_Q, heads.W_K], dim=-1).double().numpy()
    for (i, a), (j, b) in pairwise([(0, 0), (0, 1), (1, 2), (0, 2), (1, 0)]):
        expected = np.sqrt((scipy.linalg.subspace_angles(both[i, a], both[j, b]) ** 2).sum())
        found = result["distance"].sel(src=(i, a), dst=(j, b))
        assert float(found) == pytest.approx(expected, abs=1e-10)
        if i == j:
            inside = result["layer_distance"].sel(head=(i, a))[b]
            assert float(inside) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("distance", schema.DISTANCES)
def test_every_distance_is_its_definition_in_the_angles(heads: headspan.Heads, distance: str) -> None:
    found = quick(heads, distance=distance)
    both = orthonormal_basis(torch.cat([heads.W_Q, heads.W_K], dim=-1).double())
    theta = principal_angles(both[0, 0], both[1, 2])
    one = found["distance"].sel(src="L0H0", dst="L1H2")
    assert float(one) == pytest.approx(float(DISTANCES[distance](theta)), abs=1e-9)
    assert found.attrs["distance"] == distance
    assert tuple(DISTANCES) == schema.DISTANCES


def test_tables_are_symmetric_with_a_zero_diagonal_that_has_no_null(result: headspan.Result) -> None:
    table = result["distance"].values
    assert np.array_equal(table, table.T)
    assert (np.diagonal(table) == 0).all()
    assert np.isnan(np.diagonal(result["distance_z"].values)).all()


def test_a_small_memory_budget_changes_nothing(grouped: headspan.Heads) -> None:
    plenty, little = quick(grouped), quick(grouped, memory="70kB")
    for name in ("distance", "layer_distance", "angles_RQ_RK", "projection_kernel_others"):
        np.testing.assert_allclose(plenty[name], little[name], atol=1e-12)


def test_a_budget_below_one_layer_is_refused(grouped: headspan.Heads) -> None:
    with pytest.raises(MemoryBudgetError, match="one layer need"):
        quick(grouped, memory=1000)
    S = random_subspaces((2,), 16, 4, seed=0)
    with pytest.raises(MemoryBudgetError, match="one pair of heads needs"):
        distance_table(S, "grassmann", 100)


def test_duplicate_heads_are_at_distance_zero() -> None:
    def change(weights: list[torch.Tensor]) -> None:
        for role in "QK":
            weights[1][:, columns(role, 2)] = weights[0][:, columns(role, 1)]

    found = quick(gpt2(change))
    assert float(found["distance"].sel(src="L0H1", dst="L1H2")) == pytest.approx(0, abs=1e-12)
    first = found.table("closest_pairs").iloc[0]
    assert (first["closest_src"], first["closest_dst"]) == ("L0H1", "L1H2")
    assert first["closest_distance"] == pytest.approx(0, abs=1e-12)
    assert first["closest_distance_null"] == pytest.approx(float(found["typical_distance"]))


@given(seed=st.integers(0, 2**16), p=st.integers(1, 6), q=st.integers(1, 6))
@settings(max_examples=25)
def test_distances_see_neither_the_basis_nor_a_rotation_of_the_whole(seed: int, p: int, q: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    A, B, turn = (torch.randn(7, n, generator=generator, dtype=torch.float64) for n in (p, q, 7))
    mix, turn = torch.randn(p, p, generator=generator, dtype=torch.float64), torch.linalg.qr(turn).Q
    plain = cross_distances(orthonormal_basis(A[None]), orthonormal_basis(B[None]), "grassmann", MEMORY)
    moved = cross_distances(
        orthonormal_basis((turn @ A @ mix)[None]), orthonormal_basis((turn @ B)[None]), "grassmann", MEMORY
    )
    np.testing.assert_allclose(plain, moved, atol=1e-6)


@given(angle=st.floats(1e-12, 1.5), rest=st.floats(1e-12, 1.5))
@settings(max_examples=40)
def test_a_distance_keeps_its_digits_however_small(angle: float, rest: float) -> None:
    U = torch.eye(6, dtype=torch.float64)[:, :2]
    V = U.clone()
    for column, theta in enumerate((angle, rest)):
        V[column, column], V[2 + column, column] = math.cos(theta), math.sin(theta)
    S = Subspace(torch.stack([U, V]), torch.tensor([2, 2]))
    assert distance_table(S, "grassmann", MEMORY)[0, 1] == pytest.approx(math.hypot(angle, rest), rel=1e-9, abs=1e-14)
    chord = math.hypot(math.sin(angle), math.sin(rest))
    assert distance_table(S, "chordal", MEMORY)[0, 1] == pytest.approx(chord, rel=1e-9, abs=1e-14)
    assert cross_distances(S, S, "projection", MEMORY)[0, 1] == pytest.approx(math.sqrt(2) * chord, rel=1e-9, abs=1e-14)


def test_distances_from_kernels_know_ranks_and_empty_spaces() -> None:
    wide, narrow = orthonormal_basis(torch.randn(2, 9, 4, dtype=torch.float64)), torch.tensor([4, 0])
    cut = torch.tensor([[1.0, 1, 1, 1], [0, 0, 0, 0]], dtype=torch.float64)
    S = Subspace(wide.basis * cut[:, None], narrow)
    line = orthonormal_basis(torch.randn(1, 9, 1, dtype=torch.float64))
    found = cross_distances(S, line, "chordal", MEMORY)
    expected = float(chordal_distance(principal_angles(S[0], line[0])))
    assert found[0, 0] == pytest.approx(expected, abs=1e-12)
    assert np.isnan(found[1, 0])
    assert np.isnan(distance_table(S, "chordal", MEMORY)).tolist() == [[False, True], [True, True]]


@pytest.mark.parametrize("shared", [0, 1, 3])
def test_exact_right_angles_beside_shared_directions_are_exact(shared: int) -> None:
    eye, turn = torch.eye(10, dtype=torch.float64), torch.linalg.qr(torch.randn(10, 10, dtype=torch.float64)).Q
    S = orthonormal_basis(torch.stack([turn @ eye[:, :4], turn @ eye[:, 4 - shared : 8 - shared]]))
    expected = math.sqrt(4 - shared) * math.pi / 2
    assert distance_table(S, "grassmann", MEMORY)[0, 1] == pytest.approx(expected, abs=1e-13)


def test_random_128_dimensional_spaces_in_768_are_13_82_apart() -> None:
    mean, sd = distance_moments("grassmann", 768, 128, 128, 0, 32, 0)
    assert mean == pytest.approx(13.82, abs=0.01)
    assert sd == pytest.approx(0.023, abs=0.006)


@pytest.mark.parametrize("distance", ["grassmann", "chordal", "procrustes"])
@pytest.mark.parametrize(("p", "q", "shared"), [(4, 6, 0), (6, 6, 3), (5, 5, 5), (12, 9, 0)])
def test_the_null_is_what_drawn_spaces_give(distance: str, p: int, q: int, shared: int) -> None:
    d, draws = 16, 400
    common = random_subspaces((draws,), d, shared, seed=1).basis
    S, T = (
        orthonormal_basis(torch.cat([common, random_subspaces((draws,), d, n - shared, seed=s).basis], dim=-1))
        for n, s in ((p, 2), (q, 3))
    )
    drawn = DISTANCES[distance](principal_angles(S, T))
    mean, sd = distance_moments(distance, d, p, q, shared, 1000, 0)
    assert mean == pytest.approx(float(drawn.mean()), abs=5 * max(sd, 1e-7) / math.sqrt(draws))
    assert sd == pytest.approx(float(drawn.std()), rel=0.25, abs=1e-6)


def test_heads_that_share_a_key_are_compared_to_heads_that_share_a_key(grouped: headspan.Heads) -> None:
    found = quick(grouped)
    null = found["layer_distance_null"].sel(head="L0H0")
    assert float(null[1]) < float(null[2])
    z = found["layer_distance_z"].values
    assert np.nanmax(np.abs(z)) < 6
    other = quick(grouped, space="qk")["layer_distance_null"].sel(head="L0H0")
    assert math.isnan(float(other[1]))
    assert math.isfinite(float(other[2]))


def test_diversity_has_the_spread_of_a_mean_of_uncorrelated_pairs() -> None:
    d, p, n = 20, 3, 6
    values = [
        diversity(
            distance_table(random_subspaces((n,), d, p, seed=s), "grassmann", MEMORY),
            *null_moments("grassmann", d, *[np.full(n, p)] * 2, np.zeros((n, n), dtype=int), 0),
            np.arange(n),
        )
        for s in range(80)
    ]
    z = np.array([value[3] for value in values])
    assert abs(z.mean()) < 0.3
    assert z.std() == pytest.approx(1, abs=0.3)


def test_a_null_without_variation_has_no_z_score() -> None:
    assert np.isnan(z_score(np.array(1.0), np.array(1.0), np.array(0.0)))
    assert z_score(np.array(3.0), np.array(1.0), np.array(0.5)) == 4
