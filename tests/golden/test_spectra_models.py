"""Spectra of real models: GPT-2's attention, a small Llama with grouped heads, and the MiniLM encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from headspan.findings import findings_of

import headspan
from headspan.lenses import spectra


@pytest.fixture(scope="module")
def gpt2(gpt2_attention: Path) -> xr.DataTree:
    return spectra.compute(headspan.open(gpt2_attention).heads())


@pytest.fixture(scope="module")
def encoder(minilm: Path) -> xr.DataTree:
    return spectra.compute(headspan.open(minilm).heads())


def test_gpt2_has_what_its_partial_checkpoint_holds(gpt2: xr.DataTree) -> None:
    kinds = ["W_Q", "W_K", "W_V", "W_O", "W_pos", *(f"W_{role}_head" for role in "QKVO"), "W_QK", "W_OV"]
    assert spectra.kinds_in(gpt2) == kinds
    assert len(spectra.table(gpt2)) == 48 + 1 + 4 * 144 + 2 * 144


def test_numpy_agrees_on_gpt2(gpt2: xr.DataTree, gpt2_attention: Path) -> None:
    heads = headspan.open(gpt2_attention).heads()
    W = heads.layer(3, ("K",)).W_K[0].double().transpose(0, 1).flatten(1).numpy()
    expected = np.linalg.svd(W, compute_uv=False)
    np.testing.assert_allclose(gpt2["W_K"].to_dataset()["singular_value"].sel(layer=3), expected, rtol=1e-6)
    block = heads.layer(5, ("Q", "K"))
    W = (block.W_Q[0, 1] @ block.W_K[0, 1].T).double().numpy()
    node = gpt2["alignment"].to_dataset().sel(layer=5, head=1)
    assert float(node["trace"]) == pytest.approx(np.trace(W), rel=1e-4)
    assert float(node["nuclear_norm"]) == pytest.approx(np.linalg.norm(W, "nuc"), rel=1e-4)


def test_no_whole_matrix_of_gpt2_passes_for_noise_and_the_last_outputs_come_nearest(gpt2: xr.DataTree) -> None:
    rows = spectra.table(gpt2)
    whole = rows[rows["kind"].isin(["W_Q", "W_K", "W_V", "W_O"])]
    assert (whole["ks_z"] > 20).all()
    assert set(whole.nsmallest(2, "ks")["matrix"]) == {"L10 W_O", "L11 W_O"}
    assert whole.loc[whole["spikes"].idxmax(), "matrix"] == "L0 W_O"
    assert whole["spikes"].max() == 234


def test_the_trace_of_gpt2s_heads_is_far_outside_its_null(gpt2: xr.DataTree) -> None:
    """Not the N(0, 1) or random alignment that was claimed for another model (7.2.2): 138 of 144 heads depart."""
    node = gpt2["alignment"].to_dataset()
    beyond = node["q_value"] < 0.01
    assert int((beyond & (node["trace_z"] > 0)).sum()) == 65
    assert int((beyond & (node["trace_z"] < 0)).sum()) == 73
    rows = spectra.alignment_table(gpt2).sort_values("trace_z")
    assert rows["label"].tolist()[-3:] == ["L0H1", "L0H10", "L0H5"]
    assert rows["label"].iloc[0] == "L0H9"
    assert float(rows["trace_z"].iloc[-1]) == pytest.approx(194.4, abs=0.1)


def test_induction_heads_of_gpt2_look_for_the_like(gpt2: xr.DataTree) -> None:
    node = gpt2["alignment"].to_dataset()
    for layer, head in ((5, 1), (5, 5), (6, 9), (7, 2), (7, 10)):
        assert float(node["trace_z"].sel(layer=layer, head=head)) > 30


def test_grouped_heads_of_a_real_model_have_spectra(stories: Path) -> None:
    found = spectra.compute(headspan.open(stories).heads())
    assert found["W_K_head"].to_dataset().sizes["kv_head"] == 4
    assert found["W_QK"].to_dataset().sizes["head"] == 8
    assert np.isfinite(found["alignment"].to_dataset()["trace_z"]).all()
    turned = spectra.compute(headspan.open(stories).heads(), matrices="W_QK", delta=1)["alignment"].to_dataset()
    assert (abs(turned["trace"] - found["alignment"].to_dataset()["trace"]) > 1e-6).any()
    assert "W_U" not in found.children  # tied to W_E


def test_the_encoder_runs_end_to_end(encoder: xr.DataTree) -> None:
    assert set(spectra.kinds_in(encoder)) >= {"W_E", "W_pos", "W_in", "W_out", "W_QK"}
    assert encoder["W_E"].to_dataset()["rows"] == 30522
    assert encoder.attrs["init"] == "config: initializer_range 0.02"
    rows = spectra.table(encoder)
    assert np.isfinite(rows[["ks", "effective_rank", "energy_ratio", "spikes"]].to_numpy(float)).all()
    assert findings_of("spectra", encoder)


def test_queries_of_the_encoder_look_for_the_like_in_all_layers_but_the_first(encoder: xr.DataTree) -> None:
    z = encoder["layer"].to_dataset()["trace_z"].values
    assert z[0] < -4
    assert (z[1:] > 15).all()
