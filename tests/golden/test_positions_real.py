"""The positions lens on real tables: what holds of the published observations, number by number.

Source of the observations: Insights into GPT-2's positional encodings (2024), a web post with figures and few numbers.
Source of the numbers: NumPy's SVD where a test says so, else one run of the lens, recorded in docs/positions.md.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import headspan


@pytest.fixture(scope="module")
def gpt2(gpt2_attention: Path) -> headspan.Result:
    return headspan.positions(headspan.open(gpt2_attention).heads(layers=[0, 6]))


@pytest.fixture(scope="module")
def encoder(minilm: Path) -> headspan.Result:
    return headspan.positions(minilm)


def test_gpt2_s_position_table_has_numpy_s_singular_values_and_few_of_them_matter(
    gpt2: headspan.Result, gpt2_attention: Path
) -> None:
    values = np.linalg.svd(headspan.open(gpt2_attention).heads().W_pos.double().numpy(), compute_uv=False)
    here = gpt2.dataset().sel(table="P", centering="stored")
    np.testing.assert_allclose(here["singular_value"], values, rtol=1e-5)
    assert (values[:30] ** 2).sum() / (values**2).sum() == pytest.approx(0.99913, abs=1e-5)
    assert (float(here["rank_90"]), float(here["rank_99"])) == (4, 11)
    assert float(here["mean_share"]) == pytest.approx(0.03027, abs=1e-5)


def test_gpt2_s_position_directions_are_sparse_and_slow_waves(gpt2: headspan.Result) -> None:
    here = gpt2.dataset().sel(centering="stored")
    assert here["sparsity_coordinates_90"].values[:5].tolist() == [21, 23, 23, 31, 33]
    assert float(here["sparsity_coordinates_90_null"][0]) == pytest.approx(342, abs=1)
    np.testing.assert_allclose(here["wave_r2"][:5], [0.825, 0.816, 0.913, 0.746, 0.632], atol=0.001)
    assert here["wave_frequency"].values[:4].tolist() == [2.0, 1.75, 0.5, 0.5]
    assert float(here["offset_share"]) == pytest.approx(0.802, abs=0.001)


def test_gpt2_s_first_layer_reads_positions_through_its_keys(gpt2: headspan.Result) -> None:
    ratio = (gpt2["energy_alignment"] / gpt2["energy_alignment_null"]).sel(table="P")
    np.testing.assert_allclose(ratio.sel(layer=0), [7.28, 24.97, 1.96, 2.56], atol=0.01)
    assert float(ratio.sel(layer=6, matrix="K")) == pytest.approx(0.93, abs=0.01)
    corner = gpt2["corner"].sel(layer=0, table="P", side="top", table_side="top")
    assert float(corner.sel(matrix="O")) == pytest.approx(24.2, abs=0.1)
    assert float(corner.sel(matrix="Q")) == pytest.approx(6.4, abs=0.1)
    assert float(gpt2["corner_null"].sel(layer=0, table="P", side="top", table_side="top", matrix="Q")) == 77**2 / 768


def test_gpt2_s_token_half_is_left_out_in_one_line(gpt2: headspan.Result) -> None:
    assert gpt2.attrs["left_out"].split("; ")[0] == ("token analyses: 'wte.weight' is not in this checkpoint")
    assert "capture" not in gpt2


def test_stories_says_rotary_and_runs_the_token_part(stories: Path) -> None:
    result = headspan.positions(stories)
    assert result.attrs["left_out"] == "position analyses: no learned position table (rotary positions)"
    assert result["table"].values.tolist() == ["E"]
    values = np.linalg.svd(headspan.open(stories).heads().W_E.double().numpy(), compute_uv=False)
    np.testing.assert_allclose(result["singular_value"].sel(table="E", centering="stored"), values, rtol=1e-4)


def test_whole_matrices_keep_directions_that_storing_did_not_blur(
    gpt2: headspan.Result, encoder: headspan.Result
) -> None:
    """Down to 4e-6 of the largest singular value here, far above the noise of float32 (7e-8 of it)."""
    assert (gpt2["matrix_rank"] == 768).all()
    assert (encoder["matrix_rank"] == 384).all()


def test_minilm_s_main_position_directions_lie_on_the_last_token_directions(encoder: headspan.Result) -> None:
    assert encoder.attrs["left_out"] == (
        "gains of the norms: its norms stand after the attention, so no gain stands between a table and a layer"
    )
    here = encoder.dataset().sel(centering="stored", k_choice="given")
    assert int(here["capture_k"]) == 30
    assert float(here["decile_mass"][-1]) == pytest.approx(16.71, abs=0.01)
    assert float(here["decile_mass_null"][-1]) == pytest.approx(2.97, abs=0.01)
    assert float(here["decile_mass"][0]) == pytest.approx(1.93, abs=0.01)


def test_minilm_s_mass_at_the_first_token_direction_is_the_mean_row(encoder: headspan.Result) -> None:
    first = encoder["capture"].sel(k_choice="given").isel(direction=0)
    assert float(first.sel(centering="stored")) == pytest.approx(0.483, abs=0.002)
    assert float(first.sel(centering="centered")) < 0.15
    assert float(encoder["mean_cosine"]) == pytest.approx(0.523, abs=0.001)


def test_minilm_s_position_directions_are_hardly_sparse_and_share_their_coordinates_with_tokens(
    encoder: headspan.Result,
) -> None:
    here = encoder.dataset().sel(centering="stored")
    assert here["sparsity_coordinates_90"].values[:5].tolist() == [132, 124, 124, 152, 149]
    assert float(here["sparsity_coordinates_90_null"][0]) == pytest.approx(171.6, abs=1)
    assert float(here["coordinate_energy_p"]) > 0.1


def test_minilm_has_heads_in_its_first_layer_that_attend_by_position_alone(encoder: headspan.Result) -> None:
    share = encoder["logit_share"].sel(term="position-position")
    assert share["head"].values[share > 0.5].tolist() == ["L0H2", "L0H3", "L0H4", "L0H5"]
    assert float(share.sel(head="L0H2")) == pytest.approx(0.94, abs=0.02)
    assert float(encoder["logit_share_null"].sel(term="position-position")) == pytest.approx(0.024, abs=0.005)
