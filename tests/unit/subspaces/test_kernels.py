"""The projection kernel and the squared overlap behind it: two algorithms, composing pairs, ranks, budgets."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from headspan.errors import ArgumentError, DegenerateSubspace, MemoryBudgetError, ShapeError
from headspan.subspaces import (
    Subspace,
    concatenate,
    kernel_null_mean,
    kernel_null_variance,
    orthonormal_basis,
    principal_cosines,
    projection_kernel,
    projection_kernel_table,
    projection_kernels,
    random_subspaces,
    squared_overlap_table,
    squared_overlaps,
)
from headspan.subspaces.overlap import projector_is_cheaper
from headspan.subspaces.staircase import composing_pairs, full_table, upper_triangle
from tests.unit.subspaces.overlaps import pairwise_overlaps

ALGORITHMS = ("gram", "projector")


def naive(A: Tensor, B: Tensor) -> Tensor:
    """The definition, pair by pair."""
    return torch.stack([torch.stack([torch.linalg.norm(a.T @ b) ** 2 for b in B]) for a in A])


def factors(n: int, d: int, p: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, p, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("n", "m", "d", "p", "q"),
    [(5, 3, 20, 4, 4), (1, 7, 9, 2, 5), (30, 41, 131, 6, 3), (4, 4, 6, 6, 6), (3, 2, 1, 1, 1)],
)
def test_overlaps_are_the_naive_norms(algorithm: str, n: int, m: int, d: int, p: int, q: int) -> None:
    A, B = factors(n, d, p), factors(m, d, q, seed=1)
    torch.testing.assert_close(pairwise_overlaps(A, B, algorithm=algorithm), naive(A, B), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("n", [1, 5, 80, 200])
def test_the_symmetric_table_is_the_full_table(algorithm: str, n: int) -> None:
    A = factors(n, 15, 3)
    table = squared_overlap_table(A, algorithm=algorithm)
    torch.testing.assert_close(table, naive(A, A), rtol=1e-12, atol=1e-12)
    assert torch.equal(table, table.T)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("memory", [900, 5_000, 100_000])
def test_the_memory_budget_does_not_change_the_result(algorithm: str, memory: int) -> None:
    A, B = factors(20, 33, 1), factors(15, 33, 1, seed=1)
    ours = pairwise_overlaps(A, B, algorithm=algorithm, memory=memory * (6 if algorithm == "gram" else 1))
    torch.testing.assert_close(ours, naive(A, B), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("algorithm", "message"), [("gram", "one tile of overlaps"), ("projector", "one entry of 6")])
def test_an_impossible_budget_is_refused(algorithm: str, message: str) -> None:
    with pytest.raises(MemoryBudgetError, match=message):
        pairwise_overlaps(factors(3, 9, 2), factors(3, 9, 2), algorithm=algorithm, memory=40)


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "auto"])
@pytest.mark.parametrize(("src", "dst"), [((4, 12), (4, 12)), ((6, 30), (6, 5)), ((1, 9), (3, 4)), ((3, 40), (1, 6))])
def test_only_composing_pairs_are_computed_in_whatever_order_the_heads_come(
    algorithm: str, src: tuple[int, int], dst: tuple[int, int]
) -> None:
    generator = torch.Generator().manual_seed(0)
    src_layer, dst_layer = (torch.arange(layers).repeat_interleave(heads) for layers, heads in (src, dst))
    src_layer = src_layer[torch.randperm(len(src_layer), generator=generator)]
    dst_layer = dst_layer[torch.randperm(len(dst_layer), generator=generator)]
    A, B = factors(len(src_layer), 10, 2), factors(len(dst_layer), 10, 2, seed=1)
    ours = pairwise_overlaps(A, B, src_layer=src_layer, dst_layer=dst_layer, algorithm=algorithm)
    wanted = torch.where(src_layer[:, None] < dst_layer, naive(A, B), torch.nan)
    torch.testing.assert_close(ours, wanted, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "auto"])
def test_composing_pairs_of_one_batch_with_itself_are_those_of_two_copies(algorithm: str) -> None:
    layer = torch.arange(9).repeat_interleave(10)
    A = factors(90, 10, 2)
    same, copy = (
        pairwise_overlaps(A, B, src_layer=layer, dst_layer=layer, algorithm=algorithm) for B in (A, A.clone())
    )
    torch.testing.assert_close(same, copy, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert int((~same.isnan()).sum()) == 36 * 100


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "auto"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_several_batches_at_once_have_the_overlaps_of_each_alone(algorithm: str, shuffled: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    layers = [torch.arange(6).repeat_interleave(heads) for heads in (9, 9, 3, 1)]
    if shuffled:
        layers = [layer[torch.randperm(len(layer), generator=generator)] for layer in layers]
    A, *Bs = (factors(len(layer), 12, p, seed=p) for layer, p in zip(layers, (4, 2, 3, 5), strict=True))
    everywhere = squared_overlaps(A, Bs, algorithm=algorithm)
    composing_only = squared_overlaps(A, Bs, src_layer=layers[0], dst_layers=layers[1:], algorithm=algorithm)
    for B, layer, full, part in zip(Bs, layers[1:], everywhere, composing_only, strict=True):
        torch.testing.assert_close(full, naive(A, B), rtol=1e-12, atol=1e-12)
        wanted = torch.where(layers[0][:, None] < layer, naive(A, B), torch.nan)
        torch.testing.assert_close(part, wanted, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_several_kernels_at_once_honour_each_batchs_ranks() -> None:
    S, T = (orthonormal_basis(factors(3, 10, p, seed=p)) for p in (4, 2))
    zero = orthonormal_basis(torch.zeros(2, 10, 3, dtype=torch.float64))
    for table, other in zip(projection_kernels(S, [T, zero, S], normalized=True), (T, zero, S), strict=True):
        torch.testing.assert_close(table, projection_kernel(S, other, normalized=True), equal_nan=True)


def test_the_staircase_of_gpt2_skips_nearly_all_pairs_that_cannot_compose() -> None:
    layer = torch.arange(12).repeat_interleave(12)
    stairs = composing_pairs(layer, layer)
    assert (stairs.rows, stairs.first_column, stairs.area) == (132, 12, 9504)
    assert full_table(144, 144).area == 144**2
    assert full_table(144, 144).is_rectangle
    assert not stairs.is_rectangle
    assert upper_triangle(144).area == 144 * 145 / 2
    assert sum((step.stop - step.start) * (144 - step.first) for step in stairs.steps(16)) < 1.15 * 9504


@pytest.mark.parametrize("rows", [1, 3, 8, 100])
def test_steps_cover_every_wanted_pair_once(rows: int) -> None:
    src, dst = torch.tensor([0, 0, 1, 3, 3, 3, 4, 7, 9]), torch.tensor([0, 1, 1, 2, 4, 5, 5, 8])
    for stairs, wanted in (
        (composing_pairs(src, dst), src[:, None] < dst),
        (upper_triangle(9), torch.ones(9, 9).triu() > 0),
        (full_table(9, 7), torch.ones(9, 7) > 0),
        (full_table(0, 7), torch.ones(0, 7) > 0),
    ):
        covered = torch.zeros(wanted.shape)
        for step in stairs.steps(rows):
            covered[step.start : step.stop, step.first :] += 1
        assert bool((covered[wanted] == 1).all())
        assert bool((covered <= 1).all())
        assert stairs.area == int(wanted.sum())


def test_the_cost_model_changes_sides_between_24_and_48_heads_of_gpt2() -> None:
    choice = {n: projector_is_cheaper(n * n, 768, 64 * n, 64 * n, 64, 64) for n in (12, 24, 48, 144)}
    assert choice == {12: False, 24: False, 48: True, 144: True}
    assert not projector_is_cheaper(1000**2, 4096, 64 * 1000, 64 * 1000, 32, 32)


def test_auto_takes_the_algorithm_the_model_names(monkeypatch: pytest.MonkeyPatch) -> None:
    A = factors(3, 8, 2)
    for cheaper, name in ((True, "_projector_overlap"), (False, "_gram_overlap")):
        with monkeypatch.context() as patch:
            patch.setattr("headspan.subspaces.overlap.projector_is_cheaper", lambda *_, c=cheaper: c)
            patch.delattr(f"headspan.subspaces.overlap.{name}")
            with pytest.raises(NameError, match=name):
                pairwise_overlaps(A, A)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_orthogonal_factors_never_overlap_negatively(algorithm: str) -> None:
    Q = torch.linalg.qr(factors(20, 40, 40)).Q.float()
    table = pairwise_overlaps(Q[:, :, :20], Q[:, :, 20:], algorithm=algorithm)
    assert float(table.min()) >= 0
    assert float(table.diagonal().max()) < 20 * 40 * 1.2e-7


def test_a_negative_overlap_larger_than_rounding_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(A: Tensor, tables: list[Any], memory: int) -> None:
        tables[0].out.fill_(-1e-3)

    monkeypatch.setattr("headspan.subspaces.overlap._projector_overlap", broken)
    with pytest.raises(DegenerateSubspace, match="squared overlap must stay in its range"):
        pairwise_overlaps(factors(2, 8, 2), factors(2, 8, 2), algorithm="projector")


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "auto"])
def test_no_heads_have_an_empty_table(algorithm: str) -> None:
    none, some = torch.zeros(0, 6, 2), torch.zeros(3, 6, 2)
    assert pairwise_overlaps(none, some, algorithm=algorithm).shape == (0, 3)
    assert pairwise_overlaps(some, none, algorithm=algorithm).shape == (3, 0)
    assert squared_overlap_table(none, algorithm=algorithm).shape == (0, 0)
    layer = torch.zeros(3, dtype=torch.int64)
    lonely = pairwise_overlaps(some, some, src_layer=layer, dst_layer=layer, algorithm=algorithm)
    assert bool(lonely.isnan().all())


def test_the_kernel_is_the_sum_of_squared_cosines() -> None:
    S, T = random_subspaces((4,), 16, 3, seed=0), random_subspaces((4,), 16, 5, seed=1)
    torch.testing.assert_close(projection_kernel(S, T).diagonal(), (principal_cosines(S, T) ** 2).sum(-1))


def test_the_normalised_kernel_of_a_subspace_with_itself_is_one() -> None:
    S = random_subspaces((6,), 16, 3, seed=0)
    for algorithm in ALGORITHMS:
        torch.testing.assert_close(
            projection_kernel_table(S, normalized=True, algorithm=algorithm).diagonal(),
            torch.ones(6, dtype=torch.float64),
        )
        assert float(projection_kernel_table(S, algorithm=algorithm).max()) <= 3


def test_true_ranks_normalise_and_rank_zero_has_no_kernel() -> None:
    A = factors(3, 10, 4)
    A[1, :, 2:] = A[1, :, :2]
    A[2] = 0
    S = orthonormal_basis(A)
    assert S.rank.tolist() == [4, 2, 0]
    table = projection_kernel_table(S, normalized=True)
    torch.testing.assert_close(table.diagonal()[:2], torch.ones(2, dtype=torch.float64))
    expected = naive(S.basis[:1], orthonormal_basis(A[1:2, :, :2]).basis)[0, 0] / math.sqrt(4 * 2)
    torch.testing.assert_close(table[0, 1], expected)
    assert bool(table[2].isnan().all())
    assert bool(table[:, 2].isnan().all())
    assert bool(projection_kernel(S, S[:1])[2].isnan().all())


def test_whole_spaces_see_all_of_everything() -> None:
    S, T = random_subspaces((2,), 8, 8, seed=0), random_subspaces((3,), 8, 3, seed=1)
    torch.testing.assert_close(projection_kernel(S, T), torch.full((2, 3), 3.0, dtype=torch.float64))


def test_subspaces_too_large_to_avoid_each_other_overlap_at_least_so_much() -> None:
    S, T = random_subspaces((20,), 10, 7, seed=0), random_subspaces((20,), 10, 6, seed=1)
    assert float(projection_kernel(S, T).min()) >= 3 - 1e-12


def test_one_table_of_stacked_roles_holds_every_pairing() -> None:
    roles = [random_subspaces((5,), 12, p, seed=p) for p in (3, 3, 2, 4)]
    table = projection_kernel_table(concatenate(roles))
    for i, src in enumerate(roles):
        for j, dst in enumerate(roles):
            torch.testing.assert_close(table[5 * i : 5 * i + 5, 5 * j : 5 * j + 5], projection_kernel(src, dst))
    layer = torch.arange(5)
    masked = projection_kernel_table(concatenate(roles), layer=layer.repeat(4))
    wanted = projection_kernel(roles[3], roles[0], src_layer=layer, dst_layer=layer)
    torch.testing.assert_close(masked[15:, :5], wanted, equal_nan=True)


@pytest.mark.parametrize(("p", "q", "d"), [(4, 4, 24), (2, 6, 16), (9, 10, 16)])
def test_the_kernel_by_chance_has_the_mean_and_variance_of_haar_subspaces(p: int, q: int, d: int) -> None:
    S, T = random_subspaces((300,), d, p, seed=0), random_subspaces((300,), d, q, seed=1)
    table = projection_kernel(S, T)
    assert float(table.mean()) == pytest.approx(float(kernel_null_mean(p, q, d)), rel=0.01)
    assert float(table.var()) == pytest.approx(float(kernel_null_variance(p, q, d)), rel=0.05)


def test_coordinate_planes_have_the_kernel_they_share() -> None:
    """Golden: axes {0, 1, 2} and {2, 3} share one axis; the diagonal line shares 1/2 of axis 0 with it."""
    axes = torch.eye(4, dtype=torch.float64)
    S = Subspace.from_orthonormal(axes[None, :, :3])
    assert float(projection_kernel(S, Subspace.from_orthonormal(axes[None, :, 2:]))) == 1.0
    line = orthonormal_basis((axes[:, :1] + axes[:, 3:])[None])
    assert float(projection_kernel(S, line)) == pytest.approx(0.5, abs=1e-15)


@pytest.mark.parametrize(("algorithm", "bound"), [("gram", 3e-6), ("projector", 3e-5)])
def test_float32_kernels_of_gpt2s_shape_are_right_to_their_stated_error(algorithm: str, bound: float) -> None:
    S, T = random_subspaces((6,), 768, 64, seed=0), random_subspaces((6,), 768, 64, seed=1)
    exact = projection_kernel(S, T)
    single = projection_kernel(S.to(dtype=torch.float32), T.to(dtype=torch.float32), algorithm=algorithm)
    assert single.dtype == torch.float32
    assert 0 < float((single.double() - exact).abs().max()) < bound


def test_arguments_that_do_not_fit_are_refused() -> None:
    A = factors(3, 8, 2)
    with pytest.raises(ShapeError, match=r"with one d, found \(3, 8, 2\) and \(3, 9, 2\)"):
        pairwise_overlaps(A, factors(3, 9, 2))
    with pytest.raises(ArgumentError, match="needed together"):
        pairwise_overlaps(A, A, src_layer=torch.arange(3))
    with pytest.raises(ShapeError, match=r"dst_layer needs one layer per dst member, 3, found shape \(2,\)"):
        pairwise_overlaps(A, A, src_layer=torch.arange(3), dst_layer=torch.arange(2))


def test_a_basis_that_is_not_orthonormal_is_found_out() -> None:
    S = random_subspaces((2,), 8, 2, seed=0)
    with pytest.raises(DegenerateSubspace, match="projection kernel must stay in its range"):
        projection_kernel(Subspace(S.basis * 1.1, S.rank), S)


def test_gpt2s_kernels_have_their_published_means(gpt2_attention: Path) -> None:
    """Golden: arXiv 2601.10266, Figures 1 and 8: mean kernel over 9,504 ordered pairs, QQ 8.467 and VO 5.664."""
    with safe_open(gpt2_attention / "model.safetensors", "pt") as file:
        names = sorted(file.keys())
        packed = torch.stack(
            [file.get_tensor(next(n for n in names if f"h.{i}.attn.c_attn.weight" in n)) for i in range(12)]
        )
        out = torch.stack(
            [file.get_tensor(next(n for n in names if f"h.{i}.attn.c_proj.weight" in n)) for i in range(12)]
        )
    Q, _, V = packed.view(12, 768, 3, 12, 64).permute(2, 0, 3, 1, 4)
    S_Q, S_V, S_O = (orthonormal_basis(W).reshape(-1) for W in (Q, V, out.view(12, 12, 64, 768).mT))
    layer = torch.arange(12).repeat_interleave(12)
    for S, T, mean in ((S_Q, S_Q, 8.467), (S_V, S_O, 5.664)):
        table = projection_kernel(S, T, src_layer=layer, dst_layer=layer)
        assert int((~table.isnan()).sum()) == 9504
        assert float(table.nanmean()) == pytest.approx(mean, abs=5e-4)
