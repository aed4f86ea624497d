"""The whole wiring: shares against their definition, nulls on unrelated weights, planted edges, and every output."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import headspan
from headspan.cli.main import app
from headspan.errors import ArgumentError, HeadspanError
from headspan.heads import Heads
from headspan.lenses.graph import tier_names
from headspan.lenses.wiring.graph import edges, relations, wiring_graph
from headspan.result import Result
from tests.families.tiny_models import CASES

LAYERS, HEADS, D, R, MLP, VOCAB = 4, 12, 96, 8, 120, 150
CONFIG = {
    "model_type": "llama",
    "hidden_size": D,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": R,
    "num_hidden_layers": LAYERS,
    "intermediate_size": MLP,
    "vocab_size": VOCAB,
    "tie_word_embeddings": False,
}
State = dict[str, torch.Tensor]


def model(
    change: Callable[[State], None] | None = None, *, seed: int = 0, decay: float = 0.0, kv: int = HEADS, **opening: Any
) -> Heads:
    """Independent normal weights; with `decay`, all share one anisotropic covariance in the stream."""
    draw = torch.Generator().manual_seed(seed)
    spread = torch.arange(1, D + 1, dtype=torch.float64) ** -decay

    def rows(count: int) -> torch.Tensor:
        return torch.randn(count, D, generator=draw, dtype=torch.float64) * spread

    state: State = {"model.embed_tokens.weight": rows(VOCAB), "lm_head.weight": rows(VOCAB)}
    state["model.norm.weight"] = 1 + 0.3 * torch.rand(D, generator=draw, dtype=torch.float64)
    for layer in range(LAYERS):
        home = f"model.layers.{layer}."
        for role, count in (("q", HEADS), ("k", kv), ("v", kv)):
            state[f"{home}self_attn.{role}_proj.weight"] = rows(count * R)
        state[f"{home}self_attn.o_proj.weight"] = rows(HEADS * R).T.contiguous()
        for name in ("gate_proj", "up_proj"):
            state[f"{home}mlp.{name}.weight"] = rows(MLP)
        state[f"{home}mlp.down_proj.weight"] = rows(MLP).T.contiguous()
        for name in ("input_layernorm", "post_attention_layernorm"):
            state[f"{home}{name}.weight"] = 1 + 0.3 * torch.rand(D, generator=draw, dtype=torch.float64)
    if change is not None:
        change(state)
    return headspan.open((state, CONFIG | {"num_key_value_heads": kv})).heads(dtype=torch.float64, **opening)


@cache
def plain() -> Result:
    return headspan.wiring(model())


def space(heads: Heads, role: str, layer: int, head: int) -> np.ndarray:
    W = heads.layer(layer).weight(role)[0, head].numpy()
    return np.linalg.qr(W.T if role == "O" else W)[0]


def share(W: np.ndarray, U: np.ndarray) -> float:
    """tr(U^T C U) / tr C with C = W^T W for rows W in the stream."""
    C = W.T @ W
    return float(np.trace(U.T @ C @ U) / np.trace(C))


def test_shares_are_those_of_the_definition() -> None:
    heads, result = model(), plain()
    mlp = [heads.mlp(layer) for layer in range(LAYERS)]
    read = [torch.cat(one.W_in, dim=1).T.numpy() for one in mlp]
    written = [one.W_out.numpy() for one in mlp]
    cases = {
        ("W_E to Q", "W_E", "L1H3"): share(heads.W_E.numpy(), space(heads, "Q", 1, 3)),
        ("MLP to V", "L0MLP", "L2H5"): share(written[0], space(heads, "V", 2, 5)),
        ("O to MLP", "L1H7", "L1MLP"): share(read[1], space(heads, "O", 1, 7)),
        ("O to logits", "L2H0", "logits"): share(heads.W_U.T.numpy(), space(heads, "O", 2, 0)),
        ("O to K", "L0H2", "L2H9"): share(space(heads, "K", 2, 9).T, space(heads, "O", 0, 2)),
        ("MLP to MLP", "L0MLP", "L2MLP"): float(
            np.sum((written[0] @ read[2].T) ** 2) / np.sum(written[0] ** 2) / np.sum(read[2] ** 2)
        ),
    }
    for (relation, src, dst), expected in cases.items():
        found = float(result[relation]["share"].sel(src=src, dst=dst))
        np.testing.assert_allclose(found, expected, rtol=1e-10, err_msg=relation)
        single = edges(result, relation).set_index(["src_label", "dst_label"])
        assert single.loc[(src, dst), "score"] == found


def test_shares_do_not_see_the_basis_inside_a_head() -> None:
    mixing = torch.randn(R, R, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

    def mix(state: State) -> None:
        for role in ("q", "k", "v"):
            name = f"model.layers.1.self_attn.{role}_proj.weight"
            state[name] = torch.cat([mixing @ part for part in state[name].split(R)])

    mixed = headspan.wiring(model(mix), dst="heads", src="W_E,mlp")
    for relation in relations(mixed):
        np.testing.assert_allclose(mixed[relation]["share"], plain()[relation]["share"], rtol=1e-9)


def test_what_does_not_compose_is_nan() -> None:
    result = plain()
    assert np.isnan(result["MLP to Q"]["share"].sel(src="L1MLP", dst="L1H0"))
    assert np.isfinite(result["MLP to Q"]["share"].sel(src="L1MLP", dst="L2H0"))
    assert np.isfinite(result["O to MLP"]["share"].sel(src="L1H0", dst="L1MLP"))
    assert np.isnan(result["O to MLP"]["share"].sel(src="L2H0", dst="L1MLP"))
    assert int(result["O to MLP"]["n_edges"]) == HEADS * 10
    assert (result["MLP to Q"]["tier"].values[~np.isfinite(result["MLP to Q"]["share"].values)] == "").all()


def test_the_rotation_null_holds_on_isotropic_weights() -> None:
    found = [headspan.wiring(model(seed=seed), src="W_E,mlp", dst="heads", null="rotation") for seed in range(4)]
    for relation in relations(found[0]):
        p = np.concatenate([each[relation]["share_p"].values.ravel() for each in found])
        p = p[~np.isnan(p)]
        assert 0.01 < (p < 0.05).mean() < 0.1, relation
        z = np.concatenate([each[relation]["share_z"].values.ravel() for each in found])
        assert 0.8 < np.nanstd(z) < 1.2
        expected = found[0][relation]["share_null"].values
        np.testing.assert_allclose(expected[~np.isnan(expected)], R / D, rtol=1e-9)


@pytest.mark.parametrize("decay", [0.0, 0.4])
def test_unrelated_weights_have_no_edges_even_with_a_common_covariance(decay: float) -> None:
    tested, false = 0, 0
    for seed in range(4):
        result = headspan.wiring(model(seed=seed, decay=decay), src="W_E,mlp", dst="heads")
        result2 = headspan.wiring(model(seed=seed, decay=decay), src="heads", dst="mlp,logits")
        for one in (result, result2):
            for relation in relations(one):
                assert list(one[relation]["null"].values) == ["peers", "rotation"]
                tested += 1
                false += int(one[relation]["n_significant"].sel(null="peers")) > 0
                assert int(one[relation]["n_strong"]) == 0
            told = [finding for finding in one.findings if finding.weight >= 0.5]
            assert len(told) <= 1
    assert tested == 32
    assert false <= 4
    if decay:  # the control that rotation fails, which is why it makes no tier
        assert int(result["W_E to Q"]["n_significant"].sel(null="rotation")) > HEADS


def test_a_neuron_level_control_finds_nothing_either() -> None:
    for decay in (0.0, 0.4):
        result = headspan.wiring(model(decay=decay), neurons="L0H2")
        assert sum(int(result[name]["n_significant"].sel(null="peers")) for name in relations(result)) <= 1


def plant(state: State) -> None:
    """W_E into the keys of L1H3, the MLP of layer 0 into the values of L2H5, L0H2 into neuron 7 of layer 1."""
    draw = torch.Generator().manual_seed(9)
    K = state["model.layers.1.self_attn.k_proj.weight"][3 * R : 4 * R]
    V = state["model.layers.2.self_attn.v_proj.weight"][5 * R : 6 * R]
    written = state["model.layers.0.self_attn.o_proj.weight"][:, 2 * R : 3 * R]
    state["model.embed_tokens.weight"] += 0.5 * torch.randn(VOCAB, R, generator=draw, dtype=torch.float64) @ K
    state["model.layers.0.mlp.down_proj.weight"] += (
        0.5 * torch.randn(MLP, R, generator=draw, dtype=torch.float64) @ V
    ).T
    state["model.layers.1.mlp.gate_proj.weight"][7] = written @ torch.randn(R, generator=draw, dtype=torch.float64)


def test_planted_edges_are_found() -> None:
    heads = model(plant)
    for src, dst, planted in (("W_E", "heads", ("W_E", "L1H3")), ("mlp", "heads", ("L0MLP", "L2H5"))):
        result = headspan.wiring(heads, src=src, dst=dst)
        everyone = pd.concat([edges(result, name) for name in relations(result)], ignore_index=True)
        out = everyone[everyone["tier"].isin(("strong", "stands out"))]
        best = out.loc[out["z"].idxmax()]
        assert (best["src_label"], best["dst_label"]) == planted
        assert planted[1] in result.findings[0].statement
        assert result.findings[0].q is not None
        assert result.findings[0].q < 1e-6
    result = headspan.wiring(heads, neurons="L0H2")
    best = edges(result, "O to gate").iloc[0]
    assert (best["dst_label"], best["tier"]) == ("L1N7", "stands out")
    assert best["score"] == pytest.approx(1.0)
    assert "L1N7 is farthest out: 100.0 % of its gate weight" in result.findings[0].statement


def test_neuron_shares_follow_their_beta_law() -> None:
    heads = model()
    result = headspan.wiring(heads, neurons="L1H4")
    assert relations(result) == ["out to Q", "out to K", "out to V", "O to gate", "O to up"]
    node, U = result["O to up"], space(heads, "O", 1, 4)
    w = heads.mlp(2).W_in[1][:, 11].numpy()
    np.testing.assert_allclose(
        node["share"].sel(src="L1H4", dst="L2N11"), np.sum((U.T @ w) ** 2) / np.sum(w**2), rtol=1e-10
    )
    assert {str(label)[:2] for label in node["dst"].values} == {"L1", "L2", "L3"}
    assert {str(label)[:2] for label in result["out to K"]["src"].values} == {"L0"}
    p = node["share_p"].sel(null="rotation").values
    assert 0.02 < (p < 0.05).mean() < 0.09


def test_work_in_slabs_and_a_scratch_file_changes_nothing() -> None:
    heads = model()
    whole = headspan.wiring(heads, src="mlp,W_E", dst="heads,mlp")
    small = headspan.wiring(heads, src="mlp,W_E", dst="heads,mlp", memory=1_500_000)
    for relation in relations(whole):
        np.testing.assert_allclose(small[relation]["share"], whole[relation]["share"], rtol=1e-10)


def test_single_precision_costs_little() -> None:
    single = headspan.wiring(model(), src="mlp,W_E", dst="heads", dtype="float32")
    for relation in relations(single):
        np.testing.assert_allclose(single[relation]["share"], plain()[relation]["share"], rtol=2e-5)


def test_rows_of_tables_come_in_blocks_as_they_are_read_whole() -> None:
    for fold in ("none", "layernorm"):
        heads = model(fold=fold)
        for name in ("W_E", "W_U"):
            blocks = list(heads.table_rows(name, 2 * 8 * D * 40))
            assert len(blocks) == 4
            table = heads.table(name)
            torch.testing.assert_close(torch.cat(blocks), table.T if name == "W_U" else table)


def test_folding_moves_the_norms_into_readers_and_the_logits() -> None:
    folded = headspan.wiring(model(), fold="layernorm", src="heads", dst="logits")
    heads = model(fold="layernorm")
    expected = share(heads.W_U.T.numpy(), space(heads, "O", 2, 0))
    np.testing.assert_allclose(folded["O to logits"]["share"].sel(src="L2H0", dst="logits"), expected, rtol=1e-10)
    stored = float(plain()["O to logits"]["share"].sel(src="L2H0", dst="logits"))
    assert abs(stored - expected) > 1e-4
    assert folded.attrs["fold"] == "layernorm"


def test_centering_removes_the_mean_row_of_a_table() -> None:
    heads = model(lambda state: state["model.embed_tokens.weight"].add_(3.0))
    centered = headspan.wiring(heads, src="W_E", dst="Q", centering="centered")
    W = heads.W_E.numpy()
    expected = share(W - W.mean(0), space(heads, "Q", 0, 1))
    np.testing.assert_allclose(centered["W_E to Q"]["share"].sel(src="W_E", dst="L0H1"), expected, rtol=1e-9)


def test_one_part_can_be_asked_for_with_q_over_its_own_edges() -> None:
    result = headspan.wiring(model(), src="L0MLP", dst="L2H5,L1H0")
    assert relations(result) == ["MLP to Q", "MLP to K", "MLP to V"]
    node = result["MLP to Q"]
    assert (list(node["src"].values), list(node["dst"].values)) == (["L0MLP"], ["L1H0", "L2H5"])
    whole = plain()["MLP to Q"].sel(src="L0MLP", dst=["L1H0", "L2H5"])
    np.testing.assert_allclose(node["share_p"].values.ravel(), whole["share_p"].values.ravel())
    p = np.sort(node["share_p"].sel(null="peers").values.ravel())
    np.testing.assert_allclose(node["share_q"].sel(null="peers").min(), min(2 * p[0], p[1], 1.0))


def test_kv_heads_of_a_grouped_model_are_nodes_of_their_own() -> None:
    result = headspan.wiring(model(kv=4))
    assert result["W_E to K"]["dst"].values[:5].tolist() == ["L0K0", "L0K1", "L0K2", "L0K3", "L1K0"]
    graph = wiring_graph(result)
    assert graph.nodes["L1K2.K"] == {"kind": "K", "layer": 1.0, "label": "L1K2", "dimension": 8.0}
    assert ("L1K2.K", "L1H7.O", "inside") in graph.edges(keys=True)
    assert headspan.wiring(model(kv=4), neurons="L2H7")["out to V"]["dst"].values.tolist() == ["L2K2"]


def test_the_graph_holds_every_part_and_can_be_walked_from_table_to_logits(tmp_path: Path) -> None:
    result = plain()
    path = result.save(tmp_path / "graph.graphml")
    graph = nx.read_graphml(path, force_multigraph=True)
    kinds = pd.Series({name: data["kind"] for name, data in graph.nodes(data=True)}).value_counts()
    assert kinds.to_dict() == {"Q": 48, "K": 48, "V": 48, "O": 48, "MLP in": 4, "MLP out": 4, "W_E": 1, "logits": 1}
    assert nx.has_path(graph, "W_E", "logits")
    edge = next(data for *_, data in graph.edges(data=True) if data["relation"] == "W_E to K")
    assert {"score", "expected", "z", "p", "q", "tier", "null"} <= set(edge)


def test_json_csv_and_netcdf_hold_the_edges(tmp_path: Path) -> None:
    result = headspan.wiring(model(), src="W_E,mlp", dst="heads,logits")
    document = json.loads(result.save(tmp_path / "graph.json").read_text())
    assert document["schema"] == "headspan.wiring/1"
    assert {row["kind"] for row in document["parts"]} == {"W_E", "MLP out", "Q", "K", "V", "logits"}
    n_edges = sum(int(result[name]["n_edges"]) for name in relations(result))
    assert len(document["edges"]) == n_edges == len(pd.read_csv(result.save(tmp_path / "graph.csv")))
    back = headspan.load(result.save(tmp_path / "graph.nc"))
    pd.testing.assert_frame_equal(edges(back, "MLP to V"), edges(result, "MLP to V"))
    assert [one.statement for one in back.findings] == [one.statement for one in result.findings]


def test_figures_draw_what_stands_out() -> None:
    result = headspan.wiring(model(plant))
    drawn = result.figures
    assert set(drawn) == {"Wiring diagram", "Heads by layer", "Tables and logits by layer", "Layer to layer"}
    arrows = {trace.name for trace in drawn["Wiring diagram"].data if trace.meta and trace.visible is True}
    assert {"W_E → L1H3.K", "L0MLP.out → L2H5.V"} <= arrows
    heat = drawn["Tables and logits by layer"].data[0]
    row = list(heat.y).index("W_E → K")
    mean = float(result["W_E to K"]["share"].isel(dst=slice(HEADS, 2 * HEADS)).mean())
    np.testing.assert_allclose(heat.customdata[row][1], mean / (R / D), rtol=1e-5)
    assert set(headspan.wiring(model(), neurons="L0H2").figures) == {"Neurons"}


def tiny(name: str) -> Any:
    case = next(case for case in CASES if case.name == name)
    return case.model(head=case.kind not in ("seeing", "comparing"))


@pytest.mark.parametrize(("name", "within"), [("gptj", False), ("gpt_neox", False), ("gpt2", True), ("bert", True)])
def test_blocks_are_drawn_as_the_model_runs_them(name: str, within: bool) -> None:
    result = headspan.wiring(tiny(name))
    found = result["O to MLP"]["share"].sel(src="L1H0", dst="L1MLP")
    assert bool(np.isfinite(found)) is within
    diagram = result.figures["Wiring diagram"]
    heights = {label: y for trace in diagram.data if trace.text for label, y in zip(trace.text, trace.y, strict=True)}
    assert (heights["L1MLP"] > 1) is within


def test_cross_attention_reads_the_decoder_through_queries_alone() -> None:
    result = headspan.wiring(tiny("t5"), stack="cross")
    assert int(result["W_E to Q"]["n_edges"]) > 0
    assert int(result["W_E to K"]["n_edges"]) == int(result["W_E to V"]["n_edges"]) == 0
    assert "O to K" not in result
    assert result.figures


@pytest.fixture(scope="module")
def crossed() -> tuple[Any, headspan.Result]:
    model = headspan.open(tiny("t5"))
    return model, headspan.wiring(model, stack="cross")


def test_an_encoder_reaches_the_keys_and_values_of_cross_attention(crossed: tuple[Any, headspan.Result]) -> None:
    model, result = crossed
    encoder, cross = (model.heads(stack=stack, dtype="float64") for stack in ("encoder", "cross"))
    written = torch.linalg.qr(encoder.whole("O")[1, 1].mT).Q
    read = torch.linalg.qr(cross.whole("K")[0, 2]).Q
    share = float((written.mT @ read).square().sum() / read.shape[1])
    assert float(result["encoder O to K"].share.sel(src="encoder.L1H1", dst="L0H2")) == pytest.approx(share, rel=1e-5)
    *_, out = encoder.mlp_matrices(1)
    share = float((out @ read).square().sum() / out.square().sum())
    assert float(result["encoder MLP to K"].share.sel(src="encoder.L1MLP", dst="L0H2")) == pytest.approx(
        share, rel=1e-5
    )
    assert not any(name.startswith("encoder") and name.endswith("to Q") for name in relations(result))
    assert np.isfinite(result["encoder W_E to V"].share).all()  # of every layer: all of the encoder comes before it


def test_an_encoder_is_drawn_beside_its_decoder_and_exported(crossed: tuple[Any, headspan.Result]) -> None:
    _, result = crossed
    graph = wiring_graph(result)
    assert graph.nodes["encoder.L1H1.O"]["kind"] == "encoder O"
    assert {relation for *_, relation in graph.edges(keys=True)} >= {"encoder O to K", "encoder MLP to V"}
    diagram = result.figures["Wiring diagram"]
    places = {text: x for trace in diagram.data if trace.text for text, x in zip(trace.text, trace.x, strict=True)}
    assert max(x for text, x in places.items() if text.startswith("encoder")) < min(
        x for text, x in places.items() if not text.startswith("encoder")
    )
    assert [trace for trace in diagram.data if trace.meta and trace.meta["src"].startswith("encoder.")]


def test_random_stacks_have_no_edge_that_stands_out(crossed: tuple[Any, headspan.Result]) -> None:
    _, result = crossed
    names = [name for name in relations(result) if name.startswith("encoder")]
    assert sum(int(result[name].n_significant[0]) for name in names) == 0
    assert not [one for one in result.findings if "encoder" in one.statement and one.weight > 0.15]


def test_an_encoder_and_its_positions_are_in_whispers_wiring() -> None:
    result = headspan.wiring(tiny("whisper"), stack="cross", src="W_pos,mlp", dst="K,V")
    assert {"encoder W_pos to K", "encoder MLP to V"} <= set(relations(result))
    assert "encoder O to K" not in result
    assert headspan.wiring(tiny("whisper"), stack="decoder", dst="K").top(1)["src"][0][:7] != "encoder"


def test_a_rotary_model_says_that_it_has_no_position_table() -> None:
    with pytest.raises(ArgumentError, match="this model has no position table: queries and keys are turned"):
        headspan.wiring(tiny("llama"), src="W_pos")


def test_shared_layers_are_passes_and_no_peers() -> None:
    result = headspan.wiring(tiny("albert"))
    assert result.attrs["n_layers"] > 1
    assert all(list(result[name]["null"].values) == ["rotation"] for name in relations(result))


def test_a_tied_table_says_nothing_of_itself() -> None:
    result = headspan.wiring(tiny("gpt2"), src="W_E", dst="logits,mlp")
    assert int(result["W_E to logits"]["n_edges"]) == 0
    assert str(result["W_E to logits"]["null_reason"].values) == "W_U is the token table itself"


def test_a_partial_checkpoint_has_the_edges_of_what_it_holds(gpt2_attention: Path) -> None:
    result = headspan.wiring(gpt2_attention, src="W_pos")
    assert relations(result) == ["W_pos to Q", "W_pos to K", "W_pos to V"]
    value = result["W_pos to V"]
    assert float(value["share"].sel(src="W_pos", dst="L0H3")) == pytest.approx(0.63569, abs=2e-5)
    assert value["n_significant"].values.tolist() == [0, 19]
    with pytest.raises(ArgumentError, match="no edge from W_E to Q, K, V is in this checkpoint, which has W_K, W_O"):
        headspan.wiring(gpt2_attention, src="W_E", dst="heads")
    with pytest.raises(HeadspanError, match="neurons need the MLP, which this checkpoint does not have"):
        headspan.wiring(gpt2_attention, neurons="L4H11")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"src": "W_U"}, "src='W_U' is no part of a wiring; write W_E, W_pos, heads, mlp, a head such as L4H11"),
        ({"dst": "W_E"}, "dst='W_E' is no part of a wiring; write heads, Q, K, V, mlp, logits"),
        ({"null": "haar"}, "null='haar' is unknown; nulls are peers, rotation"),
        ({"centering": "mean"}, "centering='mean' is unknown; it is stored or centered"),
        ({"neurons": "L9H0"}, "neurons='L9H0' is no head of this model, which has layers 0 to 1 of 8 heads"),
        ({"neurons": "L0H0", "src": "W_E"}, "src and dst have no place beside it"),
        ({"src": "L7H0"}, "L7H0 does not exist: this model has L0H0 to L1H7"),
        ({"dst": "L1H8"}, "L1H8 does not exist: this model has L0H0 to L1H7"),
        ({"src": "L2MLP"}, "L2MLP does not exist: this model has layers 0 to 1"),
        ({"top": 0}, "top = 0 asks for no edge"),
    ],
)
def test_wrong_choices_are_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message.replace(".", r"\.")):
        headspan.wiring("demo", **options)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (["--from", "W_E", "--to", "heads"], "W_E to V: q < 0.05 in 14 of 16 edges"),
        (["--from", "heads", "--to", "logits"], "O to logits"),
        (["--from", "mlp", "--to", "heads"], "MLP to K"),
        (["--neurons", "L0H3"], "O to gate"),
    ],
)
def test_every_question_is_one_command(question: list[str], answer: str) -> None:
    ran = CliRunner().invoke(app, ["wiring", "demo", *question, "--top", "3"])
    assert ran.exit_code == 0, ran.output
    assert answer in ran.output


def test_a_strong_edge_stands_out() -> None:
    q, mirror = np.array([0.01, 0.01, 0.2, 0.2, np.nan]), np.array([0.05, 0.5, 0.05, 0.5, np.nan])
    known = ~np.isnan(q)
    assert tier_names(q, mirror, known).tolist() == ["strong", "stands out", "background", "background", ""]
