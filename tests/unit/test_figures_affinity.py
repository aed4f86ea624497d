"""The figures of the affinity lens, tested as data: what is drawn, where, and what it says when pointed at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from sklearn.metrics import average_precision_score

import headspan
from headspan.dims import HeadLabel
from headspan.errors import ArgumentError
from headspan.explorer.figure_block import figure_blocks
from headspan.lenses.affinity import score_figures
from headspan.lenses.affinity.class_detection import ANY, class_curves
from headspan.lenses.affinity.figure_layout import ellipse_places
from headspan.lenses.affinity.figures import alternatives, figures, hub_ranking, score_distributions
from headspan.lenses.affinity.score_figures import affinity_matrices, kernel_against_score
from headspan.lenses.affinity.wiring import edges
from headspan.lenses.affinity.wiring_figure import wiring_diagram
from headspan.lenses.wiring_layout import arrow_curve, bow_curve
from headspan.result import Result
from tests.unit.test_affinity import tiny

ALL = [
    "Wiring diagram",
    "Wiring around an ellipse",
    "Kernel against composition score",
    "All pairs",
    "Scores and their nulls",
    "Hubs",
]
CLASSES = {"L4H7": "Identity", "L4H11": "Previous Token", "L5H1": "Induction", "L6H9": "Induction"}


@pytest.fixture(scope="module")
def gpt2(gpt2_attention: Path) -> Result:
    return headspan.affinity(gpt2_attention)


@pytest.fixture(scope="module")
def grouped(stories: Path) -> Result:
    return headspan.affinity(stories)


@pytest.fixture(scope="module")
def demo() -> Result:
    return headspan.affinity("demo")


def arrows(figure: go.Figure) -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.meta is not None]


def dots(figure: go.Figure) -> list[str]:
    """Labels of all heads drawn, with or without an arrow."""
    return [label for trace in figure.data if trace.meta is None and trace.text is not None for label in trace.text]


def check_lengths(trace: Any) -> None:
    if trace.type == "heatmap":
        across, up = np.shape(trace.z)[1], np.shape(trace.z)[0]
        assert len(trace.x) in (across, across + 1)
        assert len(trace.y) in (up, up + 1)
    else:
        assert len(trace.x) == len(trace.y)
    for name in ("text", "customdata"):
        if trace[name] is not None and trace.type != "heatmap":
            assert len(trace[name]) == len(trace.x), (trace.name, name)
    if trace.type == "scatter":
        for values in (trace.marker.size, trace.marker.symbol, trace.line.backoff):
            assert not isinstance(values, tuple | list | np.ndarray) or len(values) == len(trace.x)


def test_the_diagram_draws_twenty_pairs_of_each_pairing(gpt2: Result) -> None:
    drawn = [trace.meta["pairing"] for trace in arrows(wiring_diagram(gpt2))]
    assert len(drawn) == 60
    assert {pairing: drawn.count(pairing) for pairing in ("OQ", "OK", "OV")} == {"OQ": 20, "OK": 20, "OV": 20}
    assert len(arrows(wiring_diagram(gpt2, top=5))) == 15


def test_the_strongest_pair_is_drawn_with_its_numbers(gpt2: Result) -> None:
    best = edges(gpt2, "OK").iloc[0]
    strongest = max(arrows(wiring_diagram(gpt2)), key=lambda trace: trace.meta["score"])
    assert (strongest.meta["src"], strongest.meta["dst"], strongest.meta["pairing"]) == ("L4H11", "L5H1", "OK")
    assert strongest.meta["score"] == best["score"]
    for part in (
        "L4H11 → L5H1</b> (OK, strong)",
        "projection kernel 39.33",
        "two-way null: expected 5.637",
        "reverse null: expected 5.618, p = 0.00063",
        "haar null: expected 5.333",
    ):
        assert part in strongest.hovertemplate
    assert f"q = {best['q_reverse']:.2g}" in strongest.hovertemplate


def test_stronger_pairs_are_drawn_wider_and_darker(gpt2: Result) -> None:
    figure = wiring_diagram(gpt2, top=60)
    tier = {
        (pairing, edge["src"], edge["dst"]): edge["tier"]
        for pairing in ("OQ", "OK", "OV")
        for edge in edges(gpt2, pairing, top=60).to_dict("records")
    }
    drawn = {name: [] for name in ("strong", "stands out", "background")}
    for trace in sorted(arrows(figure), key=lambda trace: trace.meta["score"]):
        drawn[tier[trace.meta["pairing"], trace.meta["src"], trace.meta["dst"]]].append(trace)
    assert all(drawn.values())
    for traces in drawn.values():
        widths, opacities = [trace.line.width for trace in traces], [trace.opacity for trace in traces]
        assert widths == sorted(widths)
        assert opacities == sorted(opacities)
    ends = [[trace.line.width for trace in traces] for traces in drawn.values()]
    assert min(ends[0]) > max(ends[1]) >= min(ends[1]) >= max(ends[2])
    assert {trace.visible for trace in drawn["background"]} == {"legendonly"}
    assert {trace.visible for trace in drawn["strong"]} == {True}
    assert [trace.name for trace in figure.data if trace.legendgroup == "background" and trace.showlegend is None] == [
        "background pairs"
    ]


def test_arrows_start_at_the_writer_and_end_beside_the_reader(gpt2: Result) -> None:
    for trace in arrows(wiring_diagram(gpt2)):
        src, dst = HeadLabel.parse(trace.meta["src"]), HeadLabel.parse(trace.meta["dst"])
        assert (trace.x[0], trace.y[0]) == (src.head, src.layer)
        assert 0 < np.hypot(trace.x[-1] - dst.head, trace.y[-1] - dst.layer) < 0.5


def test_every_head_is_drawn_once(gpt2: Result) -> None:
    labels = dots(wiring_diagram(gpt2))
    assert len(labels) == len(set(labels)) == 144
    ellipse = dots(wiring_diagram(gpt2, layout="ellipse"))
    assert len(ellipse) == len(set(ellipse)) == 52


def test_a_kv_head_is_drawn_once_under_the_middle_of_its_group(grouped: Result) -> None:
    figure = wiring_diagram(grouped)
    labels = dots(figure)
    assert len(labels) == len(set(labels)) == 5 * 8 + 5 * 4
    ends = {trace.meta["dst"][2] for trace in arrows(figure) if trace.meta["pairing"] in ("OK", "OV")}
    assert ends == {"K"}
    places = {
        label: (x, y)
        for trace in figure.data
        if trace.meta is None and trace.text is not None
        for label, x, y in zip(trace.text, trace.x, trace.y, strict=True)
    }
    assert places["L3K1"][0] == (places["L3H2"][0] + places["L3H3"][0]) / 2
    assert places["L2H0"][1] < places["L3K1"][1] < places["L3H2"][1]


def test_one_click_in_the_legend_hides_a_pairing(gpt2: Result) -> None:
    figure = wiring_diagram(gpt2)
    assert all(trace.legendgroup == trace.meta["pairing"] and not trace.showlegend for trace in arrows(figure))
    entries = {trace.legendgroup: trace.name for trace in figure.data if trace.legendgroup and trace.meta is None}
    assert entries == {"OQ": "OQ: output to query", "OK": "OK: output to key", "OV": "OV: output to value"}


def test_classes_are_colored_and_named(gpt2: Result) -> None:
    traces = {trace.name: trace for trace in wiring_diagram(gpt2, CLASSES).data if trace.legend == "legend2"}
    assert list(traces) == ["Identity", "Previous Token", "Induction", "no class"]
    assert traces["Induction"].text == ("L5H1", "L6H9")
    assert len({trace.marker.color for trace in traces.values()}) == 4
    assert all(trace.showlegend for trace in traces.values())
    plain = [trace for trace in wiring_diagram(gpt2).data if trace.legend == "legend2"]
    assert not any(trace.showlegend for trace in plain)


def test_class_names_cannot_bring_markup(gpt2: Result) -> None:
    hostile = {"L4H7": '<a href="https://example.org">x</a>\n'}
    for figure in (wiring_diagram(gpt2, hostile), hub_ranking(gpt2, hostile)):
        assert "<a " not in figure.to_json().replace("\\u003c", "<")
        assert "&lt;a href" in figure.to_json()


def test_an_unknown_layout_is_refused(gpt2: Result) -> None:
    with pytest.raises(ArgumentError, match="layout='star' is unknown; layouts are grid, ellipse"):
        wiring_diagram(gpt2, layout="star")


def test_both_scores_are_cut_off_where_the_paper_reads_them(gpt2: Result) -> None:
    figure = kernel_against_score(gpt2)
    texts = [note.text for note in figure.layout.annotations if note.text[0].isdigit()]
    assert texts == ["12.3", "0.063", "10.8", "0.062", "10.4", "0.057"]
    counts = [trace.customdata.sum() for trace in figure.data if trace.type == "heatmap"]
    assert counts == [9504, 9504, 9504]
    assert not any(trace.type == "scattergl" for trace in figure.data)


def test_pairs_at_the_top_of_both_scores_are_named(gpt2: Result) -> None:
    both = [trace for trace in kernel_against_score(gpt2).data if trace.name == "top by both"]
    assert "L4H11 → L5H1" in both[1].text
    assert [trace.showlegend for trace in both] == [True, False, False]


def test_few_pairs_are_all_drawn_as_points(demo: Result) -> None:
    figure = kernel_against_score(demo)
    assert all(trace.type == "scatter" for trace in figure.data)
    assert sum(len(trace.x) for trace in figure.data) == 3 * 64


def test_pairs_that_cannot_compose_stay_blank(gpt2: Result, grouped: Result) -> None:
    for result, shape in ((gpt2, (144, 144)), (grouped, (40, 20))):
        panel = affinity_matrices(result).data[1]
        assert np.shape(panel.z) == shape
        src = np.array([HeadLabel.parse(label).layer for label in panel.y])
        dst = np.array([HeadLabel.parse(label).layer for label in panel.x])
        assert np.array_equal(np.isnan(panel.z), src[:, None] >= dst[None, :])
        assert panel.hoverongaps is False


def test_source_is_up_and_destination_across(gpt2: Result) -> None:
    panel = affinity_matrices(gpt2).data[1]
    score = panel.z[panel.y.index("L4H11"), panel.x.index("L5H1")]
    assert score == pytest.approx(edges(gpt2, "OK").iloc[0]["score"], rel=1e-6)


def test_the_color_bar_names_the_expected_score(gpt2: Result) -> None:
    bar = affinity_matrices(gpt2).layout.coloraxis.colorbar
    assert "5.33 expected" in bar.ticktext
    assert len(bar.tickvals) == len(bar.ticktext)


def test_many_heads_are_shown_by_layer(gpt2: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_figures, "MOST_HEADS", 100)
    figure = affinity_matrices(gpt2)
    assert np.shape(figure.data[1].z) == (12, 12)
    assert np.nanmax(figure.data[1].z) == pytest.approx(edges(gpt2, "OK").iloc[0]["score"], rel=1e-6)
    assert "pair of layers" in figure.layout.title.text


def test_distributions_integrate_to_one_and_the_null_peaks_at_its_mean(gpt2: Result) -> None:
    bars, outline, law = score_distributions(gpt2).data[:3]
    for trace in (bars, outline):
        assert np.nansum(trace.y) * bars.width == pytest.approx(1, abs=1e-5)
    assert law.x[np.argmax(law.y)] == pytest.approx(64 * 64 / 768, abs=1e-4)
    assert np.max(law.y) == pytest.approx(1 / (0.10796 * np.sqrt(2 * np.pi)), rel=1e-3)


def test_the_first_hub_is_the_longest_known_one(gpt2: Result) -> None:
    figure = hub_ranking(gpt2, CLASSES)
    assert [trace.name.split(":")[0] for trace in figure.data] == ["outlet", "inlet"]
    assert all(len(trace.y) == 15 for trace in figure.data)
    assert figure.data[0].y[-1] == "L4H7 (Identity)"


@pytest.mark.parametrize("name", ["gpt2", "grouped", "demo"])
def test_no_trace_has_parts_of_different_lengths(name: str, request: pytest.FixtureRequest) -> None:
    drawn = figures(request.getfixturevalue(name))
    assert list(drawn) == (ALL if name != "demo" else ALL[:-1]), "a model of two layers has no hub"
    for figure in drawn.values():
        assert figure.layout.title.text
        assert figure.layout.width is None
        for trace in figure.data:
            if trace.name is None or ":" not in trace.name or trace.type == "bar":
                check_lengths(trace)


@pytest.mark.parametrize("metrics", ["pk", "cs"])
@pytest.mark.parametrize("pairings", ["OK", "OQ,OV"])
def test_parts_of_a_result_are_drawn_too(metrics: str, pairings: str, stories: Path) -> None:
    result = headspan.affinity(stories, pairings=pairings, metrics=metrics)
    drawn = figures(result)
    assert "Kernel against composition score" not in drawn
    assert len(arrows(drawn["Wiring diagram"])) == 20 * len(pairings.split(","))
    assert len(drawn["All pairs"].data) == len(pairings.split(","))


def test_curves_of_classes_are_those_of_their_heads_largest_affinity() -> None:
    result = headspan.affinity(tiny("gpt2"), metrics="pk")
    classes = {"L0H0": "a", "L1H2": "a", "L1H0": "b", "L9H9": "nowhere"}
    by_target = {curve.target: curve for curve in class_curves(result, classes)}
    assert set(by_target) == {"a", "b", ANY}
    labels = [f"L{layer}H{head}" for layer in range(2) for head in range(3)]
    largest = []
    for label in labels:
        sides = {"src": label}, {"dst": label}
        kernels = [result[p]["projection_kernel"].sel(side).values for p in ("OQ", "OK", "OV") for side in sides]
        largest.append(max(np.nanmax(k) if not np.isnan(k).all() else -1 for k in kernels))
    truth = [label in ("L0H0", "L1H2") for label in labels]
    assert by_target["a"].average_precision == pytest.approx(average_precision_score(truth, largest))
    assert by_target["a"].base_rate == pytest.approx(2 / 6)
    assert by_target[ANY].base_rate == pytest.approx(3 / 6)


def test_curves_are_drawn_where_there_are_classes() -> None:
    result = headspan.affinity(tiny("gpt2"), metrics="pk")
    assert "Classes found by affinity" not in figures(result)
    drawn = figures(result, {"L0H0": "<b>bold</b>"})["Classes found by affinity"]
    assert drawn.data[0].name == "&lt;b&gt;bold&lt;/b&gt;"[:24]
    np.testing.assert_allclose(drawn.data[0].y, class_curves(result, {"L0H0": "x"})[0].precision)


def test_figures_of_one_score_are_offered_for_either(demo: Result, stories: Path) -> None:
    found = alternatives(demo)
    assert list(found) == ["Wiring diagram", "Wiring around an ellipse", "All pairs", "Scores and their nulls"]
    drawn = figures(demo)
    for name, by_metric in found.items():
        assert list(by_metric) == ["projection_kernel", "composition_score"]
        assert by_metric["projection_kernel"] == drawn[name]
        assert by_metric["composition_score"] != drawn[name]
    assert alternatives(headspan.affinity(stories, metrics="pk", draws=2)) == {}


def test_pairings_that_do_not_compose_are_drawn_too(stories: Path) -> None:
    result = headspan.affinity(stories, pairings="QQ,KK,KV,VK")
    drawn = figures(result)
    assert "Hubs" not in drawn
    assert len(drawn["All pairs"].data) == 4
    assert {trace.meta["src"][2] for trace in arrows(drawn["Wiring diagram"])} == {"H", "K"}


def test_a_large_model_does_not_make_a_large_page(gpt2: Result) -> None:
    assert sum(len(str(block)) for block in figure_blocks(figures(gpt2, CLASSES))) < 2e6


def test_heads_around_the_ellipse_are_equally_far_apart() -> None:
    places = np.array(list(ellipse_places([f"L{layer}H0" for layer in range(40)], aspect=1.5).values()))
    steps = np.hypot(1.5 * np.diff(places[:, 0]), np.diff(places[:, 1]))
    assert steps.max() / steps.min() < 1.01
    assert np.allclose(np.hypot(*places.T), 1)


def test_an_arrow_stops_at_the_edge_of_its_dot() -> None:
    curve = arrow_curve(bow_curve((0.0, 0.0), (10.0, 5.0), 0.1), (60.0, 50.0), radius=17.0, tip=10.0)
    from_end = np.hypot(*((curve - np.array([10, 5])) * np.array([60, 50])).T)
    assert from_end[-1] == pytest.approx(17, abs=1.5)
    assert from_end[-2] == pytest.approx(27, abs=1.5)
