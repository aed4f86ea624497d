"""Base alignment: the trace and the symmetric part of W_QK, their nulls, and where they are undefined."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import headspan
from headspan.errors import ArgumentError
from tests.unit.test_spectra import SD, WIDTH, D, gpt2, tiny


@pytest.fixture(scope="module")
def heads() -> headspan.Heads:
    return gpt2()


@pytest.fixture(scope="module")
def result(heads: headspan.Heads) -> headspan.Result:
    return headspan.spectra(heads, init=SD)


@pytest.fixture(scope="module")
def random_model() -> headspan.Result:
    return headspan.spectra(gpt2(n_embd=64, n_head=4, n_layer=10), init=SD, matrices="W_QK")


def test_the_trace_and_the_symmetric_part_of_random_heads_are_as_expected(random_model: headspan.Result) -> None:
    node = random_model["alignment"]
    for null in ("factors", "product"):
        z = node["trace_z"].sel(null=null).values
        assert abs(z.mean()) < 4 / math.sqrt(z.size)
        assert 0.7 < z.std() < 1.3
    z = (node["symmetric_share"].values - float(node["symmetric_share_null"])) / float(node["symmetric_share_null_sd"])
    assert abs(z.mean()) < 4 / math.sqrt(z.size)
    assert 0.7 < z.std() < 1.4
    mass = (node["positive_mass"].values - 0.5) / node["positive_mass_null_sd"].values
    assert abs(mass.mean()) < 4 / math.sqrt(mass.size)
    assert (node["trace_q"] > 0.01).all()


def test_the_trace_is_that_of_the_formed_matrix_with_its_exact_null(
    heads: headspan.Heads, result: headspan.Result
) -> None:
    node = result.grid("alignment")
    W = (heads.W_Q @ heads.W_K.mT).double()
    np.testing.assert_allclose(node["trace"], W.diagonal(dim1=-2, dim2=-1).sum(-1), atol=1e-9)
    A, B = heads.W_Q.double(), heads.W_K.double()
    sd = A.square().sum((-2, -1)).sqrt() * B.square().sum((-2, -1)).sqrt() / math.sqrt(D * WIDTH)
    np.testing.assert_allclose(node["trace_null_sd"].sel(null="factors"), sd, rtol=1e-9)
    norm = W.square().sum((-2, -1)).sqrt()
    np.testing.assert_allclose(node["trace_null_sd"].sel(null="product"), norm / math.sqrt(D), rtol=1e-9)
    np.testing.assert_allclose(node["nuclear_norm"], torch.linalg.svdvals(W).sum(-1), rtol=1e-7)
    assert (abs(node["trace"]) <= node["nuclear_norm"]).all()
    part = (W + W.mT) / 2
    np.testing.assert_allclose(node["symmetric_share"], part.square().sum((-2, -1)) / norm**2, rtol=1e-7)
    values = torch.linalg.eigvalsh(part)
    np.testing.assert_allclose(node["positive_mass"], values.clamp(min=0).sum(-1) / values.abs().sum(-1), rtol=1e-6)
    layer, factors = result["layer"], node["trace_null_sd"].sel(null="factors")
    np.testing.assert_allclose(layer["trace"], node["trace"].sum("head"), rtol=1e-9)
    np.testing.assert_allclose(layer["trace_null_sd"], np.sqrt((factors**2).sum("head")), rtol=1e-9)


def test_both_nulls_of_the_trace_have_the_spread_they_claim() -> None:
    """Fixed singular values, random singular vectors; sum(s_a^2 s_b^2) / n would be off by a factor 16."""
    n, draws, generator = 16, 4000, torch.Generator().manual_seed(8)
    s = torch.ones(n, dtype=torch.float64) * 0.1
    s[0] = 4.0

    def haar() -> torch.Tensor:
        return torch.linalg.qr(torch.randn(draws, n, n, generator=generator, dtype=torch.float64)).Q

    A, B = (haar() * s @ haar().mT for _ in range(2))
    traces = (A * B).sum((-2, -1))
    claimed = float(s.square().sum()) / n
    assert float(traces.std()) == pytest.approx(claimed, rel=4 / math.sqrt(draws))
    assert float(traces.mean()) == pytest.approx(0, abs=4 * claimed / math.sqrt(draws))
    product = (haar() * s @ haar().mT).diagonal(dim1=-2, dim2=-1).sum(-1)
    assert float(product.std()) == pytest.approx(math.sqrt(float(s.square().sum()) / n), rel=5 / math.sqrt(draws))


def test_scaling_queries_against_keys_moves_one_null_and_not_the_other(result: headspan.Result) -> None:
    def change(layers: torch.nn.ModuleList) -> None:
        stretch = torch.logspace(-1, 1, D, dtype=torch.float64)
        for layer in layers:
            layer.attn.c_attn.weight[:, :D] *= stretch
            layer.attn.c_attn.weight[:, D : 2 * D] /= stretch

    changed, before = headspan.spectra(gpt2(change))["alignment"], result["alignment"]
    for field in ("trace", "nuclear_norm", "symmetric_share", "positive_mass"):
        np.testing.assert_allclose(changed[field], before[field], rtol=1e-6, atol=1e-9)
    now, then = changed["trace_null_sd"], before["trace_null_sd"]
    np.testing.assert_allclose(now.sel(null="product"), then.sel(null="product"), rtol=1e-6, atol=1e-9)
    assert (now.sel(null="factors") > 1.05 * then.sel(null="factors")).any()


def test_like_and_unlike_are_told_apart() -> None:
    def change(layers: torch.nn.ModuleList) -> None:
        weight = layers[0].attn.c_attn.weight
        weight[:, D : D + WIDTH] = weight[:, :WIDTH]
        weight[:, D + WIDTH : D + 2 * WIDTH] = -weight[:, WIDTH : 2 * WIDTH]

    node = headspan.spectra(gpt2(change)).grid("alignment").isel(layer=0).sel(null="factors")
    assert node["positive_mass"].values[:2] == pytest.approx([1, 0], abs=1e-6)
    assert node["trace_share"].values[:2] == pytest.approx([1, -1])
    assert node["symmetric_share"].values[:2] == pytest.approx([1, 1])
    assert node["trace_z"].values[0] > 5
    assert node["trace_z"].values[1] < -5


def test_each_query_head_is_paired_with_the_kv_head_it_reads() -> None:
    heads = tiny("llama")
    found = headspan.spectra(heads)
    assert found.grid("W_K_head").sizes["kv_head"] == 2
    A, B = heads.W_Q.double(), heads.per_query_head(heads.W_K).double()
    np.testing.assert_allclose(found.grid("alignment")["trace"].values, (A * B).sum((-2, -1)), atol=1e-9)
    rows = found.table()
    assert "L1K1" in set(rows.loc[rows["matrix"] == "W_K_head", "kv_head"])
    assert "L1H3" in set(rows.loc[rows["matrix"] == "W_QK", "head"])
    with pytest.raises(ArgumentError, match="L1H3 reads L1K1"):
        found["W_K_head"].energy.sel(kv_head="L1H3")


def test_the_offset_turns_the_keys_of_rotary_models_and_nothing_else() -> None:
    heads = tiny("llama")
    here, there = headspan.spectra(heads), headspan.spectra(heads, delta=3)
    assert (abs(here["alignment"]["trace"].values - there["alignment"]["trace"].values) > 1e-3).any()
    sd = [found["alignment"]["trace_null_sd"].sel(null="factors") for found in (here, there)]
    np.testing.assert_allclose(*sd)
    np.testing.assert_allclose(here["W_Q"]["singular_value"].values, there["W_Q"]["singular_value"].values)
    assert there.attrs["delta"] == 3


def test_in_cross_attention_the_alignment_is_undefined_and_the_spectra_are_not() -> None:
    found = headspan.spectra(tiny("t5", stack="cross"))
    node = found["alignment"]
    for field in ("trace", "trace_z", "symmetric_share", "positive_mass", "trace_p"):
        assert node[field].isnull().all(), field
    assert found["layer"]["trace"].isnull().all()
    assert len(found.table("heads")) == node.sizes["head"]
    assert np.isfinite(node["nuclear_norm"]).all()
    assert np.isfinite(found["W_QK"]["effective_rank"]).all()
    assert found.attrs["alignment"].startswith("undefined: in cross-attention")
