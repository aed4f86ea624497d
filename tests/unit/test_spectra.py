"""Spectra of weights: what the numbers, their expected values, nulls and flags must be."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import xarray as xr

import headspan
from docs.calibration.spikes import largest_p_values
from headspan.errors import ArgumentError, CheckpointError
from headspan.lenses.spectra.kinds import KINDS
from headspan.lenses.spectra.law import bulk_scale, law_of, spike_log_p
from headspan.statistics import mp_edges
from tests.families.tiny_models import CASES, COMMON, Case, by_family

D, HEADS, WIDTH, SD = 24, 3, 8, 0.3
FIELDS = (
    "stable_rank",
    "effective_rank",
    "entropy",
    "log_condition",
    "ks",
    "ks_init",
    "above",
    "above_init",
    "energy_ratio",
)


def tiny(name: str, **options) -> headspan.Heads:
    return headspan.open(next(case for case in CASES if case.name == name).model()).heads(**options)


def gpt2(change=None, **settings) -> headspan.Heads:
    """A random GPT-2 with entries of standard deviation 0.3; `change` is given its layers before it is opened."""
    shape = {"n_embd": D, "n_head": HEADS, "n_layer": 2, "n_positions": 32, **settings}
    model = Case("gpt2", "gpt2", {**COMMON, **shape}).model()
    if change is not None:
        with torch.no_grad():
            change(model.h)
    return headspan.open(model).heads()


@pytest.fixture(scope="module")
def heads() -> headspan.Heads:
    return gpt2()


@pytest.fixture(scope="module")
def result(heads: headspan.Heads) -> headspan.Result:
    return headspan.spectra(heads, init=SD)


@pytest.fixture(scope="module")
def random_model() -> headspan.Result:
    return headspan.spectra(gpt2(n_embd=64, n_head=4, n_layer=10), init=SD)


def kinds_in(result: headspan.Result) -> list[str]:
    return [name for name in result.data.children if name in KINDS]


def whole(heads: headspan.Heads, role: str, layer: int) -> np.ndarray:
    W = heads.whole(role)[layer].double().numpy()
    return np.concatenate(list(W), axis=0 if role == "O" else 1)


def test_every_matrix_has_the_singular_values_of_numpy(heads: headspan.Heads, result: headspan.Result) -> None:
    for role in "QKVO":
        for layer in range(2):
            found = result[f"W_{role}"]["singular_value"].values[layer]
            np.testing.assert_allclose(found, np.linalg.svd(whole(heads, role, layer), compute_uv=False), rtol=1e-8)
            each = result.grid(f"W_{role}_head")["singular_value"].values[layer]
            expected = np.linalg.svd(heads.whole(role)[layer].double().numpy(), compute_uv=False)
            np.testing.assert_allclose(each, expected, rtol=1e-8)
    mlp = heads.mlp(1)
    for name, matrix in (("W_in", mlp.W_in[0]), ("W_out", mlp.W_out)):
        expected = np.linalg.svd(matrix.double().numpy(), compute_uv=False)
        np.testing.assert_allclose(result[name]["singular_value"].values[1], expected, rtol=1e-8)
    for name in ("W_E", "W_pos"):
        expected = np.linalg.svd(getattr(heads, name).double().numpy(), compute_uv=False)
        np.testing.assert_allclose(result[name]["singular_value"].values, expected, rtol=1e-8)


def test_products_are_those_of_formed_matrices(heads: headspan.Heads, result: headspan.Result) -> None:
    for name, product in (("W_QK", heads.W_Q @ heads.W_K.mT), ("W_OV", heads.W_V @ heads.W_O)):
        expected = np.linalg.svd(product.double().numpy(), compute_uv=False)[..., :WIDTH]
        node = result.grid(name)
        np.testing.assert_allclose(node["singular_value"].values, expected, rtol=1e-6)
        A, B = (heads.W_Q, heads.W_K) if name == "W_QK" else (heads.W_V, heads.W_O)
        norms = A.double().square().sum((-2, -1)) * B.double().square().sum((-2, -1))
        ratio = product.double().square().sum((-2, -1)) * WIDTH / norms
        np.testing.assert_allclose(node["energy_given_factors"].values, ratio, rtol=1e-6)


def test_what_summarizes_a_spectrum_is_its_definition(result: headspan.Result) -> None:
    node = result["W_Q"].isel(layer=0)
    s = node["singular_value"].values
    p, q = s**2 / (s**2).sum(), s / s.sum()
    assert float(node["energy"]) == pytest.approx((s**2).sum())
    assert float(node["largest"]) == s[0]
    assert float(node["largest_share"]) == pytest.approx(p[0])
    assert float(node["stable_rank"]) == pytest.approx((s**2).sum() / s[0] ** 2)
    assert float(node["entropy"]) == pytest.approx(-(p * np.log(p)).sum())
    assert float(node["effective_rank"]) == pytest.approx(np.exp(-(q * np.log(q)).sum()))
    assert float(node["log_condition"]) == pytest.approx(np.log(s[0] / s[-1]))
    assert float(node["energy_ratio"]) == pytest.approx((s**2).sum() / (D * D * SD**2))
    assert float(node["edge"]) == pytest.approx(mp_edges(D, D)[1] * float(node["sigma"]))
    assert float(node["edge_init"]) == pytest.approx(mp_edges(D, D, SD)[1])


def test_random_matrices_give_the_expected_values_within_four_standard_errors(random_model: headspan.Result) -> None:
    rows = random_model.table("matrices")
    for kind, group in rows.groupby("matrix"):
        # The expected value is itself a mean over draws; its error is part of the standard error.
        draws = random_model[str(kind)].attrs["draws"]
        for field in FIELDS:
            z = group[f"{field}_z"].to_numpy(float)
            assert abs(z.mean()) < 4 * math.sqrt(1 / len(z) + 1 / draws), (kind, field, z.mean())
    for kind in ("W_Q_head", "W_QK", "W_OV", "W_in"):
        p = rows.loc[rows["matrix"] == kind, "largest_p"].to_numpy(float)
        assert abs(p.mean() - 0.5) < 4 / math.sqrt(12 * len(p)), kind
    assert rows["spikes"].sum() <= 8
    assert (rows["largest_p"] > 1e-5).all()


def test_spikes_above_the_edge_are_found_and_those_below_are_not() -> None:
    """A rank-one term of strength t sqrt(n) sigma makes a spike if t > 1, and is swallowed by the bulk if t < 1."""

    def planted(strength: float) -> xr.Dataset:
        def change(layers: torch.nn.ModuleList) -> None:
            generator = torch.Generator().manual_seed(4)
            for layer in layers:
                u, v = (torch.randn(96, 2, generator=generator).double() for _ in range(2))
                u, v = torch.linalg.qr(u).Q, torch.linalg.qr(v).Q
                layer.attn.c_attn.weight[:, :96] += strength * SD * math.sqrt(96) * (u @ v.mT)

        heads = gpt2(change, n_embd=96, n_head=4, n_layer=4)
        return headspan.spectra(heads, matrices="W_Q").dataset("W_Q")

    strong, weak = planted(3.0), planted(0.6)
    assert strong["spikes"].values.tolist() == [2.0] * 4
    assert (strong["leading_p"].values[:, :2] < 1e-4).all()
    assert (strong["leading_p"].values[:, 2] > 0.01).all()
    assert weak["spikes"].values.tolist() == [0.0] * 4
    # The spike stands where theory puts it: sigma sqrt(n) (t + 1/t).
    np.testing.assert_allclose(strong["largest"], SD * math.sqrt(96) * (3 + 1 / 3), rtol=0.1)


def test_the_fitted_scale_does_not_see_spikes() -> None:
    law = law_of(60, 90, None, 0)
    values = 0.7 * law.typical.copy()
    values[:5] *= 20
    assert float(bulk_scale(values, law.typical)) == pytest.approx(0.7)


@by_family
def test_every_family_has_spectra_of_what_it_stores(case: Case) -> None:
    checkpoint = headspan.open(case.model())
    for stack in checkpoint.stacks:
        heads = checkpoint.heads(stack=stack)
        found = headspan.spectra(heads)
        assert {"W_Q", "W_K", "W_V", "W_O", "W_QK", "W_OV"} <= set(kinds_in(found))
        assert ("W_in" in found) == ("MLP" in heads.reader.stored.parts)
        for name in kinds_in(found):
            assert (found[name]["energy"].values > 0).all(), name
        assert len(found.table()) == sum(found[name]["energy"].size for name in kinds_in(found))


def test_zero_and_constant_matrices_have_clear_answers() -> None:
    def change(layers: torch.nn.ModuleList) -> None:
        layers[0].attn.c_attn.weight[:, :D] = 0
        layers[0].attn.c_proj.weight.fill_(0.5)

    found = headspan.spectra(gpt2(change))
    zero, constant = found["W_Q"].isel(layer=0), found["W_O"].isel(layer=0)
    assert int(zero["numerical_rank"]) == 0
    for field in ("stable_rank", "effective_rank", "entropy", "log_condition", "ks", "spikes", "ks_init", "above_init"):
        assert bool(zero[field].isnull()), field
    assert float(zero["energy_ratio"]) == 0
    assert found.grid("alignment")["trace"].isel(layer=0).isnull().all()
    assert np.isfinite(found["layer"]["trace"].values).tolist() == [False, True]
    assert found["layer"]["heads_defined"].values.tolist() == [0, HEADS]
    assert int(constant["numerical_rank"]) == 1
    assert float(constant["stable_rank"]) == pytest.approx(1)
    assert float(constant["effective_rank"]) == pytest.approx(1)
    assert float(constant["log_condition"]) == math.inf
    assert float(constant["spikes"]) == 1
    assert float(constant["largest_p"]) == float(constant["leading_p"][0]) == 0
    assert bool(constant["ks"].isnull())
    other = found["W_Q"].isel(layer=1)
    assert np.isfinite(other["ks"])


def test_one_row_has_a_norm_and_nothing_to_fit() -> None:
    found = headspan.spectra(gpt2(n_positions=1), matrices="W_pos").dataset("W_pos")
    assert found.sizes["rank"] == 1
    assert float(found["stable_rank"]) == pytest.approx(1)
    assert float(found["log_condition"]) == pytest.approx(0)
    for field in ("sigma", "edge", "ks", "spikes", "largest_p", "leading_p"):
        assert found[field].isnull().all(), field
    assert np.isfinite(found["energy_ratio"])


def test_half_precision_is_read_and_nan_is_refused() -> None:
    model = Case("gpt2", "gpt2", {**COMMON, "n_embd": D, "n_head": HEADS, "n_layer": 1, "n_positions": 8})
    found = headspan.spectra(headspan.open(model.model(dtype=torch.bfloat16)).heads())
    assert found.attrs["stored_dtype"] == "bfloat16"
    assert np.isfinite(found["W_Q"]["ks"].values).all()
    broken = model.model()
    with torch.no_grad():
        broken.h[0].attn.c_attn.weight[0, 0] = torch.nan
    with pytest.raises(CheckpointError, match="holds NaN or Inf"):
        headspan.spectra(headspan.open(broken).heads())


def test_a_small_memory_budget_gives_the_same_numbers(heads: headspan.Heads, result: headspan.Result) -> None:
    small = headspan.spectra(heads, init=SD, memory="60kB")
    for name in kinds_in(result):
        np.testing.assert_allclose(
            small[name]["singular_value"].values, result[name]["singular_value"].values, rtol=1e-7
        )


def test_the_initialization_is_the_configs_unless_another_is_asked_for(heads: headspan.Heads) -> None:
    stated = headspan.spectra(heads, matrices="W_Q")
    assert stated.attrs["init"] == "config: initializer_range 0.02"
    assert float(stated["W_Q"]["sigma_init"]) == 0.02
    xavier = headspan.spectra(heads, matrices="W_Q,W_Q_head,W_QK", init="xavier")
    assert float(xavier["W_Q"]["sigma_init"]) == pytest.approx(math.sqrt(2 / (2 * D)))
    assert float(xavier["W_Q_head"]["sigma_init"]) == pytest.approx(math.sqrt(2 / (2 * D)))
    assert float(xavier["W_QK"]["sigma_init"]) == pytest.approx(2 / (2 * D))


def test_a_tied_unembedding_counts_once_and_a_folded_one_by_itself() -> None:
    tied = headspan.open(Case("gpt2", "gpt2", {**COMMON, "n_embd": D, "n_head": HEADS, "n_layer": 1}).model(head=True))
    assert "W_U" not in headspan.spectra(tied.heads(), matrices=None)
    assert "W_U" in headspan.spectra(tied, fold="layernorm")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"matrices": "W_X"}, "matrices: 'W_X' is not a matrix; matrices are W_Q"),
        ({"matrices": "W_gate"}, "has no W_gate of its own; it has W_Q"),
        ({"init": "he"}, 'init is "xavier", "config" or a standard deviation above 0, not \'he\''),
        ({"init": -1.0}, "not -1.0"),
        ({"tolerance": 2.0}, r"needs 0 <= it < 1, found 2\.0"),
    ],
)
def test_what_does_not_fit_is_refused(heads: headspan.Heads, options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        headspan.spectra(heads, **options)


def test_heads_are_found_by_their_labels(heads: headspan.Heads, result: headspan.Result) -> None:
    node = result["W_QK"]
    expected = torch.linalg.svdvals((heads.W_Q @ heads.W_K.mT).double()[1, 2])[:WIDTH]
    for label in ("L1H2", "1.2"):
        np.testing.assert_allclose(node.singular_value.sel(head=label), expected, rtol=1e-6)
    assert "null" in node.ks.attrs
    with pytest.raises(ArgumentError, match="head='L7H0' is not on this axis, which has L0H0 to L1H2"):
        node.singular_value.sel(head="L7H0")


def test_the_strongest_matrices_are_ranked_with_what_is_expected(result: headspan.Result) -> None:
    ranked = result.top(5, pairing="W_V_head")
    assert list(ranked.columns[-3:]) == ["score", "expected", "z"]
    best = result["W_V_head"]["ks"]
    assert ranked["kv_head"].iloc[0] == best["kv_head"].values[best.values.argmax()]
    assert ranked["score"].is_monotonic_decreasing


@pytest.mark.parametrize(
    ("m", "n", "inner"), [(8, 8, None), (16, 16, None), (64, 64, None), (16, 16, 16), (64, 64, 16)]
)
def test_random_matrices_of_any_shape_have_a_spike_in_one_case_of_a_hundred(m: int, n: int, inner: int | None) -> None:
    """With the limit law alone 16 x 16 matrices have 1.7 and small products up to 3 times as many."""
    p = largest_p_values(m, n, inner, draws=6_000, seed=1000)
    for level, most in ((0.05, 1.15), (0.01, 1.15), (0.001, 1.5)):
        error = 2.5 * (level / len(p)) ** 0.5
        assert level / 1.5 - error < (p < level).mean() < most * level + error


def test_a_larger_singular_value_has_a_smaller_p_value_however_far_out() -> None:
    law = law_of(16, 16, 16, 0)
    values = np.array([law.edge * factor for factor in (1.0, 2.0, 10.0, 1e6)])[:, None]
    log_p = spike_log_p(values, law, np.ones(4))[:, 0]
    assert np.isfinite(log_p).all()
    assert (np.diff(log_p) < 0).all()
