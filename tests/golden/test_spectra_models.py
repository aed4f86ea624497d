"""Spectra of real models: GPT-2's attention, a small Llama with grouped heads, and the MiniLM encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import headspan
from headspan.lenses.spectra.kinds import KINDS


@pytest.fixture(scope="module")
def gpt2(gpt2_attention: Path) -> headspan.Result:
    return headspan.spectra(gpt2_attention)


@pytest.fixture(scope="module")
def encoder(minilm: Path) -> headspan.Result:
    return headspan.spectra(minilm)


def test_gpt2_has_what_its_partial_checkpoint_holds(gpt2: headspan.Result) -> None:
    kinds = ["W_Q", "W_K", "W_V", "W_O", "W_pos", *(f"W_{role}_head" for role in "QKVO"), "W_QK", "W_OV"]
    assert [name for name in gpt2.data.children if name in KINDS] == kinds
    assert len(gpt2.table()) == 48 + 1 + 4 * 144 + 2 * 144


def test_numpy_agrees_on_gpt2(gpt2: headspan.Result, gpt2_attention: Path) -> None:
    heads = headspan.open(gpt2_attention).heads()
    W = heads.layer(3, ("K",)).W_K[0].double().transpose(0, 1).flatten(1).numpy()
    expected = np.linalg.svd(W, compute_uv=False)
    np.testing.assert_allclose(gpt2["W_K"].singular_value.sel(layer=3), expected, rtol=1e-6)
    block = heads.layer(5, ("Q", "K"))
    W = (block.W_Q[0, 1] @ block.W_K[0, 1].T).double().numpy()
    node = gpt2["alignment"].sel(head="L5H1")
    assert float(node["trace"]) == pytest.approx(np.trace(W), rel=1e-4)
    assert float(node["nuclear_norm"]) == pytest.approx(np.linalg.norm(W, "nuc"), rel=1e-4)


def test_no_whole_matrix_of_gpt2_passes_for_noise_and_the_last_outputs_come_nearest(gpt2: headspan.Result) -> None:
    rows = gpt2.table()
    whole = rows[rows["matrix"].isin(["W_Q", "W_K", "W_V", "W_O"])]
    assert (whole["ks_z"] > 20).all()
    nearest = whole.nsmallest(2, "ks")
    assert set(zip(nearest["matrix"], nearest["layer"], strict=True)) == {("W_O", 10), ("W_O", 11)}
    assert whole.loc[whole["spikes"].idxmax(), ["matrix", "layer"]].tolist() == ["W_O", 0]
    assert whole["spikes"].max() == 234


def test_the_trace_of_gpt2s_heads_is_far_outside_its_null(gpt2: headspan.Result) -> None:
    """Not the N(0, 1) or random alignment that was claimed for another model (7.2.2): 138 of 144 heads depart."""
    node = gpt2["alignment"].sel(null="factors")
    beyond = node["trace_q"] < 0.01
    assert int((beyond & (node["trace_z"] > 0)).sum()) == 65
    assert int((beyond & (node["trace_z"] < 0)).sum()) == 73
    rows = gpt2.table("heads").sort_values("trace_z")
    assert rows["head"].tolist()[-3:] == ["L0H1", "L0H10", "L0H5"]
    assert rows["head"].iloc[0] == "L0H9"
    assert float(rows["trace_z"].iloc[-1]) == pytest.approx(194.4, abs=0.1)


def test_induction_heads_of_gpt2_look_for_the_like(gpt2: headspan.Result) -> None:
    z = gpt2["alignment"].trace_z.sel(null="factors")
    assert (z.sel(head=["L5H1", "L5H5", "L6H9", "L7H2", "L7H10"]) > 30).all()


def test_grouped_heads_of_a_real_model_have_spectra(stories: Path) -> None:
    found = headspan.spectra(stories)
    assert found.grid("W_K_head").sizes["kv_head"] == 4
    assert found.grid("W_QK").sizes["head"] == 8
    assert np.isfinite(found["alignment"].trace_z).all()
    turned = headspan.spectra(stories, matrices="W_QK", delta=1)["alignment"]
    assert (abs(turned["trace"] - found["alignment"]["trace"]) > 1e-6).any()
    assert "W_U" not in found  # tied to W_E


def test_the_encoder_runs_end_to_end(encoder: headspan.Result) -> None:
    assert set(encoder.data.children) >= {"W_E", "W_pos", "W_in", "W_out", "W_QK"}
    assert encoder["W_E"]["rows"] == 30522
    assert encoder.attrs["init"] == "config: initializer_range 0.02"
    rows = encoder.table()
    assert np.isfinite(rows[["ks", "effective_rank", "energy_ratio", "spikes"]].to_numpy(float)).all()
    assert encoder.findings


def test_queries_of_the_encoder_look_for_the_like_in_all_layers_but_the_first(encoder: headspan.Result) -> None:
    z = encoder["layer"].trace_z.values
    assert z[0] < -4
    assert (z[1:] > 15).all()
