"""What singular values and their laws must not see."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from headspan.statistics import mp_cdf, mp_edges
from headspan.subspaces import product_singular_values, random_subspaces, singular_values

SIDES = st.integers(1, 12)


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(m=SIDES, n=SIDES, seed=st.integers(0, 10**6))
def test_singular_values_do_not_see_rotations_or_the_transpose(m: int, n: int, seed: int) -> None:
    A = normal(seed, m, n)
    U, V = random_subspaces((), m, m, seed).basis, random_subspaces((), n, n, seed + 1).basis
    expected = singular_values(A).numpy()
    np.testing.assert_allclose(singular_values(U @ A @ V), expected, atol=1e-7 * expected[0])
    np.testing.assert_allclose(singular_values(A.mT), expected, atol=1e-7 * expected[0])


@given(m=SIDES, n=SIDES, r=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_a_product_does_not_see_how_it_is_factored(m: int, n: int, r: int, seed: int) -> None:
    A, B = normal(seed, m, r), normal(seed + 1, n, r)
    G = random_subspaces((), r, r, seed).basis * torch.linspace(0.5, 2, r, dtype=torch.float64)
    found = product_singular_values(A @ G, B @ torch.linalg.inv(G).mT)
    expected = product_singular_values(A, B).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6 * expected[0])


@given(m=st.integers(1, 500), n=st.integers(1, 500), sigma=st.floats(1e-3, 1e3), share=st.floats(0, 1))
def test_the_law_scales_with_its_entries_and_does_not_see_the_transpose(
    m: int, n: int, sigma: float, share: float
) -> None:
    low, high = mp_edges(m, n)
    s = torch.tensor([low + share * (high - low)], dtype=torch.float64)
    at = float(mp_cdf(s, m, n))
    assert 0 <= at <= 1
    assert abs(float(mp_cdf(sigma * s, n, m, sigma)) - at) < 1e-6
