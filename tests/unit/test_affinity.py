"""Affinity: scores equal their definitions, p-values are uniform under the null, planted structure is found."""

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
from headspan.errors import ArgumentError, DegenerateSubspace, HeadspanError, UnsupportedModel
from headspan.heads import Heads
from headspan.heads.logits import relative_rotation
from headspan.lenses.affinity.wiring import edges
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
    result = headspan.affinity(heads, metrics="cs", delta=delta, draws=2)
    group = heads.n_heads // heads.n_kv_heads
    for pairing in ("OQ", "OK", "OV"):
        found = result.grid(pairing)["composition_score"]
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
    result = headspan.affinity(heads, pairings=pairings, metrics="pk", draws=2)
    assert list(result.data.children) == list(PAIRINGS if pairings == "all" else pairings.split(","))
    for pairing in result.data.children:
        kernel = result.grid(pairing)["projection_kernel"].values
        bases = []
        for role in pairing:
            W = heads.whole(role)
            bases.append(torch.linalg.qr(W.mT if role == "O" else W).Q)
        for src in range(bases[0].shape[1]):
            for dst in range(bases[1].shape[1]):
                expected = torch.linalg.norm(bases[0][0, src].T @ bases[1][1, dst]) ** 2
                assert kernel[0, src, 1, dst] == pytest.approx(float(expected), abs=1e-10)


def test_pairs_that_cannot_compose_are_undefined() -> None:
    node = headspan.affinity(untrained(layers=3), draws=2).grid("OQ")
    for name in ("projection_kernel", "composition_score", "normalized_kernel"):
        defined = ~np.isnan(node[name].values)
        layers = np.arange(3)
        expected = layers[:, None, None, None] < layers[None, None, :, None]
        assert np.array_equal(defined, np.broadcast_to(expected, defined.shape))
    for part in ("null", "null_sd", "z", "p", "q"):
        assert np.isnan(node[f"projection_kernel_{part}"].values[:, 2]).all()
    backward = ~np.isnan(node["projection_kernel_reverse"].values)
    assert backward.sum() == (~np.isnan(node["projection_kernel"].values)).sum()


def test_scores_do_not_see_the_basis_inside_a_head() -> None:
    """Q -> Q A with K -> K A^-T, and V -> V B with O -> B^-1 O, leave every head's function as it was."""
    model = tiny("gpt2")
    before = headspan.affinity(headspan.open(model).heads(), draws=2)
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
    after = headspan.affinity(headspan.open(model).heads(), draws=2)
    for pairing in ("OQ", "OK", "OV"):
        for name in ("projection_kernel", "composition_score"):
            a, b = (result[pairing][name].values for result in (before, after))
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
    headspan.affinity(yarn, draws=2)
    with pytest.raises(UnsupportedModel, match=r"rotary frequencies of kind 'yarn' .* only delta = 0 is defined"):
        headspan.affinity(yarn, delta=1, draws=2)


def test_the_kernel_does_not_depend_on_the_offset() -> None:
    heads = headspan.open(tiny("llama")).heads()
    near, far = (headspan.affinity(heads, delta=delta, draws=2) for delta in (0, 7))
    node, other = near["OQ"], far["OQ"]
    np.testing.assert_array_equal(node["projection_kernel"].values, other["projection_kernel"].values)
    assert np.nanmax(np.abs(node["composition_score"].values - other["composition_score"].values)) > 0.01
    assert (near.attrs["delta"], far.attrs["delta"]) == (0, 7)


@pytest.mark.parametrize("null", ["haar", "reverse"])
@pytest.mark.parametrize("metric", ["projection_kernel", "composition_score"])
def test_p_values_are_uniform_on_untrained_weights(metric: str, null: str) -> None:
    collected = []
    for seed in range(3):
        result = headspan.affinity(untrained(seed=seed), metrics=metric, draws=2)
        collected += [edges(result, pairing, metric)[f"p_{null}"].to_numpy() for pairing in ("OQ", "OK", "OV")]
    p_values = np.concatenate(collected)
    assert len(p_values) == 3 * 3 * 15 * 36
    # Pairs share heads, so the effective sample is smaller than the count; a wrong law is off by far more than this.
    assert stats.kstest(p_values, "uniform").statistic < 0.04
    assert abs((p_values < 0.01).mean() - 0.01) < 0.006


def test_too_few_layers_for_a_direction_are_said_and_not_passed_over() -> None:
    result = headspan.affinity(untrained(layers=4, heads=2, d_model=40, seed=0), pairings="OK", draws=2)
    said = [finding.statement for finding in result.findings if "reverse order" in finding.statement]
    assert any(
        "with 4 layers no test of the direction can be significant (its smallest p-value is 0.083)" in s for s in said
    )


def test_the_direction_test_is_uniform_on_untrained_weights_and_sees_a_direction() -> None:
    p_values = []
    for seed in range(20):
        heads = untrained(layers=5, heads=2, d_model=40, seed=seed)
        node = headspan.affinity(heads, pairings="OK", draws=2)["OK"]
        p_values.append(float(node.projection_kernel_direction_p))
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    heads = planted([((0, 0), (1, 0)), ((1, 1), (2, 1)), ((2, 2), (3, 2)), ((3, 3), (4, 3)), ((4, 4), (5, 4))])
    node = headspan.affinity(heads, pairings="OK", draws=2)["OK"]
    assert float(node.projection_kernel_direction) > 0
    assert float(node.projection_kernel_direction_p) < 0.02


def planted(pairs: list[tuple[tuple[int, int], tuple[int, int]]], role: str = "k_proj", n_heads: int = 6) -> Heads:
    """Untrained weights in which each source writes exactly what its destination reads through K."""
    heads = untrained(heads=n_heads)
    state = {
        name: tensor.clone() for name, tensor in heads.checkpoint.store.read(list(heads.checkpoint.store.infos)).items()
    }
    for (src_layer, src), (dst_layer, dst) in pairs:
        written = state[f"layers.{src_layer}.self_attn.o_proj.weight"][:, src * 8 : src * 8 + 8]
        state[f"layers.{dst_layer}.self_attn.{role}.weight"][dst * 8 : dst * 8 + 8] = written.T
    return headspan.open((state, dict(heads.checkpoint.config.fields))).heads()


def test_the_two_way_null_says_nothing_of_untrained_weights() -> None:
    for seed in range(3):
        result = headspan.affinity(untrained(heads=8, seed=seed), draws=2)
        assert result.attrs["null"] == "two-way"
        for pairing in ("OQ", "OK", "OV"):
            node = result[pairing]
            assert list(node["null"].values) == ["two-way", "reverse", "haar"]
            for metric in ("projection_kernel", "composition_score"):
                assert int(node[f"{metric}_n_significant"].sel(null="two-way")) <= 1
                assert float(node[f"{metric}_n_strong"]) == 0
        said = [finding.statement for finding in result.findings if "in general" in finding.statement]
        assert len(said) == 3
        assert any(text.startswith("None of 960 ") for text in said)


def test_planted_pairs_are_strong_and_counted() -> None:
    pairs = [((a, b), (a + 2, 7 - b)) for a in range(4) for b in (0, 2, 4, 6)]
    result = headspan.affinity(planted(pairs, n_heads=8), draws=2)
    names = {(f"L{s[0]}H{s[1]}", f"L{d[0]}H{d[1]}") for s, d in pairs}
    for metric in ("projection_kernel", "composition_score"):
        top = edges(result, "OK", metric, len(pairs))
        assert set(zip(top["src"], top["dst"], strict=True)) == names
        assert set(top["tier"]) == {"strong"}
        assert (top["q_two-way"] < 1e-3).all()
    node = result.to_json()["pairings"]["OK"]
    assert len(pairs) <= node["n_significant"] <= len(pairs) + 2
    assert node["n_pairs"] == 960
    assert node["n_significant_reverse"] <= 2
    assert 0 < node["scale"] < 0.2
    assert set(edges(result, "OQ")["tier"]) <= {"background", "stands out"}


def test_a_small_model_is_compared_with_its_reverse_order_and_says_so() -> None:
    result = headspan.affinity(untrained(), pairings="OK,QQ", draws=2)
    assert result.attrs["null"] == "reverse"
    assert "32 partners of every head; this model has 6, 1,080 and 30" in result.attrs["null_reason"]
    assert list(result["OK"]["null"].values) == ["reverse", "haar"]
    # A role paired with itself has no order to reverse.
    assert list(result["QQ"]["null"].values) == ["haar", "reverse"]
    assert result.to_json()["pairings"]["OK"]["scale"] is None
    assert any("anisotropy changes with depth" in finding.evidence for finding in result.findings)


def test_planted_pairs_are_found_under_every_null() -> None:
    pairs = [((0, 1), (3, 2)), ((1, 0), (2, 5)), ((2, 4), (5, 0))]
    result = headspan.affinity(planted(pairs), draws=2)
    names = {(f"L{s[0]}H{s[1]}", f"L{d[0]}H{d[1]}") for s, d in pairs}
    top = edges(result, "OK", top=3)
    assert set(zip(top["src"], top["dst"], strict=True)) == names
    assert (top["score"] > 8 - 1e-9).all()
    assert (top["q_haar"] < 1e-10).all()
    assert (top["p_reverse"] < 0.06).all()
    best = edges(result, "OK", "composition_score", 3)
    assert set(zip(best["src"], best["dst"], strict=True)) == names
    assert (best["q_haar"] < 1e-3).all()
    others = edges(result, "OQ")
    assert (others["q_haar"] < 0.05).mean() < 0.02


def test_a_role_paired_with_itself_has_no_reverse_null() -> None:
    node = headspan.affinity(untrained(layers=3), pairings="QQ", draws=2).dataset("QQ")
    for part in ("null", "null_sd", "z", "p", "q"):
        assert np.isnan(node[f"projection_kernel_{part}"].sel(null="reverse").values).all()
        assert not np.isnan(node[f"projection_kernel_{part}"].sel(null="haar").values).all()
    assert np.isnan(node["projection_kernel_direction_p"])


def test_grouped_models_count_each_kv_head_once(stories: Path) -> None:
    result = headspan.affinity(headspan.open(stories).heads(), draws=2)
    assert result["OQ"].sizes["dst"] == 5 * 8
    for pairing in ("OK", "OV"):
        node = result[pairing]
        assert node.sizes["dst"] == 5 * 4
        assert int(node.n_pairs) == int(node.projection_kernel_n_pairs) == 10 * 8 * 4
        assert set(edges(result, pairing)["dst"].str[2]) == {"K"}
    assert set(edges(result, "OQ")["dst"].str[2]) == {"H"}


def test_a_zero_head_is_undefined_and_flagged() -> None:
    model = tiny("gpt2")
    with torch.no_grad():
        model.h[0].attn.c_proj.weight.view(3, 8, 24)[1] = 0
        model.h[1].attn.c_attn.weight.view(24, 3, 3, 8)[:, 1, 2] = 0
    result = headspan.affinity(headspan.open(model).heads(), draws=2)
    node = result.grid("OK")
    assert node["src_rank"].values.tolist() == [[8, 0, 8], [8, 8, 8]]
    assert node["dst_rank"].values.tolist() == [[8, 8, 8], [8, 8, 0]]
    for name in ("projection_kernel", "composition_score", "normalized_kernel"):
        values = node[name].values[0, :, 1, :]
        assert np.isnan(values[1]).all()
        assert np.isnan(values[:, 2]).all()
        assert not np.isnan(values[[0, 2]][:, :2]).any()
    assert int(node["n_pairs"]) == 4
    assert len(edges(result, "OK")) == 4


def test_a_rank_deficient_head_counts_with_its_true_dimension() -> None:
    model = tiny("gpt2")
    with torch.no_grad():
        W = model.h[1].attn.c_attn.weight.view(24, 3, 3, 8)
        W[:, 1, 0, 4:] = W[:, 1, 0, :4]
    node = headspan.affinity(headspan.open(model).heads(), draws=2).dataset("OK")
    assert node["dst_rank"].sel(dst=["L1H0", "L1H1", "L1H2"]).values.tolist() == [4, 8, 8]
    pair = node.sel(src="L0H0", dst="L1H0", null="haar")
    assert float(pair["normalized_kernel"]) == pytest.approx(float(pair["projection_kernel"]) / (8 * 4) ** 0.5)
    assert float(pair["projection_kernel_null"]) == pytest.approx(8 * 4 / 24)
    assert float(node["projection_kernel_mean_null"]) == pytest.approx(8 * 8 / 24)


def test_duplicate_heads_and_full_width_heads_reach_the_limit() -> None:
    config = {"model_type": "gpt2", "n_layer": 2, "n_head": 1, "n_embd": 6, "n_positions": 4, "vocab_size": 4}
    state = {}
    for layer in (0, 1):
        state |= {f"h.{layer}.attn.c_attn.weight": torch.randn(6, 18), f"h.{layer}.attn.c_attn.bias": torch.zeros(18)}
        state |= {f"h.{layer}.attn.c_proj.weight": torch.randn(6, 6), f"h.{layer}.attn.c_proj.bias": torch.zeros(6)}
    pair = headspan.affinity(headspan.open((state, config)), draws=2).dataset("OQ").sel(src="L0H0", dst="L1H0")
    assert float(pair["projection_kernel"]) == pytest.approx(6.0)
    assert float(pair["projection_kernel_p"].sel(null="haar")) == 1.0
    assert np.isnan(pair["projection_kernel_z"].sel(null="haar"))


def test_requests_that_make_no_sense_are_refused() -> None:
    heads = untrained(layers=2)
    with pytest.raises(UnsupportedModel, match="needs at least 2 layers; this model has 1"):
        headspan.affinity(untrained(layers=1))
    with pytest.raises(DegenerateSubspace, match="nothing composes: there is only one layer"):
        headspan.affinity(headspan.open("demo").heads(layers=[1]))
    result = headspan.affinity(heads, pairings="QQ", draws=2)
    with pytest.raises(ArgumentError, match="pairing 'OK' was not computed; this result has QQ"):
        edges(result, "OK")
    with pytest.raises(ArgumentError, match="metric 'composition_score' was not computed for QQ"):
        edges(result, "QQ", "cs")
    with pytest.raises(ArgumentError, match="n = 0 asks for no row"):
        result.top(0)
    assert len(result.top(10**6)) == 36


CONTRADICTIONS = [
    ({"pairings": "OQ,OX"}, "'OX' is not a pairing; write a source and a destination role"),
    ({"metrics": "foo"}, "metrics='foo' is unknown; metrics are projection_kernel, composition_score"),
    ({"metrics": ()}, r"metrics=\(\) is unknown"),
    ({"null": "anticausal"}, "null='anticausal' is unknown; nulls are two-way, reverse, haar"),
    ({"algorithm": "magic"}, "algorithm='magic' is unknown; algorithms are auto, exact, gram, projector, sketch"),
    ({"metrics": "cs", "labels": "2601.10266"}, "labels='2601.10266' are looked for among the hubs, which need"),
    ({"pairings": "QQ", "labels": "ioi"}, "labels='ioi' are looked for among the hubs, which need"),
    ({"metrics": "cs", "pairings": "QQ"}, "exists for the pairings OQ, OK, OV"),
    ({"algorithm": "sketch", "metrics": "cs"}, "goes without metrics='composition_score'"),
    ({"algorithm": "sketch", "labels": "ioi"}, "goes without labels"),
    ({"algorithm": "sketch", "null": "reverse"}, "has no reverse null"),
    ({"top": 0}, "top=0, .*needed are top >= 1"),
    ({"draws": 0}, "draws=0: needed are .* draws >= 1"),
]


@pytest.mark.parametrize(("options", "message"), CONTRADICTIONS, ids=[str(options) for options, _ in CONTRADICTIONS])
def test_wrong_choices_are_refused_before_the_model_is_opened(options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        headspan.affinity("nowhere/to/be/found", **options)


def test_labels_that_do_not_fit_are_refused_before_a_weight_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = untrained(layers=2)

    def read(*_: object, **__: object) -> None:
        raise AssertionError("a weight was read")

    monkeypatch.setattr(Heads, "blocks", read)
    monkeypatch.setattr(Heads, "layer", read)
    with pytest.raises(HeadspanError, match="labels 'ioi' are for another model"):
        headspan.affinity(heads, labels="ioi")


def test_a_result_is_read_by_label_and_ranked() -> None:
    aff = headspan.affinity("demo", pairings="OK", draws=2)
    kernel = aff["OK"].projection_kernel
    assert float(kernel.sel(src="L0H3", dst="L1H6")) == float(kernel.sel(src="0.3", dst=(1, 6))) == float(kernel.max())
    assert set(kernel.attrs) == {"long_name", "range", "null", "formula", "reference"}
    best = aff.top(5, null="haar")
    assert list(best.columns) == list(aff.top(5)) == ["src", "dst", "score", "expected", "z", "p", "q"]
    assert best["expected"].tolist() == pytest.approx([16 * 16 / 128] * 5)
    assert headspan.affinity("demo", draws=2).top(1).columns[0] == "pairing"
    by_z = aff.top(3, pairing="OK", metric="cs", by="z", null="reverse")
    assert by_z["z"].is_monotonic_decreasing
    assert np.isnan(kernel.sel(src="L1H0", dst="L0H0"))


def test_expected_values_of_a_pair_are_those_of_its_null() -> None:
    """Haar: mean pq/d. Reverse: mean and standard deviation of pairs in reverse order, equally many layers apart."""
    heads = untrained(layers=4, heads=3)
    for null in ("haar", "reverse"):
        node = headspan.affinity(heads, null=null, pairings="OV", draws=2).dataset("OV")
        assert node["null"].values[0] == null
    pair = node.sel(src="L1H2", dst="L3H0")
    apart = [(f"L{layer + 2}H{a}", f"L{layer}H{b}") for layer in (0, 1) for a in range(3) for b in range(3)]
    for metric in ("projection_kernel", "composition_score"):
        drawn = np.array([float(node[f"{metric}_reverse"].sel(src=src, dst=dst)) for src, dst in apart])
        score, here = float(pair[metric]), {part: pair[f"{metric}_{part}"] for part in ("null", "null_sd", "z", "p")}
        assert float(here["null"].sel(null="reverse")) == pytest.approx(drawn.mean())
        assert float(here["null_sd"].sel(null="reverse")) == pytest.approx(drawn.std())
        assert float(here["p"].sel(null="reverse")) == pytest.approx((1 + (drawn >= score).sum()) / (1 + len(drawn)))
        for name in ("haar", "reverse"):
            mean, sd = (float(here[part].sel(null=name)) for part in ("null", "null_sd"))
            assert float(here["z"].sel(null=name)) == pytest.approx((score - mean) / sd)
    assert float(pair["projection_kernel_null"].sel(null="haar")) == pytest.approx(8 * 8 / 96)


@pytest.mark.parametrize("metric", ["projection_kernel", "composition_score"])
def test_z_is_standard_on_untrained_weights(metric: str) -> None:
    z = headspan.affinity(untrained(), metrics=metric, draws=2)["OK"][f"{metric}_z"].sel(null="haar").values
    z = z[~np.isnan(z)]
    assert abs(z.mean()) < 0.1
    assert abs(z.std() - 1) < 0.1


def test_float32_agrees_with_float64() -> None:
    heads = untrained()
    fine, coarse = (headspan.affinity(heads, dtype=p, draws=2) for p in ("float64", "float32"))
    for pairing in ("OQ", "OK", "OV"):
        for name, tolerance in (("projection_kernel", 2e-5), ("composition_score", 2e-6)):
            a, b = (result[pairing][name].values for result in (fine, coarse))
            np.testing.assert_allclose(a, b, atol=tolerance)


def test_provenance_travels_with_the_result() -> None:
    result = headspan.affinity(untrained(layers=2), draws=2, seed=5)
    for name in ("model", "file_hash", "fold", "dtype", "headspan_version", "seed", "delta", "tolerance", "lens"):
        assert name in result.attrs
    assert result.attrs["seed"] == 5


def test_a_model_of_one_head_a_layer_is_ranked_drawn_and_told() -> None:
    result = headspan.affinity(untrained(layers=2, heads=1), draws=2)
    assert len(result.top()) == 3
    assert {"Wiring diagram", "All pairs", "Scores and their nulls"} <= set(result.figures)
    assert int(result["n_ranked"]) == 0
    assert any("is the strongest K-composition" in finding.statement for finding in result.findings)
