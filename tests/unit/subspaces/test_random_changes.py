"""Random changes of a given size: what they keep, and the spans that rounding noise leaves."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch

from headspan.errors import ArgumentError
from headspan.subspaces import orthonormal_basis
from headspan.subspaces.random_changes import random_change, rounded_span

D, P = 30, 5


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_rounding_noise_keeps_the_size_of_every_entry_and_draws_its_sign() -> None:
    change = normal(4, D, P) * (torch.arange(D) > 3)[:, None]
    drawn = random_change(change, "rounding", torch.Generator().manual_seed(1))
    torch.testing.assert_close(drawn.abs(), change.abs(), rtol=0, atol=0)
    kept = float((drawn == change)[change != 0].double().mean())
    assert abs(kept - 0.5) < 4 * 0.5 / float((change != 0).sum()) ** 0.5


def test_gaussian_noise_keeps_the_norm_of_every_matrix() -> None:
    change = normal(4, D, P) * torch.tensor([0.0, 1.0, 2.0, 3.0])[:, None, None]
    drawn = random_change(change, "gaussian", torch.Generator().manual_seed(1))
    torch.testing.assert_close(torch.linalg.matrix_norm(drawn), torch.linalg.matrix_norm(change))
    assert float((drawn[1] * change[1]).sum().abs()) < 4 * float(change[1].square().sum()) / (D * P) ** 0.5


def test_unknown_noise_is_refused() -> None:
    with pytest.raises(ArgumentError, match="noise='x' is unknown; random changes are gaussian or rounding"):
        random_change(normal(2, 2), "x", torch.Generator())


@pytest.mark.parametrize("rank", [(P, P), (2, 2)])
def test_spans_after_rounding_noise_are_those_of_the_changed_matrices(rank: tuple[int, int]) -> None:
    W, change = normal(D, P, seed=1), 0.2 * normal(D, P, seed=2)
    left = torch.linalg.svd(W, full_matrices=False)[0][:, : rank[0]]
    drawn, outside = rounded_span(W, change, left, 3, torch.Generator().manual_seed(7), rank)
    noise = random_change(change.expand(3, D, P), "rounding", torch.Generator().manual_seed(7))
    for place in range(3):
        new = np.linalg.svd((W + noise[place]).numpy(), full_matrices=False)
        angles = np.sort(scipy.linalg.subspace_angles(left.numpy(), new[0][:, : rank[1]]))
        np.testing.assert_allclose(drawn.angles[place], angles, atol=1e-7)
        np.testing.assert_allclose(drawn.singular_values[place], new[1], rtol=1e-10)
        residual = noise[place] - left @ (left.mT @ noise[place])
        assert float(outside[place]) == pytest.approx(float(residual.square().sum() / change.square().sum()))


def test_columns_beyond_the_dimension_of_the_old_span_do_not_count() -> None:
    W = torch.cat([normal(D, 3), normal(D, 1).expand(D, 2)], dim=1)
    space = orthonormal_basis(W)
    assert int(space.rank) == 4
    drawn, _ = rounded_span(W, 0.01 * normal(D, P), space.basis, 2, torch.Generator(), (4, 4))
    assert drawn.angles.shape == (2, 4)
    assert float(drawn.angles.max()) < 0.2
