"""Kernels stay on the device of their input.

There is no second device on every machine, but there is the meta device, whose tensors cannot meet others. While it is
the default, whatever a kernel makes without saying where lands there, and the kernel fails.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from headspan.subspaces import (
    orthonormal_basis,
    principal_angles,
    product_singular_values,
    projection_kernel,
    projection_kernel_table,
    singular_values,
    squared_overlaps,
    subspace_sum,
)
from headspan.subspaces.sketch import kernel_estimate, kernel_standard_error
from headspan.subspaces.slabs import TensorSlabs, slab_gram, slab_overlaps

CPU = torch.device("cpu")
A = torch.randn(5, 30, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
B = torch.randn(5, 30, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
LAYER = torch.arange(5)
S, T = (orthonormal_basis(factors) for factors in (A, B))


def streamed() -> Tensor:
    size_A, size_B = (torch.linalg.matrix_norm(factors.mT @ factors) for factors in (A, B))
    return slab_overlaps(TensorSlabs(A, 7), [TensorSlabs(B, 7)], sizes=(size_A, [size_B]), memory=10**6)[0]


KERNELS: dict[str, Callable[[], Tensor]] = {
    "orthonormal_basis": lambda: orthonormal_basis(A).basis,
    "orthonormal_basis by svd": lambda: orthonormal_basis(A, method="svd").basis,
    "subspace_sum": lambda: subspace_sum(S, T).basis,
    "principal_angles": lambda: principal_angles(S, T),
    "gram": lambda: squared_overlaps(A, [B], algorithm="gram")[0],
    "projector": lambda: squared_overlaps(A, [B], algorithm="projector")[0],
    "composing pairs": lambda: projection_kernel(S, T, src_layer=LAYER, dst_layer=LAYER),
    "projection_kernel_table": lambda: projection_kernel_table(S),
    "streamed projector": streamed,
    "streamed gram": lambda: slab_gram(TensorSlabs(A, 7), TensorSlabs(B, 7), 10**6),
    "singular_values": lambda: singular_values(A),
    "product_singular_values": lambda: product_singular_values(A, A),
    "kernel_estimate": lambda: kernel_estimate(A[..., 0], A[:, :1, 0], A[:1, :, 0], 9),
    "kernel_standard_error": lambda: kernel_standard_error(A.abs(), 4, 3, 9),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_makes_nothing_on_another_device_than_its_input(name: str) -> None:
    expected = KERNELS[name]()
    with torch.device("meta"):
        found = KERNELS[name]()
    assert found.device == CPU
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_the_meta_device_does_catch_a_tensor_made_without_saying_where() -> None:
    with torch.device("meta"), pytest.raises(RuntimeError, match="device"):
        A + torch.ones(5, 30, 4)
