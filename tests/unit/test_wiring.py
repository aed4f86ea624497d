"""Graphs, hubs, classes, robustness and tokens: each against its definition on small models."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
import xarray as xr
from sklearn.metrics import average_precision_score

import headspan
from headspan.errors import ArgumentError, HeadspanError
from headspan.heads.classes import head_classes, published_classes
from headspan.lenses.affinity.class_detection import (
    class_counts,
    class_hubs,
    edge_detection,
    head_detection,
    weighted_average_precision,
)
from headspan.lenses.affinity.robustness import basis_sensitivity, fold_robustness
from headspan.lenses.affinity.wiring import communities, edges, hub_scores, ranked_hubs, wiring_graph
from headspan.lenses.graph import write_graphml
from headspan.result import Result
from tests.families.tiny_models import CASES
from tests.unit.test_affinity import planted, untrained


@pytest.fixture(scope="module")
def result() -> Result:
    return headspan.affinity(untrained(layers=4), draws=2)


@pytest.fixture(scope="module")
def grouped() -> Result:
    return headspan.affinity(untrained(layers=4, heads=6, kv=2), draws=2)


def test_the_graph_holds_the_strongest_edges_of_each_pairing(result: Result) -> None:
    graph = wiring_graph(result, top=5)
    for pairing in ("OQ", "OK", "OV"):
        expected = edges(result, pairing).head(5)
        drawn = {(s, d): data["score"] for s, d, key, data in graph.edges(keys=True, data=True) if key == pairing}
        assert drawn == {(row.src, row.dst): row.score for row in expected.itertuples()}
    assert all(data["layer"] == int(name[1]) for name, data in graph.nodes(data=True))


def test_edges_can_be_chosen_by_score_and_by_significance(result: Result) -> None:
    everything = wiring_graph(result, top=None, above=0.0)
    assert everything.number_of_edges() == 3 * 6 * 36
    strong = wiring_graph(result, top=None, above=0.9)
    assert 0 < strong.number_of_edges() < 3 * 6 * 36
    assert min(score for _, _, score in strong.edges(data="score")) >= 0.9
    found = headspan.affinity(planted([((0, 1), (3, 2))]), draws=2)
    assert wiring_graph(found).graph["null"] == "reverse"
    significant = wiring_graph(found, top=None, q_below=1e-6, null="haar")
    assert list(significant.edges(keys=True)) == [("L0H1", "L3H2", "OK")]
    with pytest.raises(ArgumentError, match="a wiring graph needs a limit"):
        wiring_graph(result, top=None)
    with pytest.raises(ArgumentError, match="null='uniform' is unknown; nulls are two-way, reverse, haar"):
        wiring_graph(result, null="uniform")


def test_graphml_can_be_read_back(result: Result, tmp_path: Path) -> None:
    graph = wiring_graph(result, top=4, classes={"L0H0": "first"})
    write_graphml(graph, tmp_path / "wiring.graphml")
    back = nx.read_graphml(tmp_path / "wiring.graphml", force_multigraph=True)
    assert set(back.nodes) == set(graph.nodes)
    scores = [
        {(src, dst, data["pairing"]): data["score"] for src, dst, data in g.edges(data=True)} for g in (back, graph)
    ]
    assert scores[0] == pytest.approx(scores[1])


def test_communities_are_the_parts_that_hang_together() -> None:
    graph = nx.MultiDiGraph()
    for src, dst in (("L0H0", "L1H0"), ("L1H0", "L2H0"), ("L0H1", "L1H1")):
        graph.add_edge(src, dst, score=1.0)
    assert communities(graph) == [["L0H0", "L1H0", "L2H0"], ["L0H1", "L1H1"]]
    assert communities(nx.MultiDiGraph()) == []


@pytest.mark.parametrize("which", ["result", "grouped"])
def test_hub_scores_are_their_definition(which: str, request: pytest.FixtureRequest) -> None:
    tree = request.getfixturevalue(which)
    found = {name: hub_scores(tree, name) for name in ("excess", "kernel", "degree")}
    for layer, head in ((1, 0), (2, 5)):
        inlets, outlets = [], []
        for pairing in ("OQ", "OK", "OV"):
            node = tree.grid(pairing)
            group = 6 // node.sizes["dst_head"]
            kernel, expected = node["projection_kernel"].values, float(node["projection_kernel_mean_null"])
            inlets.append((np.nanmean(kernel[:, :, layer, head // group]), expected))
            outlets.append((np.nanmean(kernel[layer, head]), expected))
        plain = np.mean([value for value, _ in inlets]), np.mean([value for value, _ in outlets])
        excess = [np.mean([max(v - c, 0) for v, c in side]) for side in (inlets, outlets)]
        scores = {name: float(hubs["hub_score"].sel(head=f"L{layer}H{head}")) for name, hubs in found.items()}
        assert scores["kernel"] == pytest.approx(sum(plain))
        assert scores["excess"] == pytest.approx(np.sqrt(excess[0] * excess[1]))
    graph = wiring_graph(tree)
    outgoing = sum(1 for src, _ in graph.edges() if src == "L1H0")
    assert float(found["degree"]["outlet"].sel(head="L1H0")) == outgoing


def test_heads_without_incoming_or_outgoing_pairs_rank_last(result: Result) -> None:
    table = ranked_hubs(hub_scores(result))
    undefined = table[table["hub_score"].isna()]["head"]
    assert set(undefined.str[:2]) == {"L0", "L3"}
    assert table["hub_score"].isna().to_numpy()[-len(undefined) :].all()
    assert result["hub_rank"].sel(head=table["head"][0]) == 1
    assert int(result["n_ranked"]) == len(table) - len(undefined)
    with pytest.raises(ArgumentError, match="definition='rank' of a hub is unknown"):
        hub_scores(result, "rank")


def test_class_members_are_found_among_the_hubs(result: Result) -> None:
    hubs = hub_scores(result)
    ranked = ranked_hubs(hubs)["head"].tolist()
    table = class_hubs(hubs, {"a": ["L1H3", "L2H0"], "b": ["L1H3"], "elsewhere": ["L9H9"]})
    assert {(row["class"], row["head"]): row["rank"] for row in table.to_dict("records")} == {
        ("a", "L1H3"): ranked.index("L1H3") + 1,
        ("a", "L2H0"): ranked.index("L2H0") + 1,
        ("b", "L1H3"): ranked.index("L1H3") + 1,
    }


def labels_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "labels.yaml"
    path.write_text(text)
    return path


def test_labels_from_a_file_are_read_in_every_spelling(tmp_path: Path) -> None:
    heads = untrained(layers=4)
    found = head_classes(labels_file(tmp_path, "classes:\n  a: [L0H1, '1.2']\n  b: [l3h5, 1.2]\n"), heads)
    assert found.classes == {"a": ("L0H1", "L1H2"), "b": ("L3H5", "L1H2")}
    assert found.of_head["L1H2"] == "a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("classes:\n  a: [L0H9]\n", r"class 'a' names L0H9, but the model has layers 0\.\.3 and heads 0\.\.5"),
        ("classes:\n  a: [L7H0]\n", r"class 'a' names L7H0, but the model has layers"),
        ("classes:\n  a: [head one]\n", r"'head one' is not a head"),
        ("classes:\n  a: L0H1\n", r"class 'a' needs a list of heads"),
        ("heads: 3\n", r"need a map 'classes'"),
        ("classes: {}\n", r"need a map 'classes'"),
        ("[1, 2", r"is not valid YAML"),
        ("!!python/object/apply:os.mkdir ['x']", r"is not valid YAML"),
        ("model: {n_layers: 12}\nclasses: {a: [L0H1]}\n", r"are for another model: this one has n_layers 4, not 12"),
    ],
)
def test_labels_that_do_not_fit_are_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(HeadspanError, match=message):
        head_classes(labels_file(tmp_path, text), untrained(layers=4))


def test_published_labels_fit_gpt2_only(gpt2_attention: Path) -> None:
    gpt2 = headspan.open(gpt2_attention).heads()
    assert len(head_classes("ioi", gpt2).of_head) == 26
    assert published_classes(gpt2) is not None
    assert published_classes(headspan.ranks(gpt2_attention).attrs) == published_classes(gpt2)
    assert published_classes(untrained()) is None
    with pytest.raises(HeadspanError, match="labels 'ioi' are for another model"):
        head_classes("ioi", untrained())
    with pytest.raises(HeadspanError, match=r"give a YAML file, or one of ioi, 2601\.10266"):
        head_classes("nowhere.yaml", gpt2)


def test_planted_classes_are_detected_and_random_ones_are_not(tmp_path: Path) -> None:
    pairs = [((0, 1), (3, 2)), ((1, 0), (2, 5)), ((2, 4), (5, 0)), ((0, 3), (4, 4))]
    heads = planted(pairs)
    tree = headspan.affinity(heads, draws=2)
    text = "classes: {source: [L0H1, L1H0, L2H4, L0H3], target: [L3H2, L2H5, L5H0, L4H4], other: [L1H1, L2H2, L3H3]}"
    classes = head_classes(labels_file(tmp_path, text), heads)
    found = {(d.target, d.metric, d.score): d for d in head_detection(tree, classes)}
    best = found["source", "projection_kernel", "largest"]
    assert best.average_precision > 0.45 > 4 * best.base_rate
    assert found["other", "projection_kernel", "largest"].average_precision < 0.3
    (edge,) = (
        d
        for d in edge_detection(tree, classes, [("source", "target")])
        if "(OK)" in d.target and d.metric == "projection_kernel"
    )
    # Four planted pairs among the sixteen or fewer that join the two classes: all of them stand at the very top.
    assert edge.average_precision >= 4 / edge.positives > 9 * edge.base_rate
    assert edge.low <= edge.average_precision <= edge.high
    counts = class_counts(tree, classes, top=4).set_index("metric")
    here = counts.loc["projection_kernel"]
    assert here["in_class"] + here["out_of_class"] == here["nodes"]


def test_weighted_average_precision_is_sklearns() -> None:
    generator = np.random.default_rng(0)
    truth, scores = generator.random(50) < 0.3, generator.random(50)
    weights = generator.integers(0, 4, size=(6, 50)).astype(float)
    order = np.argsort(-scores)
    ours = weighted_average_precision(truth[order], weights[:, order])
    expected = [average_precision_score(truth, scores, sample_weight=row) for row in weights]
    np.testing.assert_allclose(ours, expected)


def test_folding_robustness_says_what_a_model_does_not_admit() -> None:
    llama = fold_robustness(untrained(layers=3), ("OQ",))
    assert llama["spearman"].notnull().any(("pairing", "metric")).values.tolist() == [True, False]
    assert "RMSNorm" in llama["left_out"].sel(change="folded and centered").item()
    assert llama["left_out"].sel(change="folded").item() == ""
    bert = next(case for case in CASES if case.name == "bert").model()
    table = fold_robustness(headspan.open(bert).heads(), ("OQ",))
    assert table["spearman"].isnull().all()
    assert (table["left_out"] != "").all()


def test_a_gain_of_one_changes_nothing() -> None:
    heads = untrained(layers=3)
    state = dict(heads.checkpoint.store.read(list(heads.checkpoint.store.infos)))
    flat = {name: torch.ones_like(t) if "norm" in name else t for name, t in state.items()}
    table = fold_robustness(headspan.open((flat, dict(heads.checkpoint.config.fields))).heads(), ("OQ", "OK"), top=10)
    assert np.allclose(table["spearman"].sel(change="folded"), 1.0)
    assert (table["top_overlap"].sel(change="folded") == 10).all()


def test_the_kernel_does_not_see_how_its_basis_is_made() -> None:
    table = basis_sensitivity(untrained(layers=3), ["OK"]).sel(pairing="OK")
    full = table.sel(directions=8)
    assert full["largest_change"] < 1e-12
    assert full["top_overlap"] == 20
    assert (np.diff(table["spearman"]) < 0.05).all()
    with pytest.raises(ArgumentError, match=r"kept=\[0\] has no number of directions in 1\.\.8"):
        basis_sensitivity(untrained(layers=3), ["OK"], kept=[0])


def test_everything_about_a_pair_is_that_of_all_pairs(stories: Path) -> None:
    """Through K and V of a grouped model the kv head is meant that the head reads."""
    result = headspan.channels(stories, "L1H2", "3.5", pairings="OQ,OV", draws=50)
    whole = headspan.affinity(stories, draws=2)
    for pairing, dst in (("OQ", "L3H5"), ("OV", "L3K2")):
        node, at = result["pair"][pairing], {"src": "L1H2", "dst": dst}
        for metric in ("projection_kernel", "composition_score"):
            scores = whole[pairing][metric]
            assert float(node[metric]) == float(scores.sel(at))
            assert int(node[f"{metric}_rank"]) == 1 + int((scores > float(node[metric])).sum())
            for part in ("null", "null_sd", "z", "p", "q"):
                np.testing.assert_array_equal(node[f"{metric}_{part}"], whole[pairing][f"{metric}_{part}"].sel(at))
        cosines = np.cos(np.radians(node["angle"].values))
        assert (cosines**2).sum() == pytest.approx(float(node["projection_kernel"]))
    assert result.table("angles")["pairing"].nunique() == 2


def test_classes_robustness_and_sensitivity_are_nodes_of_the_result(stories: Path, tmp_path: Path) -> None:
    labels = labels_file(tmp_path, "source: mine\nclasses: {a: [L0H1, L1H2, L2H3], b: [L3H3, L4H0]}\n")
    result = headspan.affinity(stories, labels=str(labels), robustness=True, sensitivity=True, top=5, draws=2)
    classes = head_classes(labels, headspan.open(stories).heads())
    counts = result.table("classes").set_index("metric")
    assert counts.equals(class_counts(result, classes, top=5).set_index("metric"))
    found = head_detection(result, classes)
    rows = result.table("detection")
    assert len(rows[rows["question"] == "head"]) == len(found)
    assert rows["average_precision"][0] == found[0].average_precision
    hubs = result.table("class_hubs")
    assert set(hubs["head"]) == set(classes.of_head)
    assert set(result.table("robustness")["change"]) == {"folded"}
    assert set(result.table("sensitivity")["directions"]) == {8, 4, 2, 1}
    assert result.attrs["labels"] == "mine"


def test_results_of_version_1_are_read(tmp_path: Path) -> None:
    """A file as the first version wrote it: scores by axis `metric`, grids of layers and heads."""
    whole = headspan.affinity(untrained(layers=3), pairings="OK", null="haar", draws=2)
    grid = whole.grid("OK")
    pairs = ["src_layer", "src_head", "dst_layer", "dst_head"]
    old = {"projection_kernel": "pk", "composition_score": "cs"}
    summary = {"n_pairs": "n_pairs", "mean": "mean", "mean_low": "mean_low", "mean_high": "mean_high", "std": "sd"}
    summary |= {"chance_mean": "mean_null", "chance_std": "sd_null", "direction": "direction"}
    summary |= {"direction_p_value": "direction_p", "direction_ks": "direction_ks"}
    node = xr.Dataset(
        {
            **{name: grid[name] for name in old},
            "anticausal_kernel": grid["projection_kernel_reverse"],
            "anticausal_score": grid["composition_score_reverse"],
            "p_value": (["metric", "null", *pairs], np.stack([grid[f"{name}_p"].values for name in old])),
            "q_value": (["metric", "null", *pairs], np.stack([grid[f"{name}_q"].values for name in old])),
            **{o: ("metric", [float(grid[f"{name}_{new}"]) for name in old]) for o, new in summary.items()},
            "kl": ("metric", [float(grid["projection_kernel_kl"]), np.nan]),
            **{name: grid[name] for name in ("normalized_kernel", "src_rank", "dst_rank")},
        },
        coords={"src_layer": [0, 1, 2], "dst_layer": [0, 1, 2], "metric": ["pk", "cs"], "null": ["haar", "anticausal"]},
        attrs={"pairing": "OK", "src_kv": 0, "dst_kv": 0},
    ).drop_vars(["src_head", "dst_head"])
    attrs = {**{k: v for k, v in whole.attrs.items() if k not in ("schema", "n_layers")}, "lens": "affinity"}
    path = tmp_path / "old.nc"
    xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), "/OK": node}).to_netcdf(path, engine="netcdf4")
    found = headspan.load(path)
    for name in ("projection_kernel", "projection_kernel_q", "composition_score_reverse", "composition_score_sd_null"):
        np.testing.assert_array_equal(found["OK"][name], whole["OK"][name])
    for name in ("projection_kernel_z", "projection_kernel_null"):
        np.testing.assert_allclose(found["OK"][name], whole["OK"][name])
    assert found.top(3)[["src", "dst"]].equals(whole.top(3)[["src", "dst"]])
    assert found.findings
    assert "Wiring diagram" in found.figures
