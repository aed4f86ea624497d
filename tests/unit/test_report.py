"""The report as a page: what stands on it, in which order, and that text from files stays text."""

from __future__ import annotations

import base64
import gzip
import json
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs

import headspan
from headspan.errors import ArgumentError, DegenerateSubspace, HeadspanError, TimeLimit
from headspan.explorer import reports
from headspan.explorer.component import FILES, component_source
from headspan.explorer.figure_block import figure_blocks
from headspan.explorer.findings_section import NOTHING, SHOWN, finding_block, findings_list, skipped_line, top_findings
from headspan.explorer.html import asset, element, linked_text
from headspan.explorer.reports import Settings, write_report
from headspan.finding import Finding
from headspan.lenses.catalog import lens as lens_of
from headspan.lenses.catalog import lenses
from headspan.result import Lens, Result
from tests.browser.page_elements import Element, asks_nothing, page_elements

NO_TRANSFORMERS = "running a model needs transformers: pip install 'headspan[run]'"
HOSTILE = '</script><script>alert(1)</script><img src="http://example.org/x.png">'


@pytest.fixture(scope="module")
def demo_html(demo_report: Path) -> str:
    return demo_report.read_text()


def scripts(html: str) -> list[Element]:
    return [found for found in page_elements(html) if found.tag == "script"]


def test_the_page_asks_nothing_of_the_network(demo_html: str) -> None:
    assert asks_nothing(demo_html)


@pytest.mark.parametrize(
    "addition",
    [
        '<img src="x.png">',
        '<a href="https://example.org">x</a>',
        "<style>@import 'x'</style>",
        '<script src="x"></script>',
    ],
)
def test_the_network_check_sees_a_request(demo_html: str, addition: str) -> None:
    assert not asks_nothing(demo_html.replace("</main>", f"{addition}</main>"))


DATA = ("application/json", "text/plain")


def running_scripts(html: str) -> list[str]:
    return [found.text.strip() for found in scripts(html) if found.attributes.get("type") not in DATA]


OURS = [(component_source() + asset("library.js") + asset("page_home.js")).strip(), asset("theme.js").strip()]


def test_plotly_comes_from_the_installed_package_and_stands_once_packed(demo_html: str) -> None:
    (packed,) = [found.text for found in scripts(demo_html) if found.attributes.get("id") == "plotly"]
    assert gzip.decompress(base64.b64decode(packed)).decode() == get_plotlyjs()
    assert running_scripts(demo_html) == OURS


def test_every_script_of_the_component_is_used_and_none_holds_a_handler_in_markup(demo_html: str) -> None:
    folder = resources.files("headspan.explorer").joinpath("assets")
    own = {file.name for file in folder.iterdir() if file.name.endswith(".js")}
    assert own == {*FILES, "library.js", "page_home.js", "notebook_home.js", "theme.js", "start_figures.js"}
    assert not any(name.startswith("on") for found in page_elements(demo_html) for name in found.attributes)
    assert not any("innerHTML" in asset(name) for name in own)


def test_nothing_can_be_sent_to_plotly(demo_html: str) -> None:
    assert "showSendToCloud: false" in demo_html
    assert 'plotlyServerURL: ""' in demo_html


def part_of(html: str, name: str) -> str:
    return html.split(f'<section id="{name}" class="lens">')[1].split("</section>")[0]


def test_every_lens_that_applies_has_a_section_that_unfolds(demo_html: str) -> None:
    for name in (name for name, lens in lenses().items() if not lens.on_request and lens.subjects == 1):
        part = part_of(demo_html, name)
        assert "<details" in part
        assert part.split("<details")[0].count("<figure") <= 1
    # The component draws the wiring, so the page does not carry it as a figure.
    assert part_of(demo_html, "affinity").count("<figure") == 4


def test_a_finding_is_told_once(demo_html: str) -> None:
    top = [
        found.text
        for found in page_elements(demo_html.split('class="ranked"')[1].split("</ol>")[0])
        if found.tag == "li"
    ]
    assert 3 <= len(top) <= SHOWN
    for finding in headspan.affinity("demo").findings:
        assert demo_html.count(str(linked_text(finding.statement))) == 1


@pytest.mark.slow
def test_without_transformers_a_report_has_everything_that_needs_no_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr("headspan.lenses.model.Model.run_obstacle", lambda *_: NO_TRANSFORMERS)
    page = write_report(headspan.open("demo"), tmp_path / "report.html").read_text(encoding="utf-8")
    for name, lens in lenses().items():
        expected = not lens.runs and lens.subjects == 1 and not lens.on_request
        assert (f'<section id="{name}" class="lens">' in page) == expected
    assert "running a model needs transformers: pip install &#x27;headspan[run]&#x27;" in page


def test_links_lead_to_sections_of_the_page(demo_html: str) -> None:
    elements = page_elements(demo_html)
    identifiers = {found.attributes["id"] for found in elements if "id" in found.attributes}
    links = {found.attributes["href"][1:] for found in elements if found.tag == "a"}
    links = {link for link in links if not link.startswith("head=")}
    assert "similarity-map-of-heads" in links, "the contents go down to figures"
    always = {name for name, lens in lenses().items() if not lens.on_request and lens.subjects == 1}
    assert always <= identifiers
    assert links <= identifiers


def test_sections_stand_in_reading_order(demo_html: str) -> None:
    chapters = [
        f"chapter-{name}" for name in ("wiring", "head-similarity", "positions-and-tokens", "spectra", "behavior")
    ]
    order = ("findings", "diagram", *chapters, "methods", "downloads")
    identifiers = [found.attributes.get("id") for found in page_elements(demo_html)]
    places = [identifiers.index(name) for name in order]
    assert places == sorted(places)
    assert len(set(identifiers)) == sum(name is not None for name in identifiers) + 1, "no id stands twice"


def test_a_lens_that_takes_minutes_is_left_out_and_the_page_says_so(demo_html: str, tmp_path: Path) -> None:
    assert 'id="validate"' not in demo_html
    assert "takes minutes; use --also validate" in demo_html
    with pytest.raises(HeadspanError, match="there is no lens 'nonsense'"):
        write_report(headspan.open("demo"), tmp_path / "report.html", Settings(also=("nonsense",)))


def test_a_lens_of_chosen_heads_has_no_place_in_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ranks(model: object, head: str) -> None:
        pytest.fail("nothing may be computed")

    monkeypatch.setattr("headspan.lenses.ranks.ranks", ranks)
    with pytest.raises(ArgumentError, match="also='ranks': a report cannot choose its head; run it by itself"):
        write_report(headspan.open("demo"), tmp_path / "report.html", Settings(also=("ranks",)))


def test_findings_of_all_lenses_are_ranked_together() -> None:
    found = [Finding(lens, f"{lens} {weight}", value=1.0, weight=weight) for lens in "ab" for weight in (0.6, 0.9, 0.8)]
    items = [item.text.strip() for item in page_elements(str(findings_list(top_findings(found)))) if item.tag == "li"]
    assert items == ["a 0.9", "b 0.9", "a 0.8", "b 0.8"], "at most two of one lens"
    told = [Finding("a", f"q {q}", value=1.0, weight=0.8, q=q) for q in (1e-3, 1e-9)]
    assert [one.statement for one in top_findings(told)] == ["q 1e-09", "q 0.001"], "of equal weight the surest first"
    many = [Finding(f"lens{i}", f"number {i}", value=1.0, weight=0.9) for i in range(SHOWN + 3)]
    assert len(top_findings(many)) == SHOWN


def test_only_what_is_significant_stands_at_the_top() -> None:
    told = {"p": 0.01, "q": 0.2}, {"p": 0.2}, {"p": 0.01}, {"q": 0.01}, {}
    found = [Finding(f"lens{i}", f"number {i}", value=1.0, weight=0.9, **given) for i, given in enumerate(told)]
    assert [finding.statement for finding in top_findings(found)] == ["number 2", "number 3", "number 4"]
    assert top_findings([Finding("a", "a remark", value=1.0, weight=0.2)]) == []
    alone, others = found[2], [Finding("b", f"b{i}", value=1.0, p=0.3 + i / 40, weight=0.9) for i in range(19)]
    assert top_findings([alone]) == [alone]
    assert top_findings([alone, *others]) == [], "one of twenty tests below 0.05 is what an untrained model gives"
    assert NOTHING in str(findings_list([]))


def test_what_was_skipped_is_one_line() -> None:
    reasons = {
        "attention": "no W_E",
        "detect": "no W_E",
        "positions": "rotary",
        "validate": "takes minutes",
        "ranks": None,
    }
    shown = [(found.tag, found.text) for found in page_elements(str(skipped_line(reasons)))]
    assert shown[1:3] == [("summary", "Skipped 3 analyses"), ("span", ": no W_E")]
    assert [text for tag, text in shown if tag == "li"] == ["attention, detect: no W_E.", "positions: rotary."]
    assert skipped_line({"ranks": None, "validate": "takes minutes"}) is None


def test_a_finding_shows_its_p_once_and_its_reference() -> None:
    finding = Finding("ranks", "S.", value=2.5, expected=1.0, p=0.004, evidence="E.", reference="arXiv 1")
    shown = '<p class="evidence"><span class="whole">p = 0.004.</span> E. Reference: arXiv 1.</p>'
    assert shown in str(finding_block(finding))
    assert "p &lt; 1e-300</span>." in str(finding_block(replace(finding, p=0.0)))
    said = replace(finding, statement="S (p = 0.004).")
    assert '<p class="evidence">E. Reference: arXiv 1.</p>' in str(finding_block(said))
    plain = replace(finding, expected=None, p=None, reference="")
    assert '<p class="evidence">E.</p>' in str(finding_block(plain))


def test_text_in_a_figure_cannot_leave_its_data() -> None:
    figure = go.Figure(go.Scatter(x=[1], y=[2], text=[HOSTILE], name=HOSTILE), layout={"title": {"text": HOSTILE}})
    (block,) = figure_blocks({f"{HOSTILE} of it": figure})
    elements = page_elements(str(block))
    assert [found.tag for found in elements] == ["figure", "div", "h4", "p", "div", "div", "script"]
    assert json.loads(elements[-1].text)[""]["data"][0]["text"] == [HOSTILE]
    assert (elements[2].text, elements[3].text) == (f"{HOSTILE} of it", HOSTILE)


def test_a_title_that_only_repeats_the_name_is_not_told_twice() -> None:
    figure = go.Figure(layout={"title": {"text": "Mean cosine by depth"}})
    (repeated,) = figure_blocks({"Mean cosine by depth": figure})
    (other,) = figure_blocks({"Mean cosine": figure})
    assert (str(repeated).count("<p"), str(other).count("<p")) == (0, 1)


def test_a_figure_follows_the_page_in_width_and_colour() -> None:
    figure = go.Figure(go.Scatter(x=[1], y=[2]), layout={"width": 300, "height": 222, "paper_bgcolor": "white"})
    (block,) = figure_blocks({"name": figure})
    layout = json.loads(page_elements(str(block))[-1].text)[""]["layout"]
    assert "width" not in layout
    assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"
    assert "height: 186px" in str(block)
    assert figure.layout.width == 300, "the figure itself is left as it was"


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Reports that look for some lenses alone."""
    reasons = {name: None if name in names else "left out here" for name in lenses() if lens_of(name).subjects == 1}
    monkeypatch.setattr("headspan.lenses.model.Model.skip_reasons", lambda model, stack=None: dict(reasons))


def test_a_page_without_figures_does_not_bring_plotly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "ranks")
    html = write_report(headspan.open("demo"), tmp_path / "report.html").read_text()
    assert running_scripts(html) == OURS
    assert 'id="plotly"' not in html
    assert "full rank" in html


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (DegenerateSubspace("all heads are zero"), "all heads are zero"),
        (HeadspanError("tensor holds NaN"), "tensor holds NaN"),
        (TimeLimit("stopped after 3 s, its time limit"), "stopped after 3 s, its time limit"),
    ],
)
def test_a_lens_that_fails_says_so_in_its_chapter(
    problem: HeadspanError, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "affinity")

    def broken(*_: object, **__: object) -> None:
        raise problem

    monkeypatch.setattr(reports, "run", broken)
    html = write_report(headspan.open("demo"), tmp_path / "report.html").read_text()
    assert f"<p>Not computed: {told}.</p>" in html
    assert f"<td>skipped: {told}</td>" in html


def test_a_bug_in_one_lens_costs_only_its_chapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = reports.run

    def broken(lens: Lens, *more: object, **rest: object) -> Result:
        if lens.name == "affinity":
            raise IndexError("a mistake")
        return real(lens, *more, **rest)  # type: ignore[arg-type]

    only(monkeypatch, "affinity", "ranks")
    monkeypatch.setattr(reports, "run", broken)
    with pytest.warns(UserWarning, match="affinity failed: IndexError: a mistake"):
        html = write_report(headspan.open("demo"), tmp_path / "report.html").read_text()
    assert "failed with an internal error (IndexError: a mistake)" in html
    assert "full rank" in html


def test_a_lens_that_takes_too_long_costs_only_its_chapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "spectra")
    html = write_report(headspan.open("demo"), tmp_path / "report.html", Settings(time_limit=0.001)).read_text()
    assert "stopped after 0.001 s, its time limit" in html


def test_attributes_are_written_the_html_way() -> None:
    assert str(element("p", "a<b", class_="x", aria_label='"')) == '<p class="x" aria-label="&quot;">a&lt;b</p>'


# What a report computes with other options than the command's


OTHERWISE = [each for each in map(lens_of, lenses()) if each.report_options]


@pytest.mark.parametrize("lens", OTHERWISE, ids=lambda lens: lens.name)
def test_options_of_a_report_are_named_in_its_chapter_and_understood_by_the_command(lens: Lens, demo_html: str) -> None:
    named = [f"--{name} {value}" for name, value in lens.report_options.items()]
    line = f"headspan {lens.name} {' '.join(named)}"
    assert line in demo_html
    assert lens.function("demo", **lens.report_options).lens is lens


def test_a_report_holds_what_its_options_give() -> None:
    model = headspan.open("demo")
    found: list[Result] = []
    settings = Settings(watch=found.append)
    reports._stack_parts(model, None, settings, None, lambda title: None)
    results = {result.lens.name: result for result in found}
    assert results["similarity"].attrs["distance"] == "chordal"
    shown, own = results["similarity"].dataset(), headspan.similarity(model, distance="chordal").dataset()
    np.testing.assert_array_equal(shown["distance"], own["distance"])
