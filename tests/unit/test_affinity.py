"""Affinity: scores equal their definitions, nulls are honest, planted structure is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from scipy import stats

import headspan
from headspan.dims import PAIRINGS
from headspan.errors import DegenerateSubspace, ShapeError, UnsupportedModel
from headspan.heads import Heads
from headspan.heads.logits import relative_rotation
from headspan.lenses import affinity
from headspan.lenses.affinity.edges import edges, pairing_node, top_edges
from tests.families.tiny_models import CASES


def tiny(name: str) -> transformers.PreTrainedModel:
    return next(case for case in CASES if case.name == name).model()


def untrained(layers: int = 6, heads: int = 6, d_model: int = 96, seed: int = 0, kv: int | None = None) -> Heads:
    """Independent Gaussian weights: what no null may find anything in."""
    config = transformers.LlamaConfig(
        hidden_size=d_model,
        num_attention_heads=heads,
        num_key_value_heads=kv or heads,
        head_dim=8,
        num_hidden_layers=layers,
        intermediate_size=8,
        vocab_size=8,
        bos_token_id=1,
        eos_token_id=2,
    )
    generator = torch.Generator().manual_seed(seed)
    model = transformers.LlamaModel(config)
    state = {n: torch.randn(p.shape, generator=generator, dtype=torch.float64) for n, p in model.state_dict().items()}
    return headspan.open((state, config)).heads()


def dense_circuits(heads: Heads, role: str, layer: int, head: int, delta: int = 0) -> torch.Tensor:
    """N of the definition, formed: [d_model, ...] for a destination reached through `role`."""
    block, group = heads.layer(layer), heads.n_heads // heads.n_kv_heads
    turns = relative_rotation(heads, delta)
    R = torch.eye(heads.d_head, dtype=heads.dtype) if turns is None else turns[layer, 0]
    norms = [heads.head_norm("Q", layer), heads.head_norm("K", layer)]

    def middle(query: int, key: int) -> torch.Tensor:
        """What stands between W_Q and W_K^T."""
        sides = []
        for norm, which in zip(norms, (query, key), strict=True):
            mean = torch.full((heads.d_head, heads.d_head), 1 / heads.d_head, dtype=heads.dtype)
            centring = mean if norm is not None and norm.kind == "layernorm" else torch.zeros_like(mean)
            gain = torch.ones(heads.d_head, dtype=heads.dtype) if norm is None else norm.gain[which]
            sides.append((torch.eye(heads.d_head, dtype=heads.dtype) - centring) @ gain.diag())
        return sides[0] @ R @ sides[1].T

    if role == "Q":
        kv = head // group
        return block.W_Q[0, head] @ middle(head, kv) @ block.W_K[0, kv].T
    readers = range(head * group, (head + 1) * group)
    if role == "K":
        return torch.cat([block.W_K[0, head] @ middle(h, head).T @ block.W_Q[0, h].T for h in readers], dim=1)
    return torch.cat([block.W_V[0, head] @ block.W_O[0, h] for h in readers], dim=1)


@pytest.mark.parametrize(
    "name", ["gpt2", "llama", "llama-one-kv-head", "gpt_neox", "bert", "qwen3", "cohere-normed-queries", "olmo2"]
)
@pytest.mark.parametrize("delta", [0, 3])
def test_composition_score_is_its_definition(name: str, delta: int) -> None:
    heads = headspan.open(tiny(name)).heads()
    result = affinity.compute(heads, metrics=("cs",), delta=delta, draws=2)
    group = heads.n_heads // heads.n_kv_heads
    for pairing in ("OQ", "OK", "OV"):
        found = pairing_node(result, pairing)["composition_score"]
        for src in range(heads.n_heads):
            block = heads.layer(0)
            M = block.W_V[0, src // group] @ block.W_O[0, src]
            for dst in range(found.sizes["dst_head"]):
                N = dense_circuits(heads, pairing[1], 1, dst, delta)
                expected = torch.linalg.norm(M @ N) / (torch.linalg.norm(M) * torch.linalg.norm(N))
                assert float(found[0, src, 1, dst]) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("pairings", ["all", "OQ,OK,OV", "VO"])
def test_projection_kernel_is_its_definition_in_every_pairing(name: str, pairings: str) -> None:
    heads = headspan.open(tiny(name)).heads()
    result = affinity.compute(heads, pairings=pairings, metrics=("pk",), draws=2)
    assert list(result.children) == list(PAIRINGS if pairings == "all" else pairings.split(","))
    for pairing, node in result.children.items():
        kernel = node["projection_kernel"].values
        bases = []
        for role in pairing:
            W = heads.whole(role)
            bases.append(torch.linalg.qr(W.mT if role == "O" else W).Q)
        for src in range(bases[0].shape[1]):
            for dst in range(bases[1].shape[1]):
                expected = torch.linalg.norm(bases[0][0, src].T @ bases[1][1, dst]) ** 2
                assert kernel[0, src, 1, dst] == pytest.approx(float(expected), abs=1e-10)


def test_pairs_that_cannot_compose_are_undefined() -> None:
    node = pairing_node(affinity.compute(untrained(layers=3), draws=2), "OQ")
    for name in ("projection_kernel", "composition_score", "normalized_kernel"):
        defined = ~np.isnan(node[name].values)
        layers = np.arange(3)
        expected = layers[:, None, None, None] < layers[None, None, :, None]
        assert np.array_equal(defined, np.broadcast_to(expected, defined.shape))
    assert np.isnan(node["p_value"].values[:, :, 2]).all()
    backward = ~np.isnan(node["anticausal_kernel"].values)
    assert backward.sum() == (~np.isnan(node["projection_kernel"].values)).sum()


def test_scores_do_not_see_the_basis_inside_a_head() -> None:
    """Q -> Q A with K -> K A^-T, and V -> V B with O -> B^-1 O, leave every head's function as it was."""
    model = tiny("gpt2")
    before = affinity.compute(headspan.open(model).heads(), draws=2)
    with torch.no_grad():
        for layer in model.h:
            W = layer.attn.c_attn.weight.view(24, 3, 3, 8)
            W_O = layer.attn.c_proj.weight.view(3, 8, 24)
            for head in range(3):
                A, B = torch.randn(2, 8, 8, dtype=torch.float64) + 3 * torch.eye(8)
                W[:, 0, head] = W[:, 0, head] @ A
                W[:, 1, head] = W[:, 1, head] @ torch.linalg.inv(A).T
                W[:, 2, head] = W[:, 2, head] @ B
                W_O[head] = torch.linalg.inv(B) @ W_O[head]
    after = affinity.compute(headspan.open(model).heads(), draws=2)
    for pairing in ("OQ", "OK", "OV"):
        for name in ("projection_kernel", "composition_score"):
            a, b = (pairing_node(result, pairing)[name].values for result in (before, after))
            np.testing.assert_allclose(a, b, atol=1e-9)


def test_relative_rotation_is_the_models_own() -> None:
    for name in ("llama", "gpt_neox", "qwen2"):
        model = tiny(name)
        heads = headspan.open(model).heads()
        module = transformers.models.__dict__[name].__dict__[f"modeling_{name}"]
        positions = torch.arange(9)[None]
        q, k = torch.randn(2, 1, 1, 9, heads.d_head, dtype=torch.float64)
        cos, sin = model.rotary_emb(q, positions)
        turned_q, turned_k = module.apply_rotary_pos_emb(q, k, cos, sin)
        for i, j in ((5, 2), (8, 8), (1, 7)):
            R = relative_rotation(heads, i - j)
            ours = q[0, 0, i] @ k[0, 0, j] if R is None else q[0, 0, i] @ R[1, 0] @ k[0, 0, j]
            torch.testing.assert_close(ours, turned_q[0, 0, i] @ turned_k[0, 0, j], atol=1e-6, rtol=1e-6)


def test_an_unknown_rotary_scheme_defines_only_offset_zero() -> None:
    heads = untrained(layers=2)
    stored = heads.reader.stored
    records = tuple(replace(record, kind="yarn") for record in stored.stack.rotary)
    assert len(records) == 2
    odd = replace(stored, stack=replace(stored.stack, rotary=records))
    yarn = replace(heads, reader=replace(heads.reader, stored=odd))
    affinity.compute(yarn, draws=2)
    with pytest.raises(UnsupportedModel, match=r"rotary frequencies of kind 'yarn' .* only delta = 0 is defined"):
        affinity.compute(yarn, delta=1, draws=2)


def test_the_kernel_does_not_depend_on_the_offset() -> None:
    heads = headspan.open(tiny("llama")).heads()
    near, far = (affinity.compute(heads, delta=delta, draws=2) for delta in (0, 7))
    node, other = pairing_node(near, "OQ"), pairing_node(far, "OQ")
    np.testing.assert_array_equal(node["projection_kernel"].values, other["projection_kernel"].values)
    assert np.nanmax(np.abs(node["composition_score"].values - other["composition_score"].values)) > 0.01
    assert (near.attrs["delta"], far.attrs["delta"]) == (0, 7)


@pytest.mark.parametrize("null", ["haar", "anticausal"])
@pytest.mark.parametrize("metric", ["pk", "cs"])
def test_p_values_are_uniform_on_untrained_weights(metric: str, null: str) -> None:
    collected = []
    for seed in range(3):
        result = affinity.compute(untrained(seed=seed), metrics=(metric,), draws=2)
        collected += [edges(result, pairing, metric)[f"p_value_{null}"].to_numpy() for pairing in ("OQ", "OK", "OV")]
    p_values = np.concatenate(collected)
    assert len(p_values) == 3 * 3 * 15 * 36
    # Pairs share heads, so the effective sample is smaller than the count; a wrong law is off by far more than this.
    assert stats.kstest(p_values, "uniform").statistic < 0.04
    assert abs((p_values < 0.01).mean() - 0.01) < 0.006


def test_the_direction_test_is_uniform_on_untrained_weights_and_sees_a_direction() -> None:
    p_values = []
    for seed in range(20):
        node = pairing_node(
            affinity.compute(untrained(layers=5, heads=2, d_model=40, seed=seed), pairings="OK", draws=2), "OK"
        )
        p_values.append(float(node["direction_p_value"].sel(metric="pk")))
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    heads = planted([((0, 0), (1, 0)), ((1, 1), (2, 1)), ((2, 2), (3, 2)), ((3, 3), (4, 3)), ((4, 4), (5, 4))])
    node = pairing_node(affinity.compute(heads, pairings="OK", draws=2), "OK")
    assert float(node["direction"].sel(metric="pk")) > 0
    assert float(node["direction_p_value"].sel(metric="pk")) < 0.02


def planted(pairs: list[tuple[tuple[int, int], tuple[int, int]]], role: str = "k_proj") -> Heads:
    """Untrained weights in which each source writes exactly what its destination reads through K."""
    heads = untrained()
    state = {
        name: tensor.clone() for name, tensor in heads.checkpoint.store.read(list(heads.checkpoint.store.infos)).items()
    }
    for (src_layer, src), (dst_layer, dst) in pairs:
        written = state[f"layers.{src_layer}.self_attn.o_proj.weight"][:, src * 8 : src * 8 + 8]
        state[f"layers.{dst_layer}.self_attn.{role}.weight"][dst * 8 : dst * 8 + 8] = written.T
    return headspan.open((state, dict(heads.checkpoint.config.fields))).heads()


def test_planted_pairs_are_found_under_every_null() -> None:
    pairs = [((0, 1), (3, 2)), ((1, 0), (2, 5)), ((2, 4), (5, 0))]
    result = affinity.compute(planted(pairs), draws=2)
    names = {(f"L{s[0]}H{s[1]}", f"L{d[0]}H{d[1]}") for s, d in pairs}
    top = top_edges(result, "OK", "pk", 3)
    assert set(zip(top["src"], top["dst"], strict=True)) == names
    assert (top["score"] > 8 - 1e-9).all()
    assert (top["q_value_haar"] < 1e-10).all()
    assert (top["p_value_anticausal"] < 0.06).all()
    best = top_edges(result, "OK", "cs", 3)
    assert set(zip(best["src"], best["dst"], strict=True)) == names
    assert (best["q_value_haar"] < 1e-3).all()
    others = edges(result, "OQ", "pk")
    assert (others["q_value_haar"] < 0.05).mean() < 0.02


def test_a_role_paired_with_itself_has_no_anticausal_null() -> None:
    node = pairing_node(affinity.compute(untrained(layers=3), pairings="QQ", draws=2), "QQ")
    assert np.isnan(node["p_value"].sel(null="anticausal").values).all()
    assert np.isnan(node["direction_p_value"].values).all()
    assert not np.isnan(node["p_value"].sel(null="haar", metric="pk").values).all()


def test_grouped_models_count_each_kv_head_once(stories: Path) -> None:
    result = affinity.compute(headspan.open(stories).heads(), draws=2)
    assert pairing_node(result, "OQ").sizes["dst_head"] == 8
    for pairing in ("OK", "OV"):
        node = pairing_node(result, pairing)
        assert node.sizes["dst_head"] == 4
        assert int(node["n_pairs"].sel(metric="pk")) == 10 * 8 * 4
        assert set(edges(result, pairing)["dst"].str[2]) == {"K"}
    assert set(edges(result, "OQ")["dst"].str[2]) == {"H"}


def test_a_zero_head_is_undefined_and_flagged() -> None:
    model = tiny("gpt2")
    with torch.no_grad():
        model.h[0].attn.c_proj.weight.view(3, 8, 24)[1] = 0
        model.h[1].attn.c_attn.weight.view(24, 3, 3, 8)[:, 1, 2] = 0
    result = affinity.compute(headspan.open(model).heads(), draws=2)
    node = pairing_node(result, "OK")
    assert node["src_rank"].values.tolist() == [[8, 0, 8], [8, 8, 8]]
    assert node["dst_rank"].values.tolist() == [[8, 8, 8], [8, 8, 0]]
    for name in ("projection_kernel", "composition_score", "normalized_kernel"):
        values = node[name].values[0, :, 1, :]
        assert np.isnan(values[1]).all()
        assert np.isnan(values[:, 2]).all()
        assert not np.isnan(values[[0, 2]][:, :2]).any()
    assert int(node["n_pairs"].sel(metric="pk")) == 4
    assert len(edges(result, "OK")) == 4


def test_a_rank_deficient_head_counts_with_its_true_dimension() -> None:
    model = tiny("gpt2")
    with torch.no_grad():
        W = model.h[1].attn.c_attn.weight.view(24, 3, 3, 8)
        W[:, 1, 0, 4:] = W[:, 1, 0, :4]
    node = pairing_node(affinity.compute(headspan.open(model).heads(), draws=2), "OK")
    assert node["dst_rank"].values[1].tolist() == [4, 8, 8]
    kernel, normalised = node["projection_kernel"].values[0, 0, 1, 0], node["normalized_kernel"].values[0, 0, 1, 0]
    assert normalised == pytest.approx(kernel / (8 * 4) ** 0.5)


def test_duplicate_heads_and_full_width_heads_reach_the_limit() -> None:
    config = {"model_type": "gpt2", "n_layer": 2, "n_head": 1, "n_embd": 6, "n_positions": 4, "vocab_size": 4}
    state = {}
    for layer in (0, 1):
        state |= {f"h.{layer}.attn.c_attn.weight": torch.randn(6, 18), f"h.{layer}.attn.c_attn.bias": torch.zeros(18)}
        state |= {f"h.{layer}.attn.c_proj.weight": torch.randn(6, 6), f"h.{layer}.attn.c_proj.bias": torch.zeros(6)}
    node = pairing_node(affinity.compute(headspan.open((state, config)).heads(), draws=2), "OQ")
    assert float(node["projection_kernel"][0, 0, 1, 0]) == pytest.approx(6.0)
    assert float(node["p_value"].sel(metric="pk", null="haar")[0, 0, 1, 0]) == 1.0


def test_requests_that_make_no_sense_are_refused() -> None:
    heads = untrained(layers=2)
    with pytest.raises(DegenerateSubspace, match="nothing composes: there is only one layer"):
        affinity.compute(untrained(layers=1))
    with pytest.raises(ShapeError, match="'OX' is not a pairing; write a source and a destination role"):
        affinity.compute(heads, pairings="OQ,OX")
    with pytest.raises(ShapeError, match="unknown metric 'kernel'; metrics are pk and cs"):
        affinity.compute(heads, metrics=("kernel",))
    result = affinity.compute(heads, pairings="QQ", draws=2)
    with pytest.raises(ShapeError, match="pairing OK was not computed; this result holds QQ"):
        edges(result, "OK")
    with pytest.raises(ShapeError, match="pairing QQ has no cs"):
        edges(result, "QQ", "cs")
    with pytest.raises(ShapeError, match="top = 0 asks for no pair"):
        top_edges(result, "QQ", top=0)
    assert len(top_edges(result, "QQ", top=10**6)) == 36


def test_float32_agrees_with_float64() -> None:
    heads = untrained()
    fine, coarse = (affinity.compute(heads, precision=p, draws=2) for p in ("float64", "float32"))
    for pairing in ("OQ", "OK", "OV"):
        for name, tolerance in (("projection_kernel", 2e-5), ("composition_score", 2e-6)):
            a, b = (pairing_node(result, pairing)[name].values for result in (fine, coarse))
            np.testing.assert_allclose(a, b, atol=tolerance)


def test_provenance_travels_with_the_result() -> None:
    result = affinity.compute(untrained(layers=2), draws=2, seed=5)
    for name in ("model", "file_hash", "fold", "dtype", "headspan_version", "seed", "delta", "tolerance", "lens"):
        assert name in result.attrs
    assert result.attrs["seed"] == 5
