"""Every lens and its schema: what is declared is there, what is there is declared, and what is made from it works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

import headspan
from headspan.errors import SchemaError
from headspan.frames import nodes_of
from headspan.lenses.catalog import lens, lenses
from headspan.result import Result
from headspan.schema import DERIVED

QUICK: dict[str, dict[str, Any]] = {
    "affinity": {"draws": 10},
    "similarity": {"samples": 5},
    "gaussian": {"sequences": 8, "length": 16},
    "mixing": {"sequences": 4, "length": 12, "draws": 2},
    "validate": {"count": 1, "length": 10, "strong": 1, "random": 1, "group": 3, "permutations": 99},
    "detect": {"length": 12, "batch": 2},
    "drift": {"draws": 3},
    "compare": {"draws": 3},
    "vocabulary": {"draws": 50},
}
"""Options with which a lens is quick; what a lens needs beyond the model is in `SUBJECTS`."""
SUBJECTS = {
    "channels": ("demo", "L0H3", "L1H6"),
    "drift": ("demo", "synthetic"),
    "compare": ("demo", "synthetic"),
}
by_lens = pytest.mark.parametrize("name", lenses())
_results: dict[str, Result] = {}


def noisy_demo() -> tuple[dict[str, Any], Any]:
    """The demo model with other weights, in memory."""
    import torch

    from headspan.runtime import open_runnable

    module = open_runnable("demo").module
    torch.manual_seed(0)
    state = {key: value + 0.05 * value.std() * torch.randn_like(value) for key, value in module.state_dict().items()}
    return state, module.config.to_dict()


def result_of(name: str) -> Result:
    """The lens on the demo model, computed once."""
    if name not in _results:
        subjects = [noisy_demo() if each == "synthetic" else each for each in SUBJECTS.get(name, ("demo",))]
        _results[name] = lens(name).function(*subjects, **QUICK.get(name, {}))
    return _results[name]


@by_lens
def test_a_result_holds_what_its_schema_declares(name: str) -> None:
    result = result_of(name)
    for node, dataset in nodes_of(result.data).items():
        found = {str(key): tuple(map(str, one.dims)) for key, one in dataset.data_vars.items()}
        result.lens.schema.check(node, found)
        with pytest.raises(SchemaError, match="which the schema does not declare"):
            result.lens.schema.check(node, {**found, "surprise": ()})
        needed = [key for key, one in result.lens.schema.declared(node).items() if not one.optional]
        if needed:
            with pytest.raises(SchemaError, match=f"lacks {needed[0]}"):
                result.lens.schema.check(node, {key: dims for key, dims in found.items() if key != needed[0]})


@by_lens
def test_every_variable_says_what_it_is_and_what_it_is_compared_with(name: str) -> None:
    for variables in lens(name).schema.nodes.values():
        for variable in variables:
            assert variable.long_name, variable.name
            assert variable.range, variable.name
            assert set(variable.derived) <= set(DERIVED)
            if {"p", "z", "q", "null"} & set(variable.derived):
                assert variable.null, f"{name}: {variable.name} has no null"


@by_lens
def test_every_variable_of_a_result_carries_its_words(name: str) -> None:
    for dataset in nodes_of(result_of(name).data).values():
        for variable in dataset.data_vars.values():
            assert {"long_name", "range"} <= set(variable.attrs)


@by_lens
def test_tables_rankings_and_json_are_made(name: str) -> None:
    result = result_of(name)
    for table in result.tables:
        assert len(result.table(table)) > 0
    if result.lens.schema.metrics:
        ranked = result.top(3)
        assert "score" in ranked
        assert 1 <= len(ranked) <= 3
    document = json.loads(json.dumps(result.to_json(top=2), allow_nan=False))
    assert document["schema"] == f"headspan.{name}/{result.lens.schema.version}"
    assert document["provenance"]["lens"] == name


@by_lens
def test_a_file_gives_the_result_back(name: str, tmp_path: Path) -> None:
    result = result_of(name)
    again = headspan.load(result.save(tmp_path / "a.nc"))
    assert repr(again) == repr(result)
    for node, dataset in nodes_of(result.data).items():
        xr.testing.assert_allclose(nodes_of(again.data)[node], dataset)
    if result.tables:
        assert (result.save(tmp_path / "a.csv")).read_text().count("\n") == len(result.table()) + 1


@by_lens
def test_a_result_shows_itself(name: str) -> None:
    result = result_of(name)
    assert 2 <= len(repr(result).splitlines()) <= 6
    assert result.title in result._repr_html_()
    for finding in result.findings:
        assert finding.statement.endswith((".", "?", ")"))


@by_lens
def test_every_public_function_has_an_example(name: str) -> None:
    assert ">>> " in str(lens(name).function.__doc__)
