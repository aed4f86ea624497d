"""Heads as subspaces, told: tables, JSON, files, findings, figures and the command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
import typer
import xarray as xr
from typer.testing import CliRunner

import headspan
from headspan import theme
from headspan.cli.lens_commands import lens_command
from headspan.errors import ArgumentError, HeadspanError
from headspan.labels import gridded
from headspan.lenses.similarity import LENS
from headspan.lenses.similarity.layers import closest_pairs
from tests.unit.test_similarity import columns, gpt2, quick, tiny


def zero_head(weights: list[torch.Tensor]) -> None:
    weights[0][:, columns("Q", 0)] = 0


@pytest.fixture(scope="module")
def result() -> headspan.Result:
    return quick(gpt2(), samples=4, maps=True)


@pytest.fixture(scope="module")
def grouped() -> headspan.Result:
    return quick(tiny("llama").heads(), samples=4, maps=True)


@pytest.fixture(scope="module")
def with_zero_head() -> headspan.Result:
    return quick(gpt2(zero_head), samples=4, maps=True)


def test_the_table_has_one_row_per_head_in_degrees(result: headspan.Result) -> None:
    rows = result.table()
    assert rows["head"].tolist() == [f"L{i}H{j}" for i in range(2) for j in range(3)]
    angles = np.degrees(result["angles_RQ_RK"].values)
    np.testing.assert_allclose(rows["smallest_angle"], angles.min(1))
    np.testing.assert_allclose(rows["largest_angle"], angles.max(1))
    assert rows["shared_null_dimension"].tolist() == [8] * 6


def test_the_strongest_heads_have_their_null_beside_them(result: headspan.Result) -> None:
    rows = result.top(3)
    assert list(rows) == ["head", "score", "expected", "z", "p", "q"]
    assert rows["score"].tolist() == sorted(result["projection_kernel"].values, reverse=True)[:3]


def test_json_says_null_where_a_score_is_undefined(with_zero_head: headspan.Result) -> None:
    document = json.loads(json.dumps(with_zero_head.to_json(), allow_nan=False))
    assert document["schema"] == "headspan.similarity/2"
    assert {"model", "file_hash", "fold", "tolerance", "seed", "space", "distance"} <= set(document["provenance"])
    first = document["heads"][0]
    assert first["head"] == "L0H0"
    assert first["degenerate"] is True
    assert first["grassmann"] is None
    assert first["rank_Q"] == 0
    expected = {"layer", *(f"diversity{part}" for part in ("", "_null", "_null_sd", "_z"))}
    assert all(expected <= set(layer) for layer in document["layers"])
    assert len(document["layers"]) == 2
    numbers = {f"closest_{name}" for name in ("src", "dst", "distance", "distance_null", "distance_z")}
    assert all(numbers <= set(pair) for pair in document["closest_pairs"])
    assert not any("L0H0" in (pair["closest_src"], pair["closest_dst"]) for pair in document["closest_pairs"])


def test_closest_pairs_are_sorted_and_fall_back_to_single_layers(result: headspan.Result) -> None:
    values = {str(name): one.values for name, one in gridded(result.dataset()).data_vars.items()}
    distances = closest_pairs(values, [0, 1], 15)["closest_distance"][1]
    assert len(distances) == 15
    assert distances.tolist() == sorted(distances)
    layers = {name: found for name, found in values.items() if not name.startswith("distance")}
    within = {name: found for name, (_, found) in closest_pairs(layers, [0, 1], 50).items()}
    assert len(within["closest_src"]) == 6
    places = zip(within["closest_src"], within["closest_dst"], strict=True)
    assert {(src[:2], dst[:2]) for src, dst in places} == {("L0", "L0"), ("L1", "L1")}


@pytest.mark.parametrize("ending", [".nc", ".csv", ".json"])
def test_a_result_survives_a_file(result: headspan.Result, tmp_path: Path, ending: str) -> None:
    path = result.save(tmp_path / f"result{ending}")
    if ending == ".nc":
        read = headspan.load(path)
        xr.testing.assert_equal(read.dataset(), result.dataset())
        assert read.attrs["distance"] == "grassmann"
        assert read.attrs["d_model"] == 24
        assert [found.statement for found in read.findings] == [found.statement for found in result.findings]
    else:
        assert path.stat().st_size > 500


def test_files_of_version_1_are_read(result: headspan.Result, tmp_path: Path) -> None:
    old = {new: name for name, new in LENS.schema.renamed.items()}
    today = gridded(result.dataset())
    today.attrs.pop("schema")
    stored = today.drop_vars(
        [name for name in today.data_vars if str(name).startswith(("closest", "smallest", "largest"))]
    )
    stored = stored.rename({name: old[str(name)] for name in stored.data_vars if str(name) in old})
    for name in ("layer_distance", "layer_distance_chance", "layer_distance_z"):
        stored[name] = (("layer", "src_head", "dst_head"), stored[name].values)
    path = tmp_path / "old.nc"
    stored.assign_attrs(metric=stored.attrs.pop("distance")).to_netcdf(path, engine="netcdf4")
    read = headspan.load(path)
    xr.testing.assert_allclose(read.dataset()[list(result.dataset().data_vars)], result.dataset())
    assert [found.statement for found in read.findings] == [found.statement for found in result.findings]
    assert list(read.figures) == list(result.figures)


def test_findings_name_what_departs_in_both_directions_and_what_is_expected(with_zero_head: headspan.Result) -> None:
    def change(weights: list[torch.Tensor]) -> None:
        weights[0][:, columns("K", 0)] = weights[0][:, columns("Q", 0)]
        Q = torch.linalg.qr(weights[1][:, columns("Q", 1)]).Q
        K = weights[1][:, columns("K", 1)]
        weights[1][:, columns("K", 1)] = K - Q @ (Q.mT @ K)

    found = quick(gpt2(change)).findings
    text = " ".join(finding.statement for finding in found)
    assert "overlap more than expected under the null in 1 of 6 heads, less in 1 (q < 0.01)" in text
    assert "L0H0 has the largest overlap of query and key space: 8.0 of 8 dimensions (expected 2.7" in text
    assert "L1H1 has the smallest overlap of query and key space: 0.0 of 8 dimensions" in text
    assert all(finding.expected is not None and math.isfinite(finding.value) for finding in found)
    flagged = with_zero_head.findings
    assert any("no query or no key space" in finding.statement and "L0H0" in finding.statement for finding in flagged)


def test_a_random_model_gives_only_remarks_about_query_and_key(result: headspan.Result) -> None:
    told = "In none of 6 heads do query and key space overlap more or less than random subspaces (q < 0.01)."
    found = {finding.statement: finding.weight for finding in result.findings}
    assert found[told] < 0.2
    assert not any("more than expected" in statement for statement in found)


def test_a_model_of_one_head_has_findings_too() -> None:
    alone = quick(gpt2(n_layer=1, n_head=1, n_embd=8), maps=True)
    assert alone.findings == []
    assert list(alone.figures) == ["Principal angles", "Sampled directions"]


def test_figures_show_the_numbers_of_the_result(result: headspan.Result) -> None:
    drawn = result.figures
    assert list(drawn) == ["Principal angles", "Distances within layers", "Map of heads", "Sampled directions"]
    panels = drawn["Distances within layers"].data
    assert len(panels) == 2
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_array_equal(np.asarray(panels[1].z)[off], result.grid()["layer_distance"].values[1][off])
    assert np.isnan(np.asarray(panels[1].z)[~off]).all()
    bars = [trace for trace in drawn["Principal angles"].data if isinstance(trace, go.Bar)]
    np.testing.assert_array_equal(bars[2].y, result["angle_count"].sel(combination="RQ_NK"))
    dots = drawn["Map of heads"].data[0]
    assert list(dots.text) == result["head"].values.tolist()
    assert list(dots.marker.color) == [0, 0, 0, 1, 1, 1]
    assert len(drawn["Sampled directions"].data) == 8


def test_figures_mark_the_null_and_say_that_grouped_heads_are_near_by_construction(grouped: headspan.Result) -> None:
    figure = grouped.figures["Distances within layers"]
    assert any("expected" in text for text in figure.layout.coloraxis.colorbar.ticktext)
    assert "share a key" in figure.layout.title.subtitle.text


def test_figures_of_every_odd_result_can_be_written(with_zero_head: headspan.Result, grouped: headspan.Result) -> None:
    square = quick(gpt2(n_head=1), maps=True)
    for found in (with_zero_head, grouped, square):
        for figure in found.figures.values():
            assert figure.to_html(include_plotlyjs=False).rstrip().endswith("</html>")
            assert figure.layout.template.layout.font.color == theme.TEXT


def test_colors_are_pale_at_the_null_and_no_longer_than_the_values() -> None:
    axis = theme.around_chance(9.0, 13.0, 14.0)
    assert (axis["cmin"], axis["cmax"]) == (9.0, 14.0)
    scale = axis["colorscale"]
    assert scale[0][1] == "rgb(0, 72, 122)"
    assert scale[16][1] == "rgb(236, 236, 236)"
    assert theme.around_chance(1.0, 2.0, 1.5)["cmax"] == 2.0
    assert theme.around_chance(0.0, 0.0, 0.0)["cmax"] == 1.0


# The command

app = typer.Typer()
app.command("similarity")(lens_command(LENS))
app.command("other")(lambda: None)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["similarity", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_prints_unusual_heads_and_close_pairs(stories: Path) -> None:
    text = run(str(stories), "--within-layers")
    assert "Query and key spaces furthest from the null, 10 of 40 heads" in text
    assert "Closest attention spaces" in text


def test_the_command_writes_json_and_files(stories: Path, tmp_path: Path) -> None:
    document = json.loads(run(str(stories), "--json", "--metric", "chordal", "-o", str(tmp_path / "r.nc")))
    assert document["provenance"]["distance"] == "chordal"
    assert len(document["heads"]) == 40
    assert "mds" not in document
    assert "mds" in headspan.load(tmp_path / "r.nc")
    folded = json.loads(run(str(stories), "--json", "--fold", "layernorm", "--within-layers"))
    assert folded["provenance"]["fold"] == "layernorm"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--space", "cube"], ArgumentError, "space='cube' is unknown"),
        (["--metric", "cube"], ArgumentError, "distance='cube' is unknown"),
        (["--fold", "cube"], ArgumentError, "fold='cube' is unknown"),
        (["-o", "result.xls", "--within-layers"], HeadspanError, "cannot write 'result.xls'"),
    ],
)
def test_the_command_refuses_what_it_does_not_know(
    stories: Path, arguments: list[str], error: type[HeadspanError], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(str(stories), *arguments)


def test_a_missing_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(headspan.errors.HeadspanError, match="nowhere"):
        run(str(tmp_path / "nowhere"))
