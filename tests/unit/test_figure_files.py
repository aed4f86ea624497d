"""Figures as image files: names, sizes, themes, and what is refused. One test draws with a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import plotly.graph_objects as go
import pytest
from typer.testing import CliRunner

from headspan.cli.main import app
from headspan.errors import HeadspanError
from headspan.explorer import figure_files
from headspan.explorer.figure_files import PRINTED_SCALE, WIDTH, write_figure_files
from headspan.theme import printed, styled
from tests.unit.test_report import only


def figure() -> go.Figure:
    drawn = styled(go.Figure(go.Scatter(y=[1, 3, 2])), "A title", 400)
    return drawn.update_layout(
        updatemenus=[{"buttons": [{"label": "x", "method": "restyle", "args": ["visible", True]}]}]
    )


def pretend(monkeypatch: pytest.MonkeyPatch, draw) -> None:
    import kaleido

    monkeypatch.setattr(kaleido, "write_fig_from_object_sync", draw)


def test_a_printed_figure_has_its_own_paper_and_nothing_to_click() -> None:
    original = figure()
    light, dark = printed(original), printed(original, dark=True)
    assert (light.layout.paper_bgcolor, dark.layout.paper_bgcolor) == ("#FFFFFF", "#14171A")
    assert light.layout.font.color != dark.layout.font.color
    assert light.layout.updatemenus == ()
    assert original.layout.paper_bgcolor is None
    assert len(original.layout.updatemenus) == 1


def test_a_real_browser_draws_them_at_journal_width(tmp_path: Path) -> None:
    (path,) = write_figure_files({("affinity", "Wiring diagram"): figure()}, tmp_path / "new" / "folder")
    assert path.name == "affinity-wiring-diagram.svg"
    svg = path.read_text(encoding="utf-8")
    width, height = (float(re.search(rf'{side}="([\d.]+)"', svg)[1]) for side in ("width", "height"))
    assert width == pytest.approx(WIDTH * PRINTED_SCALE) == pytest.approx(680)
    assert height == pytest.approx(400 * PRINTED_SCALE, abs=1)
    assert "A title" in svg
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_all_files_appear_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(specs: list, kopts: dict) -> None:
        specs[0]["path"].write_text("drawn")
        raise RuntimeError("The browser seemed to close\nimmediately")

    pretend(monkeypatch, half)
    with pytest.raises(HeadspanError, match=r"did not draw the figures \(The browser seemed to close\).*BROWSER_PATH"):
        write_figure_files({("a", "x"): figure(), ("a", "y"): figure()}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_figure_left_undrawn_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, lambda specs, kopts: None)
    with pytest.raises(HeadspanError, match=r"left 1 figures undrawn, such as a-x.svg"):
        write_figure_files({("a", "x"): figure()}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_fetched_for_mathematics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict] = []

    def draw(specs: list, kopts: dict) -> None:
        asked.append(kopts)
        specs[0]["path"].write_text("drawn")

    pretend(monkeypatch, draw)
    write_figure_files({("a", "x"): figure()}, tmp_path, "png")
    assert asked == [{"mathjax": False}]


def test_what_cannot_be_written_is_refused_before_anything_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {("a", "x"): figure()}
    with pytest.raises(HeadspanError, match="cannot be written as 'gif'; formats are svg, png, pdf"):
        write_figure_files(figures, tmp_path, "gif")
    (tmp_path / "file").write_text("")
    with pytest.raises(HeadspanError, match="it is a file; name a folder"):
        write_figure_files(figures, tmp_path / "file")
    with pytest.raises(HeadspanError, match=r"cannot write figures to 'aa.*: .*name too long"):
        write_figure_files(figures, Path("a" * 5000))
    monkeypatch.setattr(figure_files, "find_spec", lambda name: None)
    with pytest.raises(HeadspanError, match=r"pip install 'headspan\[images\]'"):
        write_figure_files(figures, tmp_path)


def test_no_figures_make_no_folder(tmp_path: Path) -> None:
    assert write_figure_files({}, tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


def drawn_by(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], go.Figure]:
    """What a command would write as image files."""
    given: dict[tuple[str, str], go.Figure] = {}
    monkeypatch.setattr(
        figure_files, "write_figure_files", lambda figures, folder, form, dark: [given.update(figures) or folder]
    )
    CliRunner().invoke(app, arguments, catch_exceptions=False)
    return given


def class_names(diagram: go.Figure) -> set[str]:
    return {name for trace in diagram.data for name in str(trace.name or "").split(", ")}


def test_image_files_have_the_classes_that_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "classes.yaml").write_text("classes: {listener: [L1H6]}\n")
    options = ["--labels", str(tmp_path / "classes.yaml"), "--figures", str(tmp_path / "out")]
    drawn = drawn_by(["affinity", "demo", *options], monkeypatch)
    assert "listener" in class_names(drawn["affinity", "Wiring diagram"])


@pytest.mark.slow
def test_image_files_of_a_report_have_the_classes_of_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "affinity", "detect")
    options = ["-o", str(tmp_path / "r.html"), "--figures", str(tmp_path / "out")]
    drawn = drawn_by(["report", "demo", *options], monkeypatch)
    assert "induction" in class_names(drawn["affinity", "Wiring diagram"])
