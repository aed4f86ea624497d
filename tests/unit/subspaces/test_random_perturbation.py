"""What a random change does to a span: draws against changes of whole matrices, and the value without draws."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from headspan.errors import ArgumentError, ShapeError
from headspan.subspaces import Subspace, chordal_distance, orthonormal_basis, principal_angles
from headspan.subspaces.random_angles import expected_perturbation_sines, random_perturbation

DRAWS = 400


def matrix(d: int, p: int, weakest: float = 0.3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(d, p, generator=generator, dtype=torch.float64) * torch.linspace(2, weakest, p)


def changed(W: torch.Tensor, size: float) -> torch.Tensor:
    E = torch.randn(DRAWS, *W.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return W + E * (size / torch.linalg.matrix_norm(E))[:, None, None]


def drawn(W: torch.Tensor, size: float, rank: tuple[int, int] | None = None):
    p = W.shape[1]
    generator = torch.Generator().manual_seed(3)
    return random_perturbation(torch.linalg.svdvals(W), W.shape[0], size, DRAWS, generator, rank or (p, p))


@pytest.mark.parametrize(("d", "p"), [(40, 6), (10, 6)])
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_small_draws_are_distributed_as_changes_of_the_whole_matrix(d: int, p: int, size: float) -> None:
    W = matrix(d, p)
    whole = changed(W, size)
    direct = principal_angles(orthonormal_basis(W), orthonormal_basis(whole))
    found = drawn(W, size)
    for here, there in ((found.angles, direct), (found.singular_values, torch.linalg.svdvals(whole))):
        assert here.shape == there.shape
        for column in range(here.shape[1]):
            # Angles that are zero for lack of room come out as rounding.
            assert stats.ks_2samp(here[:, column].round(decimals=12), there[:, column].round(decimals=12)).pvalue > 1e-3
    assert stats.ks_2samp(chordal_distance(found.angles), chordal_distance(direct)).pvalue > 1e-3


def test_leading_directions_are_drawn_as_changes_of_the_whole_matrix() -> None:
    W = matrix(30, 6)
    left, right = (torch.linalg.svd(M, full_matrices=False)[0][..., :3] for M in (W, changed(W, 2.0)))
    direct = principal_angles(Subspace.from_orthonormal(left), Subspace.from_orthonormal(right))
    found = drawn(W, 2.0, (3, 3)).angles
    assert stats.ks_2samp(chordal_distance(found), chordal_distance(direct)).pvalue > 1e-3


def test_a_head_that_lacks_directions_is_held_against_those_it_has() -> None:
    W = matrix(30, 6)
    W[:, 4:] = W[:, :2]
    old = orthonormal_basis(W)
    assert int(old.rank) == 4
    direct = principal_angles(old, orthonormal_basis(changed(W, 0.5)))
    found = drawn(W, 0.5, (4, 6)).angles
    assert found.shape == (DRAWS, 4)
    assert stats.ks_2samp(chordal_distance(found), chordal_distance(direct[:, :4])).pvalue > 1e-3


def test_a_span_that_is_everything_cannot_move() -> None:
    W = matrix(6, 6)
    assert (drawn(W, 5.0).angles == 0).all()
    assert (expected_perturbation_sines(torch.linalg.svdvals(W), 6, torch.tensor(5.0)) == 0).all()


@pytest.mark.parametrize("size", [1e-4, 0.1, 1.0, 5.0, 1000.0])
def test_the_value_without_draws_is_near_their_mean(size: float) -> None:
    W = matrix(96, 8)
    expected = expected_perturbation_sines(torch.linalg.svdvals(W), 96, torch.tensor(size)).square().sum().sqrt()
    assert float(expected) == pytest.approx(float(chordal_distance(drawn(W, size).angles).mean()), rel=0.04)


def test_the_value_without_draws_is_first_order_for_small_and_unrelated_for_large_changes() -> None:
    s = torch.tensor([3.0, 2.0, 0.5])
    small = expected_perturbation_sines(s, 20, torch.tensor(1e-6)).square().sum()
    assert float(small) == pytest.approx(1e-12 / (20 * 3) * 17 * float((1 / s**2).sum()), rel=1e-6)
    large = expected_perturbation_sines(s, 20, torch.tensor(1e9)).square().sum()
    assert float(large) == pytest.approx(3 - 9 / 20)


def test_what_cannot_be_drawn_is_refused() -> None:
    generator, s = torch.Generator(), torch.ones(3)
    with pytest.raises(ShapeError, match="1 <= p <= d = 2"):
        random_perturbation(s, 2, 1.0, 4, generator, (2, 2))
    with pytest.raises(ArgumentError, match=r"in 1\.\.3, found 0 and 3"):
        random_perturbation(s, 5, 1.0, 4, generator, (0, 3))
    for size in (0.0, math.inf, math.nan):
        with pytest.raises(ArgumentError, match="positive norm"):
            random_perturbation(s, 5, size, 4, generator, (3, 3))
