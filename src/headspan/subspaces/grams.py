"""Gram matrices W W^T of wide matrices, of which only one triangle is multiplied.

A product does not know that its result is symmetric. In STRIPS stripes of rows, what lies right of the diagonal squares
is copied from below: (1 + 1/STRIPS) / 2 of the operations of a plain product.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

STRIPS = 8
LEAST_SIDE = 1024
"""Below it stripes are too low to be multiplied as fast as the whole."""


def row_gram(W: Float[Tensor, "n m"]) -> Float[Tensor, "n n"]:
    """W W^T: inner products of all rows.

    >>> import torch
    >>> W = torch.arange(6.0).reshape(2, 3)
    >>> row_gram(W).tolist()
    [[5.0, 14.0], [14.0, 50.0]]
    """
    n = len(W)
    if n < LEAST_SIDE:
        return W @ W.mT
    gram, height = W.new_empty(n, n), -(-n // STRIPS)
    for first in range(0, n, height):
        after = min(first + height, n)
        gram[first:after, :after] = W[first:after] @ W[:after].mT
        gram[:first, first:after] = gram[first:after, :first].mT
    return gram
