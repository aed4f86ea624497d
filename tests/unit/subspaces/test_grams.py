"""Gram matrices by one triangle."""

from __future__ import annotations

import pytest
import torch

from headspan.subspaces.grams import LEAST_SIDE, row_gram


@pytest.mark.parametrize("rows", [3, LEAST_SIDE - 1, LEAST_SIDE, LEAST_SIDE + 77])
def test_a_gram_matrix_by_stripes_is_the_plain_product(rows: int) -> None:
    W = torch.randn(rows, 20, generator=torch.Generator().manual_seed(rows), dtype=torch.float64)
    for matrix in (W, W.mT.contiguous().mT):
        gram = row_gram(matrix)
        torch.testing.assert_close(gram, matrix @ matrix.mT, rtol=1e-12, atol=1e-12)
