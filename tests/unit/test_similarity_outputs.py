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
from headspan.errors import FoldError, HeadspanError, ShapeError
from headspan.figures import figures_of, theme
from headspan.findings import findings_of
from headspan.lenses import similarity
from headspan.lenses.saving import save_result
from headspan.lenses.similarity.command import similarity as command
from tests.unit.test_similarity import columns, gpt2, tiny


def zero_head(weights: list[torch.Tensor]) -> None:
    weights[0][:, columns("Q", 0)] = 0


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    return similarity.compute(gpt2(), samples=4)


@pytest.fixture(scope="module")
def grouped() -> xr.Dataset:
    return similarity.compute(tiny("llama").heads(), samples=4)


@pytest.fixture(scope="module")
def with_zero_head() -> xr.Dataset:
    return similarity.compute(gpt2(zero_head), samples=4)


def test_the_table_has_one_row_per_head_in_degrees(result: xr.Dataset) -> None:
    rows = similarity.table(result)
    assert rows["label"].tolist() == [f"L{i}H{j}" for i in range(2) for j in range(3)]
    angles = np.degrees(result["angles_RQ_RK"].values.reshape(6, -1))
    np.testing.assert_allclose(rows["smallest_angle"], angles.min(1))
    np.testing.assert_allclose(rows["largest_angle"], angles.max(1))
    assert rows["null_dimension"].tolist() == [8] * 6


def test_json_says_null_where_a_score_is_undefined(with_zero_head: xr.Dataset) -> None:
    document = json.loads(json.dumps(similarity.as_json(with_zero_head), allow_nan=False))
    assert document["schema"] == "headspan.similarity/1"
    assert {"model", "file_hash", "fold", "tolerance", "seed", "space", "metric"} <= set(document["provenance"])
    first = document["heads"][0]
    assert first["degenerate"] is True
    assert first["grassmann"] is None
    assert first["rank_Q"] == 0
    assert [set(layer) for layer in document["layers"]] == [{"layer", "diversity", "chance", "z"}] * 2
    assert all(set(pair) == {"src", "dst", "distance", "chance", "z"} for pair in document["closest_pairs"])
    assert not any("L0H0" in (pair["src"], pair["dst"]) for pair in document["closest_pairs"])


def test_closest_pairs_are_sorted_and_fall_back_to_single_layers(result: xr.Dataset) -> None:
    pairs = similarity.closest_pairs(result, 15)
    assert len(pairs) == 15
    distances = [pair["distance"] for pair in pairs]
    assert distances == sorted(distances)
    within = similarity.closest_pairs(result.drop_vars(["distance", "distance_chance", "distance_z"]), 50)
    assert len(within) == 6
    assert {(pair["src"][:2], pair["dst"][:2]) for pair in within} == {("L0", "L0"), ("L1", "L1")}


@pytest.mark.parametrize("ending", [".nc", ".csv", ".json"])
def test_a_result_survives_a_file(result: xr.Dataset, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"result{ending}"
    save_result(result, path, table=similarity.table, as_json=similarity.as_json)
    if ending == ".nc":
        with xr.open_dataset(path, engine="h5netcdf") as read:
            xr.testing.assert_equal(read.load(), result)
            assert read.attrs["metric"] == "grassmann"
            assert read.attrs["d_model"] == 24
    else:
        assert path.stat().st_size > 500


def test_findings_name_what_departs_in_both_directions_and_give_chance(with_zero_head: xr.Dataset) -> None:
    def change(weights: list[torch.Tensor]) -> None:
        weights[0][:, columns("K", 0)] = weights[0][:, columns("Q", 0)]
        Q = torch.linalg.qr(weights[1][:, columns("Q", 1)]).Q
        K = weights[1][:, columns("K", 1)]
        weights[1][:, columns("K", 1)] = K - Q @ (Q.mT @ K)

    found = findings_of("similarity", similarity.compute(gpt2(change), maps=False))
    text = " ".join(finding.statement for finding in found)
    assert "of 1 of 6 heads overlap more than chance, those of 1 less" in text
    assert "overlap most in L0H0 (8.0), of at most 8" in text
    assert "avoid each other most in L1H1 (0.0)" in text
    assert all(finding.expected is not None and math.isfinite(finding.value) for finding in found)
    flagged = findings_of("similarity", with_zero_head)
    assert any("no query or no key space" in finding.statement and "L0H0" in finding.statement for finding in flagged)


def test_a_random_model_gives_only_remarks_about_query_and_key(result: xr.Dataset) -> None:
    first = next(f for f in findings_of("similarity", result) if "more than chance" in f.statement)
    assert "of 0 of 6 heads overlap more than chance, those of none less" in first.statement
    assert first.weight < 0.2


def test_a_model_of_one_head_has_findings_too() -> None:
    alone = similarity.compute(gpt2(n_layer=1, n_head=1, n_embd=8), samples=2)
    assert findings_of("similarity", alone) == []
    assert list(figures_of("similarity", alone)) == ["Principal angles", "Sampled directions"]


def test_figures_show_the_numbers_of_the_result(result: xr.Dataset) -> None:
    drawn = figures_of("similarity", result)
    assert list(drawn) == ["Principal angles", "Distances within layers", "Map of heads", "Sampled directions"]
    panels = drawn["Distances within layers"].data
    assert len(panels) == 2
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_array_equal(np.asarray(panels[1].z)[off], result["layer_distance"].values[1][off])
    assert np.isnan(np.asarray(panels[1].z)[~off]).all()
    bars = [trace for trace in drawn["Principal angles"].data if isinstance(trace, go.Bar)]
    np.testing.assert_array_equal(bars[2].y, result["angle_count"].sel(combination="RQ_NK"))
    dots = drawn["Map of heads"].data[0]
    assert list(dots.text) == similarity.table(result)["label"].tolist()
    assert list(dots.marker.color) == [0, 0, 0, 1, 1, 1]
    assert len(drawn["Sampled directions"].data) == 8


def test_figures_mark_chance_and_say_that_grouped_heads_are_near_by_construction(grouped: xr.Dataset) -> None:
    figure = figures_of("similarity", grouped)["Distances within layers"]
    assert any("chance" in text for text in figure.layout.coloraxis.colorbar.ticktext)
    assert "share a key" in figure.layout.title.subtitle.text


def test_figures_of_every_odd_result_can_be_written(with_zero_head: xr.Dataset, grouped: xr.Dataset) -> None:
    square = similarity.compute(gpt2(n_head=1), samples=2)
    for found in (with_zero_head, grouped, square):
        for figure in figures_of("similarity", found).values():
            assert figure.to_html(include_plotlyjs=False).rstrip().endswith("</html>")
            assert figure.layout.template.layout.font.color == theme.TEXT


def test_colours_are_pale_at_chance_and_no_longer_than_the_values() -> None:
    axis = theme.around_chance(9.0, 13.0, 14.0)
    assert (axis["cmin"], axis["cmax"]) == (9.0, 14.0)
    scale = axis["colorscale"]
    assert scale[0][1] == "rgb(0, 72, 122)"
    assert scale[16][1] == "rgb(236, 236, 236)"
    assert theme.around_chance(1.0, 2.0, 1.5)["cmax"] == 2.0
    assert theme.around_chance(0.0, 0.0, 0.0)["cmax"] == 1.0


# The command

app = typer.Typer()
app.command("similarity")(command)
app.command("other")(lambda: None)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["similarity", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_prints_unusual_heads_and_close_pairs(stories: Path) -> None:
    text = run(str(stories), "--within-layers")
    assert "Query and key spaces furthest from chance, 10 of 40 heads" in text
    assert "Closest attention spaces" in text


def test_the_command_writes_json_and_files(stories: Path, tmp_path: Path) -> None:
    document = json.loads(run(str(stories), "--json", "--metric", "chordal", "-o", str(tmp_path / "r.nc")))
    assert document["provenance"]["metric"] == "chordal"
    assert len(document["heads"]) == 40
    assert (tmp_path / "r.nc").stat().st_size > 10_000
    folded = json.loads(run(str(stories), "--json", "--fold", "layernorm", "--within-layers"))
    assert folded["provenance"]["fold"] == "layernorm"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--space", "cube"], ShapeError, "space 'cube' is unknown"),
        (["--metric", "cube"], ShapeError, "metric 'cube' is unknown"),
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
