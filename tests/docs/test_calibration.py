"""The page of false-positive rates: every topic is on it, and with another seed no p-value breaks its word."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from pkgutil import iter_modules

import pytest

import docs.calibration
from docs.make_calibration import DRAWS, PAGE, sections
from headspan.lenses.catalog import lenses

TOPICS = {module.name for module in iter_modules(docs.calibration.__path__)} - {"rows", "models"}


def test_the_page_is_made_of_every_topic() -> None:
    assert set(DRAWS) == TOPICS
    assert list(sections(PAGE.read_text())) == list(DRAWS)


def declared_p_values(lens: str) -> set[str]:
    """p-values that a lens's schema declares, and q-values that stand without theirs."""
    nodes = lenses()[lens].schema.nodes.values()
    names = {one.name for variables in nodes for variable in variables for one in variable.family()}
    p = {name for name in names if name.endswith("_p") and not name.endswith("_log_p")}
    return p | {name for name in names if name.endswith("_q") and f"{name.removesuffix('_q')}_p" not in p}


@pytest.mark.parametrize("lens", sorted(lenses()))
def test_every_p_value_of_a_lens_has_a_topic_that_measures_it(lens: str) -> None:
    covered = {name for topic in TOPICS for name in import_module(f"docs.calibration.{topic}").COVERS.get(lens, ())}
    assert declared_p_values(lens) - covered == set()


def test_no_topic_claims_a_p_value_that_is_gone() -> None:
    for topic in TOPICS:
        for lens, names in import_module(f"docs.calibration.{topic}").COVERS.items():
            told = {name for name in names if name != "head_alignment_p"}
            assert told - declared_p_values(lens) == set(), topic


def test_the_page_shows_an_own_null_of_every_test_within_twice_its_level() -> None:
    lines = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if "| own null |" in line]
    assert len(lines) > 20
    for test, _, _, *cells in lines:
        for level, cell in zip((0.05, 0.01, 0.001), cells[:3], strict=True):
            low = float(cell.split("[")[1].split(",")[0])
            assert low <= 2 * level, (test, cell)


@pytest.mark.slow
@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_no_p_value_breaks_its_word_under_its_own_null(topic: str) -> None:
    """A third of the page's draws. About a hundred rates: one may lie above its level by chance, none above twice."""
    rates = import_module(f"docs.calibration.{topic}").rates
    # Topics whose draws cost much leave out the stress nulls here, which are on the page alone.
    own_alone = {"stress": False} if "stress" in signature(rates).parameters else {}
    own = [row for row in rates(1, max(DRAWS[topic] // 3, 5), **own_alone) if row["null"] == "own null"]
    assert own
    assert [row for row in own if row["low"] > 2 * row["level"]] == []
