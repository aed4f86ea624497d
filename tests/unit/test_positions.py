"""The two tables: what spectra, capture, overlaps, sparsity and sinusoids must be on tables made to have the answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headspan
from headspan.errors import ArgumentError, CheckpointError, DegenerateSubspace
from headspan.lenses.positions.spectra import RankRule, row_blocks, table_spectra
from headspan.lenses.positions.tables import random_table
from tests.unit.positions_models import CONTEXT, VOCAB, D, basis, gpt2, made_of, set_tables

FALLING = np.geomspace(10, 0.1, D)


@pytest.fixture(scope="module")
def random() -> headspan.Result:
    """Tables of independent normal entries: everything is as the null says."""
    return headspan.positions(gpt2())


@pytest.fixture(scope="module")
def avoiding() -> headspan.Result:
    """Position directions are the token directions in reverse: top of one on bottom of the other."""
    B = basis()
    change = set_tables(made_of(B[:, ::-1], FALLING, CONTEXT), made_of(B, FALLING, VOCAB))
    return headspan.positions(gpt2(change), full=True)


# Spectra


@settings(max_examples=10)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 99), st.floats(-3, 3))
def test_spectra_are_the_singular_values_with_and_without_the_mean_row(n: int, d: int, seed: int, shift: float) -> None:
    table = torch.as_tensor(np.random.default_rng(seed).standard_normal((n, d)) + shift)
    found = table_spectra(table, RankRule(1e-7), scratch=16 * d * 5)
    for spectrum, rows in ((found.stored, table), (found.centered, table - table.mean(0))):
        values = torch.linalg.svdvals(rows)
        kept = values[: spectrum.rank]
        torch.testing.assert_close(spectrum.values, kept, rtol=1e-6, atol=1e-9)
        assert bool((values[spectrum.rank :] < 1e-6 * max(1.0, float(values[0]))).all())
        V = spectrum.directions
        torch.testing.assert_close(V.mT @ V, torch.eye(spectrum.rank, dtype=torch.float64), rtol=0, atol=1e-10)
        torch.testing.assert_close((rows @ V).norm(dim=0), spectrum.values, rtol=1e-5, atol=1e-7)
    share = n * float(table.mean(0).square().sum()) / float(table.square().sum())
    assert found.mean_share == pytest.approx(share)


def test_a_large_vocabulary_is_read_in_blocks_that_fit_the_scratch_space() -> None:
    table = torch.zeros(250_000, 8, dtype=torch.float16)
    blocks = row_blocks(table, scratch=2**20)
    assert sum(map(len, blocks)) == 250_000
    assert max(block.numel() for block in blocks) * 8 <= 2**19


def test_effective_ranks_of_a_flat_spectrum_count_its_directions() -> None:
    values = np.ones(10)
    result = headspan.positions(gpt2(set_tables(P=made_of(basis()[:, :10], values, CONTEXT))), k=4)
    here = result.dataset().sel(table="P", centering="stored")
    for name in ("participation_ratio", "stable_rank", "rank"):
        assert float(here[name]) == pytest.approx(10)
    assert (float(here["rank_90"]), float(here["rank_99"])) == (9, 10)


def test_a_random_table_has_the_spectrum_that_the_null_says() -> None:
    rng = np.random.default_rng(3)
    n, d = 600, 200
    table = rng.standard_normal((n, d))
    values = np.linalg.svd(table, compute_uv=False)
    null = random_table(n, d, float((table**2).sum()))
    np.testing.assert_allclose(values[5:-5], null.singular_values[5:-5], rtol=0.02)
    energy = values**2 / (values**2).sum()
    assert 1 / (energy**2).sum() == pytest.approx(null.participation_ratio, rel=0.02)
    assert 1 / energy[0] == pytest.approx(null.stable_rank, rel=0.05)
    assert np.searchsorted(np.cumsum(energy), 0.9) + 1 == pytest.approx(null.rank_90, abs=2)


# Capture, overlap, corners


def test_capture_is_the_quadratic_form_of_its_definition(random: headspan.Result) -> None:
    heads = gpt2()
    k = random.attrs["k"]
    _, _, P = np.linalg.svd(heads.W_pos.numpy())
    _, _, E = np.linalg.svd(heads.W_E.numpy(), full_matrices=False)
    projector = P[:k].T @ P[:k]
    here = random["capture"].sel(centering="stored", k_choice="given")
    np.testing.assert_allclose(here, [v @ projector @ v for v in E], atol=1e-10)
    np.testing.assert_allclose(random["decile_mass"].sel(centering="stored", k_choice="given").sum(), k)


def test_orthogonal_tables_put_all_of_the_position_mass_on_the_last_token_directions(avoiding: headspan.Result) -> None:
    here = avoiding.dataset().sel(centering="stored", k_choice="given")
    k = int(here["capture_k"])
    assert k == 6
    np.testing.assert_allclose(here["capture"][-k:], 1, atol=1e-8)
    np.testing.assert_allclose(here["capture"][:-k], 0, atol=1e-8)
    assert float(here["decile_mass_log_p"][-1]) < -20
    corner = avoiding["table_corner"].sel(centering="stored")
    assert float(corner.sel(token_side="top", table_side="bottom")) == pytest.approx(5)
    assert float(corner.sel(token_side="bottom", table_side="top")) == pytest.approx(5)
    assert float(corner.sel(token_side="top", table_side="top")) == pytest.approx(0, abs=1e-8)
    np.testing.assert_allclose(avoiding["angles"].sel(centering="stored"), np.pi / 2, atol=1e-6)
    full = avoiding["table_overlap_full"].sel(centering="stored").values
    np.testing.assert_allclose(full, np.eye(D)[::-1], atol=1e-6)


def test_aligned_tables_put_it_on_the_first() -> None:
    B = basis()
    result = headspan.positions(gpt2(set_tables(made_of(B, FALLING, CONTEXT), made_of(B, FALLING, VOCAB))))
    here = result.dataset().sel(centering="stored", k_choice="given")
    np.testing.assert_allclose(here["capture"][:6], 1, atol=1e-8)
    assert float(here["decile_mass_z"][0]) > 5
    np.testing.assert_allclose(result["angles"].sel(centering="stored"), 0, atol=1e-6)
    assert float(result["table_corner_z"].sel(centering="stored", token_side="top", table_side="top")) > 5


def test_random_tables_give_the_null_within_four_standard_errors(random: headspan.Result) -> None:
    assert float(np.abs(random["decile_mass_z"]).max()) < 4
    assert float(np.abs(random["table_corner_z"]).max()) < 4
    assert float(np.abs(random["table_overlap_z"]).max()) < 4
    assert float(np.exp(random["capture_log_p"]).min()) > 1e-4
    assert float(np.abs(random["angles_z"]).max()) < 4
    for name in ("alignment", "energy_alignment", "corner"):
        assert float(np.abs(random[f"{name}_z"]).max()) < 4.5, name
    for role in "QKVO":
        assert float(np.abs(random[f"head_alignment_{role}_z"]).max()) < 4
    assert float(np.abs(random["sparsity_gini_z"]).max()) < 4
    assert float(random["sparsity_coordinates_90_p"].min()) > 1e-3
    assert float(random["wave_r2_p"].min()) > 0.002


def test_block_averages_are_averages_of_the_squared_overlaps(avoiding: headspan.Result) -> None:
    blocks = avoiding.dataset().sizes["table_block"]
    size = D // blocks
    full = avoiding["overlap_full"].values.reshape(2, -1, 2, blocks, size, blocks, size)
    np.testing.assert_allclose(full.mean((-3, -1)), avoiding["overlap"], rtol=1e-5)
    np.testing.assert_allclose(avoiding["overlap_full"].sum("table_direction"), 1, rtol=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_rotation_of_the_stream_changes_no_number_between_the_tables(seed: int) -> None:
    P, E, R = made_of(basis(1), FALLING, CONTEXT), made_of(basis(2), FALLING, VOCAB), torch.as_tensor(basis(seed + 3))
    P, E = P + 0.1 * torch.as_tensor(basis(4)[0]), E + 0.1 * torch.as_tensor(basis(5)[0])
    one = headspan.positions(gpt2(set_tables(P, E)), samples=2)
    turned = headspan.positions(gpt2(set_tables(P @ R, E @ R)), samples=2)
    for name in ("capture", "table_overlap", "angles", "singular_value", "cosine_mean", "mean_capture"):
        np.testing.assert_allclose(one[name], turned[name], atol=1e-7, err_msg=name)


def test_mass_at_low_indices_that_comes_from_a_common_mean_row_goes_with_it() -> None:
    B = basis()
    common = 3 * torch.as_tensor(B[:, 20])
    P = made_of(B[:, ::-1], FALLING, CONTEXT) + common
    E = made_of(B, FALLING, VOCAB) + common
    result = headspan.positions(gpt2(set_tables(P, E)))
    low = result["capture"].sel(k_choice="given").isel(direction=0)
    assert float(low.sel(centering="stored")) > 0.9
    assert float(low.sel(centering="centered")) < 0.01
    assert float(result["mean_cosine"]) == pytest.approx(1)
    assert float(result["mean_cosine_log_p"]) < -50


# Bad input


def test_a_constant_table_has_one_direction_and_none_without_its_mean() -> None:
    result = headspan.positions(gpt2(set_tables(P=torch.ones(CONTEXT, D) * 0.7)))
    rank = result["rank"].sel(table="P")
    assert (float(rank.sel(centering="stored")), float(rank.sel(centering="centered"))) == (1, 0)
    assert float(result["mean_share"].sel(table="P")) == pytest.approx(1)
    assert bool(result["capture"].sel(centering="centered").isnull().all())
    assert bool(result["capture"].sel(centering="stored").notnull().all())


def test_a_table_of_zeros_is_left_out_in_one_line() -> None:
    result = headspan.positions(gpt2(set_tables(P=torch.zeros(CONTEXT, D))))
    assert result["table"].values.tolist() == ["E"]
    assert f"position table: all {CONTEXT} rows are zero" in result.attrs["left_out"]


def test_two_tables_of_zeros_are_refused() -> None:
    heads = gpt2(set_tables(torch.zeros(CONTEXT, D), torch.zeros(VOCAB, D)))
    with pytest.raises(DegenerateSubspace, match="no table has a direction: position table: all 96 rows are zero"):
        headspan.positions(heads)


def test_a_position_table_of_one_row_works_and_has_no_curves() -> None:
    result = headspan.positions(gpt2(n_positions=1))
    assert float(result["rank"].sel(table="P", centering="stored")) == 1
    assert result.attrs["k"] == 1
    assert "wave_r2" not in result
    assert "a sinusoid needs at least 8 positions, found 1" in result.attrs["left_out"]
    assert np.isnan(result["cosine_mean"].sel(table="P")).all()


def test_a_k_beyond_the_rank_is_refused() -> None:
    heads = gpt2(set_tables(P=made_of(basis()[:, :5], np.ones(5), CONTEXT)))
    with pytest.raises(ArgumentError, match=r"k=6 is out of range; it is in 1\.\.5, the rank of the position table"):
        headspan.positions(heads, k=6)
    with pytest.raises(ArgumentError, match=r"k=0 is out of range; it is in 1\.\.5"):
        headspan.positions(heads, k=0)


def test_an_unknown_centering_is_refused() -> None:
    with pytest.raises(ArgumentError, match="centering='both' is unknown; it is one of stored, centered"):
        headspan.positions(gpt2(), centering="both")


def test_a_table_with_nan_is_refused_by_name() -> None:
    def change(model):
        model.wpe.weight[3, 3] = float("nan")

    with pytest.raises(CheckpointError, match=r"tensor 'wpe.weight' holds NaN or Inf"):
        headspan.positions(gpt2(change))


def test_half_precision_tables_are_computed_in_double_precision() -> None:
    half, single = headspan.positions(gpt2(dtype="float16")), headspan.positions(gpt2(dtype="float32"))
    assert (half.attrs["stored_dtype"], half.attrs["computed_in"]) == ("float16", "float64")
    np.testing.assert_allclose(half["singular_value"], single["singular_value"], rtol=2e-3)
