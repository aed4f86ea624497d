"""A result as a person uses it: labels, tables, rankings, files, figures, sentences, and a notebook's view."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio
import pytest
import xarray as xr

import headspan
from headspan.errors import ArgumentError, HeadspanError, SchemaError
from headspan.lenses.catalog import lens
from headspan.lenses.run import labeled_result
from headspan.result import Result
from headspan.schema import Schema, Table, Variable
from tests.unit.test_drift import gpt2, noisy

COLUMNS = ["src", "dst", "score", "expected", "z", "p", "q"]


@pytest.fixture(scope="module")
def wiring() -> Result:
    return headspan.affinity("demo")


def test_the_strongest_pairs_are_one_call_away() -> None:
    found = headspan.affinity("demo", pairings="OK").top(3)
    assert list(found) == COLUMNS
    assert found[["src", "dst"]].values.tolist() == [["L0H3", "L1H6"], ["L0H3", "L1H1"], ["L0H3", "L1H3"]]
    assert found["score"].tolist() == sorted(found["score"], reverse=True)
    np.testing.assert_allclose(headspan.affinity("demo", pairings="OK", null="haar").top(3)["expected"], 16 * 16 / 128)


def test_several_pairings_are_named(wiring: Result) -> None:
    assert list(wiring.top(5)) == ["pairing", *COLUMNS]
    assert list(wiring.top(5, pairing="ok")) == COLUMNS
    assert set(wiring.top(200)["pairing"]) == {"OQ", "OK", "OV"}


@pytest.mark.parametrize("by", ["score", "z", "p", "q"])
def test_a_ranking_is_by_what_was_asked_for(wiring: Result, by: str) -> None:
    found = wiring.top(30, by=by)[by].to_numpy()
    assert (np.diff(found) >= 0).all() if by in "pq" else (np.diff(found) <= 0).all()


@pytest.mark.parametrize("metric", ["composition_score", "cs"])
def test_a_metric_has_two_names(wiring: Result, metric: str) -> None:
    best = wiring.top(1, pairing="OK", metric=metric).iloc[0]
    assert best["score"] == float(wiring["OK"].composition_score.max())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n = 0 asks for no row"),
        ({"pairing": "QQ"}, "pairing 'QQ' is not in this result; it has OQ, OK, OV"),
        ({"metric": "beauty"}, "metric 'beauty' is not known here; metrics are projection_kernel, composition_score"),
        ({"by": "src"}, "by='src' is not a column to rank by; it is one of score, expected, z, p, q"),
        ({"null": "hope"}, "null 'hope' is not in this result; it has reverse, haar"),
    ],
)
def test_a_wrong_choice_names_the_argument_and_what_is_allowed(
    wiring: Result, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        wiring.top(**options)  # type: ignore[arg-type]
    assert issubclass(ArgumentError, ValueError)


def test_a_variable_says_what_it_is(wiring: Result) -> None:
    attrs = wiring["OK"].projection_kernel.attrs
    assert {"long_name", "range", "null", "formula", "reference"} <= set(attrs)


def test_labels_choose_heads(wiring: Result) -> None:
    kernel = wiring["OK"].projection_kernel
    assert float(kernel.sel(src="L0H3", dst="L1H6")) == wiring.top(1, pairing="OK")["score"].iloc[0]
    assert float(kernel.sel(src="0.3", dst=(1, 6))) == float(kernel.sel(src="L0H3", dst="L1H6"))
    assert np.isnan(kernel.sel(src="L1H6", dst="L0H3"))


def test_a_query_head_on_an_axis_of_kv_heads_is_told_which_it_reads(stories: Path) -> None:
    kernel = headspan.affinity(stories, pairings="OK")["OK"].projection_kernel
    with pytest.raises(ArgumentError, match="dst='L3H5': this axis has kv heads, and L3H5 reads L3K2"):
        kernel.sel(dst="L3H5")
    assert kernel.sel(dst="L3K2").sizes == {"src": 40}


def test_what_is_not_in_a_result_is_refused_with_what_is(wiring: Result) -> None:
    with pytest.raises(ArgumentError, match="this affinity result has no 'QQ'; it has OQ, OK, OV"):
        wiring["QQ"]
    with pytest.raises(ArgumentError, match="table 'matrices' is not one of this result's: pairs"):
        wiring.table("matrices")


def test_the_table_holds_every_pair_with_its_null(wiring: Result) -> None:
    rows = wiring.table()
    assert len(rows) == 3 * 64
    assert {"projection_kernel", "projection_kernel_null", "projection_kernel_z", "composition_score_q"} <= set(rows)
    other = wiring.table(null="haar")
    assert not rows["projection_kernel_p"].equals(other["projection_kernel_p"])
    assert rows["projection_kernel"].equals(other["projection_kernel"])


def test_every_ending_writes_the_same_numbers(wiring: Result, tmp_path: Path) -> None:
    again = headspan.load(wiring.save(tmp_path / "a.nc"))
    for pairing in ("OQ", "OK", "OV"):
        xr.testing.assert_equal(again.dataset(pairing), wiring.dataset(pairing))
    assert float(again["OK"].projection_kernel.sel(src="0.3", dst="L1H6")) > 8
    assert again.attrs == {name: value for name, value in wiring.attrs.items() if name in again.attrs}
    assert repr(again) == repr(wiring)
    written = pd.read_csv(wiring.save(tmp_path / "a.csv"))
    np.testing.assert_allclose(written["projection_kernel"], wiring.table()["projection_kernel"], rtol=1e-12)
    document = json.loads(wiring.save(tmp_path / "a.json").read_text())
    assert document["schema"] == "headspan.affinity/2"
    assert len(document["pairs"]) == 3 * 64
    assert "<html" in wiring.save(tmp_path / "a.html").read_text()


def test_an_ending_that_nobody_writes_is_refused_before_a_file_is_made(wiring: Result, tmp_path: Path) -> None:
    with pytest.raises(HeadspanError, match="its ending is none of"):
        wiring.save(tmp_path / "a.doc")
    assert list(tmp_path.iterdir()) == []


def test_json_of_the_strongest_rows_is_short(wiring: Result) -> None:
    document = wiring.to_json(top=2)
    kernels = [row["projection_kernel"] for row in document["pairs"] if row["pairing"] == "OK"]
    assert max(kernels) == float(wiring["OK"].projection_kernel.max())
    assert len(document["pairs"]) <= 3 * 2 * 2
    json.dumps(document, allow_nan=False)


def test_the_figures_are_drawn_and_one_can_be_asked_for(wiring: Result) -> None:
    assert isinstance(wiring.show("Wiring diagram"), go.Figure)
    with pytest.raises(ArgumentError, match=r"there is no figure 'Wires' of .*; figures are Wiring diagram, "):
        wiring.show("Wires")


def displayed(subject: object, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a notebook receives, output by output."""
    outputs: list[dict[str, Any]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: outputs.append(data))
    subject._ipython_display_()  # type: ignore[attr-defined]
    return outputs


def test_a_notebook_shows_every_figure(wiring: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    gallery = wiring.show()
    outputs = displayed(gallery, monkeypatch)
    assert len(outputs) == len(gallery)
    assert repr(gallery).startswith(f"{len(gallery)} figures of affinity of demo: ")


@pytest.mark.parametrize("one", [lambda wiring: wiring, lambda wiring: wiring.show("Wiring diagram")])
def test_every_output_has_html_for_exports(
    one: Callable[[Result], Any], wiring: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = displayed(one(wiring), monkeypatch)
    assert all("text/html" in output for output in outputs)
    assert "application/vnd.plotly.v1+json" in outputs[-1], "a notebook draws it itself"


def test_the_drawing_library_stands_in_the_first_figure_alone(wiring: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headspan.notebook_views._drawn_before", False)
    first, *others = displayed(wiring.figures, monkeypatch)
    assert len(first["text/html"]) > 1e6
    assert all(len(other["text/html"]) < 2e5 for other in others)


def test_a_changed_figure_of_a_gallery_stays_changed(wiring: Result) -> None:
    gallery = wiring.figures
    gallery["Wiring diagram"].update_layout(title="mine")
    assert gallery["Wiring diagram"].layout.title.text == "mine"


def test_figures_are_pictures_where_plotly_is_told_so(wiring: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go.Figure, "to_image", lambda figure, **options: options["format"].encode())
    monkeypatch.setattr(pio.renderers, "_default_name", "png")
    outputs = displayed(wiring, monkeypatch)
    assert outputs[-1] == {"image/png": b64encode(b"png").decode()}
    assert 'src="data:image/png;base64,' in wiring._repr_html_()


def test_the_text_is_short_and_says_what_was_found(wiring: Result) -> None:
    lines = repr(wiring).split("\n")
    assert lines[0] == "<headspan affinity of demo>"
    assert 3 <= len(lines) <= 6
    assert wiring.findings[0].statement in lines[2]


def test_a_notebook_sees_a_finding_a_table_and_a_figure(wiring: Result) -> None:
    view = wiring._repr_html_()
    assert "<table" in view
    assert "plotly" in view.lower()
    assert "http://" not in view.replace("http://www.w3.org", "").replace("http://www.apache.org", "")[:2000]


def test_a_result_of_two_checkpoints_names_both() -> None:
    assert "GPT2Model in memory and GPT2Model in memory" in repr(headspan.drift(gpt2(), gpt2(noisy)))


def test_a_lens_without_figures_has_an_empty_gallery() -> None:
    found = headspan.ranks("demo")
    assert found.figures == {}
    with pytest.raises(ArgumentError, match="there is no figure 'x'"):
        found.show("x")


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({}, "its lens is ''"),
        ({"lens": "clairvoyance", "headspan_version": "9.1"}, "'clairvoyance', written by headspan 9.1"),
        ({"lens": "ranks", "schema": "headspan.ranks/99"}, "of version 99; headspan .* reads up to 2: update"),
    ],
)
def test_a_file_of_no_known_lens_is_refused_in_one_line(attrs: dict[str, str], message: str, tmp_path: Path) -> None:
    xr.Dataset(attrs=attrs).to_netcdf(tmp_path / "x.nc", engine="netcdf4")
    with pytest.raises(HeadspanError, match=message) as refusal:
        headspan.load(tmp_path / "x.nc")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("name", "message"), [("none.nc", "is not there"), ("x.csv", "is not netCDF")])
def test_what_cannot_be_loaded_is_said_in_one_line(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(HeadspanError, match=message):
        headspan.load(tmp_path / name)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.nc").write_bytes(b"not netCDF at all")
    with pytest.raises(HeadspanError, match="cannot be read as netCDF"):
        headspan.load(tmp_path / "x.nc")


def test_a_result_and_its_schema_must_agree() -> None:
    heads, ranks = headspan.open("demo").heads(), lens("ranks")
    grid = headspan.ranks(heads).grid()
    assert labeled_result(ranks, grid, heads)["rank_Q"].sizes == {"head": 16}
    with pytest.raises(SchemaError, match="holds more, which the schema does not declare"):
        labeled_result(ranks, grid.assign(more=1.0), heads)
    with pytest.raises(SchemaError, match="lacks rank_Q"):
        labeled_result(ranks, grid.drop_vars("rank_Q"), heads)
    with pytest.raises(SchemaError, match="rank_Q of the result has dims"):
        labeled_result(ranks, grid.assign(rank_Q=("layer", [1, 2])), heads)


def test_a_score_declares_what_goes_with_it() -> None:
    score = Variable("x", ("head",), "a score", derived=("null", "z", "p"))
    schema = Schema(1, {"": (score,)}, tables=(Table("heads", "", like=("x",)),), metrics=("x",))
    assert list(schema.declared("")) == ["x", "x_null", "x_z", "x_p"]
    schema.check("", {"x": ("head",), "x_null": (), "x_z": ("head",), "x_p": ("null", "head")})
    with pytest.raises(SchemaError, match="x_z of the result has dims"):
        schema.check("", {"x": ("head",), "x_null": (), "x_z": ("layer",), "x_p": ("head",)})


def test_one_row_per_head_with_the_leading_numbers(stories: Path) -> None:
    rows = headspan.table(stories)
    assert len(rows) == 5 * (8 + 4)
    assert {"head", "layer", "ranks.rank_Q", "similarity.projection_kernel"} <= set(rows)
    first = rows.set_index("head").loc["L2H5"]
    assert first["ranks.rank_Q"] == 8
    assert np.isnan(rows.set_index("head").loc["L2K1", "ranks.rank_Q"])


@pytest.mark.parametrize("opened", ["path", "model", "heads", "checkpoint", "memory", "pair"])
def test_a_lens_takes_whatever_stands_for_a_model(opened: str, stories: Path) -> None:
    from headspan.checkpoint import open_checkpoint
    from headspan.runtime import open_runnable

    module = open_runnable(stories).module
    subjects = {
        "path": str(stories),
        "model": headspan.open(stories),
        "heads": headspan.open(stories).heads(),
        "checkpoint": open_checkpoint(str(stories)),
        "memory": module,
        "pair": (module.state_dict(), module.config.to_dict()),
    }
    assert int(headspan.ranks(subjects[opened])["rank_K"].sel(kv_head="L4K3")) == 8


def test_a_model_says_what_applies(gpt2_attention: Path) -> None:
    text = repr(headspan.open(gpt2_attention))
    assert "12 layers x 12 heads" in text
    assert "applies: ranks, affinity, channels, wiring, similarity, positions, spectra" in text
    assert "W_E" in text


def test_a_model_opens_its_heads_once() -> None:
    model = headspan.open("demo")
    assert model.heads() is model.heads()
    assert model.heads(fold="layernorm") is not model.heads()


@pytest.mark.parametrize("lens", ["affinity", "channels", "wiring"])
def test_results_with_edges_are_graphs(lens: str) -> None:
    graph = getattr(headspan, lens)("demo").to_networkx()
    assert graph.is_directed()
    assert graph.number_of_edges() > 0


def test_other_results_say_that_they_are_no_graph() -> None:
    with pytest.raises(ArgumentError, match="a ranks result is not a graph"):
        headspan.ranks("demo").to_networkx()


def test_to_pandas_is_the_table() -> None:
    result = headspan.ranks("demo")
    pd.testing.assert_frame_equal(result.to_pandas(), result.table())


def test_a_misspelled_option_is_refused_and_those_there_are_are_named() -> None:
    with pytest.raises(ArgumentError, match=r"ranks has no option tolerence; its options are tolerance, .*device"):
        headspan.ranks("demo", tolerence=1e-3)  # type: ignore[call-arg]
