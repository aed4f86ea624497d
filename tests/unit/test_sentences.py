"""Numbers within sentences: p-values, q-values and shares as a reader meets them."""

from __future__ import annotations

import re

import pytest

from headspan.finding import percent, significance
from headspan.lenses.catalog import lens, lenses

CLOSED = re.compile(r"\d%")
"""A share without the space before its sign."""


@pytest.mark.parametrize(
    ("share", "digits", "signed", "text"),
    [(0.05, 1, False, "5.0 %"), (1.0, 0, False, "100 %"), (0.0021, 2, True, "+0.21 %"), (-0.5, 0, True, "-50 %")],
)
def test_a_share_is_written_with_a_space_before_its_sign(share: float, digits: int, signed: bool, text: str) -> None:
    assert percent(share, digits, signed=signed) == text


def test_a_value_below_what_a_float_holds_is_bounded_and_one_that_is_unknown_is_undefined() -> None:
    assert significance("q", 0.0) == "q < 1e-300"
    assert significance("p", 0.0301) == "p = 0.03"
    assert significance("p", float("nan")) == "p undefined"


@pytest.mark.parametrize(
    "name", [name for name in lenses() if lens(name).reads_weights_alone and lens(name).subjects == 1]
)
def test_findings_write_shares_in_one_way(name: str) -> None:
    chosen = lens(name)
    found = chosen.function("demo").findings
    told = [text for finding in found for text in (finding.statement, finding.evidence)]
    assert told
    assert [text for text in told if CLOSED.search(text)] == []
