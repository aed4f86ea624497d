"""Results in a notebook: figures and a short text for any of them, one line for what is not a result."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go
import pytest
import xarray as xr

import headspan
from headspan.errors import HeadspanError, ShapeError
from headspan.figures import figures_of
from headspan.lenses import affinity, drift, ranks, similarity
from tests.unit.test_drift import gpt2, noisy


@pytest.fixture(scope="module")
def wiring() -> xr.DataTree:
    return affinity.compute(gpt2())


def test_the_figures_are_those_of_the_report(wiring: xr.DataTree) -> None:
    gallery, expected = headspan.show(wiring), figures_of("affinity", wiring)
    assert list(gallery) == list(expected)
    for name, figure in expected.items():
        assert gallery[name].to_json() == figure.to_json()


def test_one_figure_can_be_asked_for(wiring: xr.DataTree) -> None:
    assert isinstance(headspan.show(wiring, "Wiring diagram"), go.Figure)
    with pytest.raises(ShapeError, match=r"there is no figure 'Wires' of .*; figures are Wiring diagram, "):
        headspan.show(wiring, "Wires")


def test_a_notebook_shows_every_figure(wiring: xr.DataTree, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[go.Figure] = []
    monkeypatch.setattr(go.Figure, "show", lambda figure: shown.append(figure))
    gallery = headspan.show(wiring)
    gallery._ipython_display_()
    assert shown == list(gallery.values())
    assert repr(gallery).startswith(f"{len(gallery)} figures of affinity of GPT2Model in memory (headspan ")


def test_the_text_is_short_and_says_what_was_found(wiring: xr.DataTree) -> None:
    text = headspan.describe(wiring)
    lines = text.split("\n")
    assert lines[0].startswith("affinity of GPT2Model in memory")
    assert lines[1] == "  3 parts: OQ, OK, OV"
    assert lines[2].startswith("  1. What L0H")
    assert len(lines) <= 9
    assert repr(text) == str(text)


def test_xarrays_own_classes_are_extended_not_changed(wiring: xr.DataTree) -> None:
    before = repr(wiring)
    assert repr(wiring.headspan) == headspan.describe(wiring)
    assert list(wiring.headspan.show()) == list(headspan.show(wiring))
    assert wiring.headspan.findings[0].lens == "affinity"
    assert repr(wiring) == before
    assert "angle" in repr(similarity.compute(gpt2(), maps=False, samples=2).headspan)


def test_a_result_of_two_checkpoints_names_both() -> None:
    assert "GPT2Model in memory to GPT2Model in memory" in headspan.describe(drift.compute(gpt2(), gpt2(noisy)))


def test_a_result_read_from_a_file_is_shown_as_it_was(wiring: xr.DataTree, tmp_path: Path) -> None:
    wiring.to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "x.nc", engine="h5netcdf") as stored:
        assert headspan.describe(stored) == headspan.describe(wiring)
        assert list(headspan.show(stored)) == list(headspan.show(wiring))


def test_a_lens_without_figures_says_so() -> None:
    result = ranks.compute(gpt2())
    with pytest.raises(HeadspanError, match="the ranks lens draws nothing"):
        headspan.show(result)
    assert "full rank" in headspan.describe(result)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (xr.Dataset(), "does not say which lens made it"),
        ([1, 2], "a result is a Dataset or DataTree of xarray, found list"),
        (
            xr.Dataset(attrs={"lens": "clairvoyance", "headspan_version": "9.1"}),
            "'clairvoyance', written by headspan 9.1",
        ),
        (xr.Dataset(attrs={"lens": "../x"}), "knows ranks, affinity"),
        (xr.Dataset(attrs={"lens": "similarity", "headspan_version": "0.0.1"}), "written by headspan 0.0.1 and lacks"),
    ],
)
def test_what_is_not_a_result_of_this_version_is_refused_in_one_line(result: object, message: str) -> None:
    for reader in (headspan.show, headspan.describe):
        with pytest.raises(HeadspanError, match=message) as refusal:
            reader(result)
        assert "\n" not in str(refusal.value)
