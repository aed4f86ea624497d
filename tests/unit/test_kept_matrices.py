"""Whole matrices are read once and kept: within a limit, until they are released, and never at a budget's expense."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import headspan
from headspan.checkpoint import Checkpoint, open_checkpoint
from headspan.errors import ArgumentError
from headspan.heads import Heads
from headspan.lenses.affinity import measurement
from headspan.lenses.affinity.pair_tables import KernelTables, kernel_tables
from tests.families.tiny_models import CASES

MATRICES: dict[str, Callable[[Heads], Tensor]] = {
    "W_Q": lambda heads: heads.W_Q,
    "W_K": lambda heads: heads.W_K,
    "W_V": lambda heads: heads.W_V,
    "W_O": lambda heads: heads.W_O,
    "W_E": lambda heads: heads.W_E,
    "W_pos": lambda heads: heads.W_pos,
    "W_U": lambda heads: heads.W_U,
    "MLP": lambda heads: heads.mlp(1).W_in[0],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gpt2")
    next(case for case in CASES if case.name == "gpt2").model(head=True).save_pretrained(path)
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the tensors that were read from a file, in order."""
    names: list[str] = []
    take = Checkpoint.take

    def counted(self: Checkpoint, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
        names.extend(shapes)
        return take(self, shapes)

    monkeypatch.setattr(Checkpoint, "take", counted)
    return names


@pytest.mark.parametrize("name", MATRICES)
def test_a_matrix_is_read_from_the_file_once(folder: Path, reads: list[str], name: str) -> None:
    heads, matrix = open_checkpoint(folder).heads(), MATRICES[name]
    first = matrix(heads)
    assert reads
    reads.clear()
    assert matrix(heads) is first
    assert not reads


@pytest.mark.parametrize("name", MATRICES)
def test_what_is_kept_is_what_is_stored(folder: Path, name: str) -> None:
    heads, matrix = open_checkpoint(folder).heads(), MATRICES[name]
    direct = matrix(open_checkpoint(folder).heads(cache=0))
    assert torch.equal(matrix(heads), direct)
    assert torch.equal(matrix(heads), direct)


def test_the_limit_is_kept_and_what_was_not_used_for_longest_goes_first(folder: Path, reads: list[str]) -> None:
    size = open_checkpoint(folder).heads().W_Q.nbytes
    heads = open_checkpoint(folder).heads(cache=2 * size)
    for matrix in (heads.W_Q, heads.W_K, heads.W_Q, heads.W_V):
        assert matrix.nbytes == size
        assert heads.cache.n_bytes <= 2 * size
    reads.clear()
    _ = heads.W_Q, heads.W_V
    assert not reads
    _ = heads.W_K
    assert reads


def test_a_fused_matrix_is_not_held_by_one_of_its_roles(folder: Path) -> None:
    heads = open_checkpoint(folder).heads()
    kept = heads.W_Q
    assert kept.untyped_storage().nbytes() == kept.nbytes == heads.cache.n_bytes


def test_a_matrix_larger_than_the_limit_is_read_each_time(folder: Path, reads: list[str]) -> None:
    heads = open_checkpoint(folder).heads(cache=100)
    first = heads.W_Q
    reads.clear()
    assert torch.equal(heads.W_Q, first)
    assert reads
    assert heads.cache.n_bytes == 0


def test_a_lower_limit_holds_from_the_next_matrix_on(folder: Path) -> None:
    heads = open_checkpoint(folder).heads()
    _ = heads.W_E, heads.W_U, heads.W_Q
    heads.cache.limit = heads.W_K.nbytes
    _ = heads.W_K
    assert heads.cache.n_bytes == heads.cache.limit


def test_release_lets_go_of_everything(folder: Path, reads: list[str]) -> None:
    heads = open_checkpoint(folder).heads()
    _ = heads.W_Q, heads.W_E, heads.mlp(0)
    assert heads.cache.n_bytes > 0
    heads.release()
    assert heads.cache.n_bytes == 0
    reads.clear()
    _ = heads.W_Q
    assert reads


def test_forms_of_the_same_heads_share_a_limit_but_not_their_numbers(folder: Path) -> None:
    heads = open_checkpoint(folder).heads()
    plain, folded, narrow = heads.W_Q, heads.refolded("layernorm").W_Q, heads.to("float32").W_Q
    assert not torch.equal(plain, folded)
    assert narrow.dtype == torch.float32
    assert heads.W_Q is plain
    assert heads.cache.n_bytes == plain.nbytes + folded.nbytes + narrow.nbytes
    assert heads.refolded("layernorm").cache is heads.cache


def test_what_is_read_within_a_budget_is_not_kept(folder: Path) -> None:
    heads = open_checkpoint(folder).heads()
    _ = [*heads.blocks("1GB")], heads.layer(0), heads.whole("Q"), heads.table("W_E"), [*heads.mlp_matrices(0)]
    _ = heads.rank("Q"), heads.norm(0), heads.final_norm()
    assert heads.cache.n_bytes == 0


def test_a_model_in_memory_is_read_anew_because_it_may_change() -> None:
    model = next(case for case in CASES if case.name == "llama").model()
    heads = open_checkpoint(model).heads()
    before = heads.W_Q.clone()
    with torch.no_grad():
        model.layers[0].self_attn.q_proj.weight.mul_(2)
    assert torch.equal(heads.W_Q[0], 2 * before[0])
    assert heads.cache.n_bytes == 0


def test_heads_travel_to_another_process_without_what_they_keep(folder: Path) -> None:
    heads = open_checkpoint(folder).heads(cache="1MB")
    _ = heads.W_Q
    travelled = pickle.loads(pickle.dumps(heads.cache))
    assert (travelled.limit, travelled.n_bytes) == (10**6, 0)


def test_a_table_of_another_name_is_refused(folder: Path) -> None:
    with pytest.raises(ArgumentError, match="there is no table 'W_X'; tables are W_E, W_pos, W_U"):
        open_checkpoint(folder).heads().table("W_X")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[KernelTables]:
    """Tables of projection kernels that were computed, in order."""
    found: list[KernelTables] = []

    def counted(*arguments: object) -> KernelTables:
        found.append(kernel_tables(*arguments))
        return found[-1]

    monkeypatch.setattr(measurement, "kernel_tables", counted)
    return found


def test_wiring_takes_the_kernels_that_affinity_made(folder: Path, made: list[KernelTables]) -> None:
    model = headspan.open(folder)
    alone = headspan.wiring(folder)
    made.clear()
    headspan.affinity(model)
    shared = headspan.wiring(model)
    assert len(made) == 1
    for role in "QKV":
        assert shared[f"O to {role}"].share.identical(alone[f"O to {role}"].share)


def test_kernels_are_made_anew_for_other_weights_pairs_and_tolerances(folder: Path, made: list[KernelTables]) -> None:
    model = headspan.open(folder)
    for options in ({}, {"pairings": "OK"}, {"tolerance": 0.5}, {"fold": "layernorm"}, {"dtype": "float32"}):
        headspan.affinity(model, **options)
    assert len(made) == 5


def test_a_changed_result_does_not_change_the_next(folder: Path) -> None:
    model = headspan.open(folder)
    first = headspan.affinity(model, pairings="OK")
    before = first["OK"].projection_kernel.copy(deep=True)
    first["OK"].projection_kernel.values[:] = 0.0
    assert headspan.affinity(model, pairings="OK")["OK"].projection_kernel.identical(before)
