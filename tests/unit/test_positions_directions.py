"""Directions and rows of the tables: sparse or not, sinusoids or not, a sphere or not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headspan
from headspan.errors import ArgumentError
from headspan.lenses.positions.directions import offset_share, sinusoid_fits
from headspan.lenses.positions.gains import gain_auc
from headspan.lenses.positions.tables import row_statistics
from headspan.statistics.sparsity import sparsity_against_null, sparsity_measures
from tests.unit.positions_models import CONTEXT, VOCAB, D, basis, gpt2, set_tables, tiny

# Sparsity and sinusoids


def test_sparsity_of_a_vector_on_four_equal_coordinates_is_four() -> None:
    found = sparsity_measures(np.array([[0.25] * 4 + [0.0] * 12]))
    assert found["participation"][0] == pytest.approx(4)
    assert found["coordinates_90"][0] == 4
    assert found["gini"][0] == pytest.approx(1 - 4 / 16)
    even = sparsity_measures(np.full((1, 16), 1 / 16))
    assert (even["participation"][0], even["gini"][0]) == (pytest.approx(16), pytest.approx(0, abs=1e-12))


def test_sparsity_under_the_null_is_that_of_random_directions() -> None:
    d = 768
    found = sparsity_against_null(basis(5, d)[:, :200], seed=1)
    assert found["participation_null"][0] == pytest.approx((d + 2) / 3, rel=0.02)
    assert found["gini_null"][0] == pytest.approx(2 / np.pi, abs=0.005)
    for name in ("participation", "coordinates_90", "gini"):
        standard_error = found[name].std() / np.sqrt(200)
        assert abs(found[name].mean() - found[f"{name}_null"][0]) < 4 * standard_error
        assert 0.4 < found[f"{name}_p"].mean() < 0.6


def test_planted_sparse_position_directions_are_found_with_their_coordinates() -> None:
    chosen = [3, 7, 11, 20, 31, 40]
    P = torch.zeros(CONTEXT, D, dtype=torch.float64)
    P[:, chosen] = torch.randn(CONTEXT, len(chosen), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    E = torch.randn(VOCAB, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    E[:, chosen] *= 0.1
    result = headspan.positions(gpt2(set_tables(P, E)), k=6)
    here = result.dataset().sel(centering="stored")
    assert np.flatnonzero(here["coordinate_chosen"]).tolist() == chosen
    assert float(here["sparsity_coordinates_90"].max()) <= 6
    assert float(here["sparsity_participation_p"].max()) < 0.001
    assert float(here["coordinate_energy"]) < 0.01
    assert float(here["coordinate_energy_null"]) == 6 / D
    assert float(here["coordinate_energy_p"]) < 0.01


@pytest.mark.parametrize("frequency", [0.5, 1.0, 3.25, 17.0, 48.0])
def test_a_sinusoid_is_found_at_its_frequency_and_explained_whole(frequency: float) -> None:
    t = (np.arange(96) + 0.5) / 96
    found = sinusoid_fits(0.3 + np.cos(2 * np.pi * frequency * t + 0.7)[:, None])
    assert found["frequency"][0] == pytest.approx(frequency)
    assert found["r2"][0] == pytest.approx(1)
    if frequency in (3.25, 17.0):
        assert found["dominant_frequency"][0] == round(frequency)
        assert found["concentration"][0] > 0.9


def test_r2_of_noise_is_the_best_least_squares_fit() -> None:
    curve = np.random.default_rng(0).standard_normal((20, 1))
    t, best = (np.arange(20) + 0.5) / 20, 0.0
    for frequency in np.arange(2, 41) / 4:
        X = np.stack([np.ones(20), np.cos(2 * np.pi * frequency * t), np.sin(2 * np.pi * frequency * t)], axis=1)
        fitted = X @ np.linalg.lstsq(X, curve[:, 0], rcond=None)[0]
        best = max(best, 1 - ((curve[:, 0] - fitted) ** 2).sum() / ((curve - curve.mean()) ** 2).sum())
    assert sinusoid_fits(curve)["r2"][0] == pytest.approx(best)


def test_the_gram_matrix_of_a_sinusoidal_table_has_its_closed_form_and_depends_on_offsets_alone() -> None:
    w, t = 10_000.0 ** -(np.arange(16) / 16), np.arange(60)[:, None]
    table = np.concatenate([np.sin(w * t), np.cos(w * t)], axis=1)
    gram = np.cos((t - t.T)[..., None] * w).sum(-1)
    np.testing.assert_allclose(table @ table.T, gram, atol=1e-10)
    assert offset_share(table) == pytest.approx(1)


def test_offsets_explain_two_over_n_of_random_rows() -> None:
    rng = np.random.default_rng(0)
    shares = [offset_share(rng.standard_normal((100, 50))) for _ in range(20)]
    assert abs(np.mean(shares) - 2 / 100) < 4 * np.std(shares) / np.sqrt(20)


def test_a_fixed_sinusoidal_table_counts_as_a_learned_one() -> None:
    result = headspan.positions(tiny("whisper", "encoder"))
    assert result.attrs["positions"] == "sinusoidal"
    assert result["table"].values.tolist() == ["P"]


# Rows


def test_cosines_over_all_pairs_are_what_a_loop_gives() -> None:
    rows = torch.randn(30, 6, dtype=torch.float64)
    found = row_statistics(rows, None, 2**20, 0)
    unit = rows / rows.norm(dim=1, keepdim=True)
    pairs = (unit @ unit.T)[~torch.eye(30, dtype=bool)]
    assert found["cosine_mean"] == pytest.approx(float(pairs.mean()))
    assert found["cosine_sd"] == pytest.approx(float(pairs.std(correction=0)))
    assert found["row_norm_variation"] == pytest.approx(
        float(rows.norm(dim=1).std(correction=0) / rows.norm(dim=1).mean())
    )


def test_normal_rows_are_a_sphere_within_four_standard_errors() -> None:
    found = row_statistics(torch.randn(2000, 64, dtype=torch.float64), None, 2**20, 0)
    assert abs(found["cosine_mean_z"]) < 4
    assert found["cosine_sd"] == pytest.approx(found["cosine_sd_null"], rel=0.01)
    assert found["row_norm_variation"] == pytest.approx(found["row_norm_variation_null"], rel=0.1)
    assert np.abs(found["cosine_density"] - found["cosine_density_null"]).max() < 0.15
    assert found["cosine_density_null"].sum() * 2 / 80 == pytest.approx(1)


# Gains


def test_a_norm_that_turns_down_the_carrying_coordinates_is_found_in_its_layer_only() -> None:
    chosen = [3, 7, 11, 20, 31, 40]
    P = torch.zeros(CONTEXT, D, dtype=torch.float64)
    P[:, chosen] = torch.randn(CONTEXT, len(chosen), dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def change(model) -> None:
        set_tables(P)(model)
        generator = torch.Generator().manual_seed(2)
        for block in model.h:
            block.ln_1.weight.copy_(torch.rand(D, generator=generator) + 0.5)
        model.h[0].ln_1.weight[chosen] = -0.1

    result = headspan.positions(gpt2(change), k=6, layer=1, smooth=2.0)
    auc, q = result["gain_auc"].values, result["gain_auc_q"].values
    assert auc[0] == 0
    assert q[0] < 0.01 < q[1]
    assert result["gain_carrying"].values[0] == pytest.approx(0.1)
    assert any("turns down the 6 coordinates" in one.statement for one in result.findings)
    figures = result.figures
    assert len(figures["Gains and positions"].data) == 4
    assert len(figures["Position directions by coordinate"].data) == 5
    assert "Layer 1" in figures["Attention and the tables"].layout.title.text


def test_gains_that_do_not_differ_and_random_sets_say_nothing() -> None:
    assert gain_auc(np.ones(10), np.arange(10) < 3) == (0.5, 1.0)
    rng = np.random.default_rng(0)
    p = [gain_auc(rng.random(60), rng.permutation(60) < 12)[1] for _ in range(400)]
    assert np.mean(np.array(p) < 0.05) < 0.08
    assert not any("carry positions:" in one.statement for one in headspan.positions(gpt2(), k=6).findings)


def test_a_blur_changes_colors_and_not_the_numbers_under_the_mouse() -> None:
    found = [headspan.positions(gpt2(), k=6, smooth=smooth) for smooth in (0.0, 9.0)]
    plain, blurred = (each.figures["Overlap of the tables"] for each in found)
    assert np.array_equal(plain.data[0].customdata, blurred.data[0].customdata)
    assert np.ptp(blurred.data[0].z) < np.ptp(plain.data[0].z)
    with pytest.raises(ArgumentError, match=r"smooth=-1\.0 is out of range"):
        headspan.positions(gpt2(), smooth=-1.0)
    with pytest.raises(ArgumentError, match=r"layer=5 is out of range; it is in 0\.\.1"):
        headspan.positions(gpt2(), layer=5)
