"""What the page of comparisons says of a package that is installed here is so."""

from __future__ import annotations

import inspect
from importlib.metadata import version

import pytest

from tests.docs.pages import DOCS

PAGE = (DOCS / "comparison.md").read_text(encoding="utf-8")


def test_the_page_names_the_version_of_peft_that_was_looked_at() -> None:
    assert f"PEFT](https://github.com/huggingface/peft) ({version('peft')})" in PAGE


def test_peft_finds_intruders_by_a_threshold_and_shrinks_them_without_a_test() -> None:
    from peft.tuners.lora.intruders import reduce_intruder_dimension

    options = inspect.signature(reduce_intruder_dimension).parameters
    assert options["threshold_epsilon"].default == pytest.approx(0.5)
    assert "mitigation_lambda" in options, "it changes the adapter"
    source = inspect.getsource(reduce_intruder_dimension)
    assert "p_value" not in source
    assert "null" not in source


def test_the_page_names_the_versions_of_the_others() -> None:
    for tool in ("TransformerLens 4.3.0", "WeightWatcher 0.7.7", "nnsight 0.8.1", "BertViz 1.4.1"):
        assert f"**{tool}**" in PAGE
