"""Factors in slabs, in memory and in scratch files, and overlaps made of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
import torch
from torch import Tensor

from headspan.errors import HeadspanError, MemoryBudgetError, ShapeError
from headspan.subspaces import orthonormal_basis, random_subspaces
from headspan.subspaces.slabs import TensorSlabs, scratch_slabs, slab_count, slab_gram, slab_height, slab_overlaps
from headspan.subspaces.staircase import composing_pairs
from tests.unit.subspaces.overlaps import pairwise_overlaps

D, P, Q = 50, 6, 4


def factors(n: int, p: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, D, p, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def sizes(*batches: Tensor) -> list[Tensor]:
    return [torch.linalg.matrix_norm(batch.mT @ batch) for batch in batches]


@pytest.mark.parametrize("height", [1, 7, 50])
def test_a_scratch_file_gives_back_what_was_put_in(height: int) -> None:
    A = factors(9, P, 1, torch.float32)
    with scratch_slabs((9, D, P), height, torch.float32) as slabs:
        slabs.append(A[:2])
        slabs.append(A[2:])
        rows = torch.cat([slabs.slab(number) for number in range(slab_count(slabs))], dim=1)
        assert torch.equal(rows, A)
        assert torch.equal(slabs.members(3, 8), A[3:8])


@pytest.mark.parametrize("memory", [10**8, 30_000])
@pytest.mark.parametrize("scratch", [False, True])
def test_streamed_overlaps_are_the_definition(memory: int, scratch: bool) -> None:
    A, B, C = factors(8, P, 1), factors(5, Q, 2), factors(6, P, 3)
    height = slab_height(8 * P + 5 * Q + 6 * P, 19, D, 8, memory)
    size_A, *size_rest = sizes(A, B, C)
    with (
        scratch_slabs((8, D, P), height, A.dtype) as file_A,
        scratch_slabs((5, D, Q), height, A.dtype) as file_B,
    ):
        file_A.append(A)
        file_B.append(B)
        first, second = (file_A, file_B) if scratch else (TensorSlabs(A, height), TensorSlabs(B, height))
        found = slab_overlaps(first, [second, TensorSlabs(C, height)], sizes=(size_A, size_rest), memory=memory)
    for table, other in zip(found, (B, C), strict=True):
        expected = torch.einsum("idp,jdq->ijpq", A, other).square().sum((-2, -1))
        torch.testing.assert_close(table, expected)


def test_streamed_gram_is_the_definition_however_small_its_blocks() -> None:
    A, B = factors(8, P, 1), factors(5, Q, 2)
    expected = pairwise_overlaps(A, B, algorithm="gram")
    for memory in (10**7, 60_000):
        table = slab_gram(TensorSlabs(A, D), TensorSlabs(B, D), memory)
        torch.testing.assert_close(table, expected, rtol=1e-12, atol=0)


def test_only_the_wanted_pairs_are_made() -> None:
    A, B = factors(600, P, 1, torch.float32), factors(5, Q, 2, torch.float32)
    src, dst = torch.arange(600) // 120, torch.arange(5)
    size_A, size_B = sizes(A, B)
    stairs = [composing_pairs(src, dst)]
    (table,) = slab_overlaps(
        TensorSlabs(A, 16), [TensorSlabs(B, 16)], sizes=(size_A, [size_B]), stairs=stairs, memory=10**8
    )
    expected = pairwise_overlaps(A, B, src_layer=src, dst_layer=dst, algorithm="gram")
    assert torch.equal(table.isnan(), expected.isnan())
    torch.testing.assert_close(table, expected, equal_nan=True, rtol=1e-4, atol=1e-3)


def test_orthogonal_spaces_have_kernel_zero_and_nothing_below() -> None:
    whole = random_subspaces((), D, D, 3, dtype=torch.float32).basis
    A, B = whole[None, :, :10].contiguous(), whole[None, :, 10:].contiguous()
    size_A, size_B = sizes(A, B)
    (table,) = slab_overlaps(TensorSlabs(A, 8), [TensorSlabs(B, 8)], sizes=(size_A, [size_B]), memory=10**8)
    assert 0 <= float(table) < 1e-4


def test_a_scratch_file_has_no_name_and_dies_with_its_process(tmp_path: Path) -> None:
    program = """
        import os, sys, torch
        from headspan.subspaces.slabs import scratch_slabs
        with scratch_slabs((4, 1000, 100), 10, torch.float32) as slabs:
            slabs.append(torch.ones(4, 1000, 100))
            print(len(os.listdir(sys.argv[1])), flush=True)
            os.kill(os.getpid(), 9)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (-9, "0")
    assert list(tmp_path.iterdir()) == []


def test_scratch_space_that_the_disk_does_not_have_is_refused_at_once() -> None:
    with (
        pytest.raises(HeadspanError, match=r"bytes of scratch space are needed .* set TMPDIR"),
        scratch_slabs((10**9, 10**4, 100), 10, torch.float32),
    ):
        pass


def test_a_full_disk_is_told_in_one_line() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    from headspan.subspaces.slabs import ScratchSlabs

    with Path("/dev/full").open("r+b", buffering=0) as file:
        slabs = ScratchSlabs(file, (2, D, P), 10, torch.float64, torch.device("cpu"))
        with pytest.raises(HeadspanError, match=f"{tempfile.gettempdir()} ran out .*No space left"):
            slabs.append(factors(2, P, 1))


def test_factors_of_another_shape_are_refused() -> None:
    with scratch_slabs((2, D, P), 10, torch.float64) as slabs, pytest.raises(ShapeError, match="for 2 factors"):
        slabs.append(factors(3, P, 1))


def test_a_budget_without_room_for_a_row_is_refused() -> None:
    with pytest.raises(MemoryBudgetError, match="one row of 100 factors needs a budget of"):
        slab_height(6400, 100, 768, 8, 1000)


def test_bases_of_a_scratch_file_keep_their_kernels() -> None:
    spaces = orthonormal_basis(factors(5, P, 7))
    size = spaces.rank.double().sqrt()
    with scratch_slabs((5, D, P), 13, torch.float64) as slabs:
        slabs.append(spaces.basis)
        (table,) = slab_overlaps(slabs, [slabs], sizes=(size, [size]), memory=10**6)
    assert torch.allclose(table.diagonal(), torch.full((5,), float(P), dtype=torch.float64))
