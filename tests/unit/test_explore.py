"""`headspan.explore`: what the widget is given, what Python answers, and that the model is left as it was."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import pytest

import headspan
from headspan.errors import ArgumentError, HeadspanError
from headspan.explorer.component import notebook_source, notebook_style
from headspan.explorer.payload import SCHEMA, Payload
from headspan.explorer.store import Archive
from headspan.explorer.widget import Exploration, explore
from headspan.runtime.interventions import ScaledHeads, intervened

PROMPT = "abcabcabcabc"


@pytest.fixture(scope="module")
def exploration() -> Exploration:
    return Exploration(headspan.open("demo"), None, ["affinity"], progress=False)


def arrays(archive: Archive | tuple[list[Any], bytes]) -> dict[str, np.ndarray]:
    """What the browser reads out of an archive."""
    index, packed = (archive.index, archive.packed) if isinstance(archive, Archive) else archive
    whole, found, at = gzip.decompress(packed), {}, 0
    for name, dtype, length in index:
        if dtype != "json":
            rows = np.frombuffer(whole[at : at + length], np.uint8).reshape(int(dtype[1]), -1).T
            found[name] = np.frombuffer(rows.tobytes(), dtype=f"<{dtype}")
        at += length
    return found


def pattern(told: dict[str, Any], packed: bytes, head: str) -> np.ndarray:
    (one,) = told["maps"]
    shape = [int(size) for size in one["values"]["shape"].split(",")]
    values = arrays((told["index"], packed))[one["values"]["@"]].reshape(shape)
    return np.asarray(values[one["labels"].index(head)])


def test_the_payload_is_that_of_the_page_and_says_what_python_can_do(exploration: Exploration) -> None:
    record, archive = exploration.opened()
    assert set(record) == set(Payload.__annotations__)
    assert record["schema"] == SCHEMA
    assert record["runs"] is True
    assert record["interesting"] == "L0H3"
    assert record["sentences"]["L1H6"].startswith("L1H6 reads most from L0H3 through its keys")
    assert {name for name, _, _ in archive.index} >= {
        column["array"]["@"] for table in record["tables"] for column in table["columns"] if "array" in column
    }


def test_a_prompt_is_answered_with_maps_and_text(exploration: Exploration) -> None:
    told, (packed,) = exploration.answer({"ask": "run", "prompt": PROMPT, "scales": {}})
    result = headspan.attention("demo", PROMPT, permutations=0)
    expected = result["pattern"].sel(head="L1H6").values
    np.testing.assert_allclose(pattern(told, packed, "L1H6") / 255, expected, atol=1 / 255)
    assert told["maps"][0]["texts"] == list(PROMPT)
    assert told["before"]
    assert told["after"] is None


def test_an_ablated_head_changes_patterns_and_text_and_is_restored(exploration: Exploration) -> None:
    plain, (before,) = exploration.answer({"ask": "run", "prompt": PROMPT, "scales": {}})
    changed, (after,) = exploration.answer({"ask": "run", "prompt": PROMPT, "scales": {"L0H3": 0}})
    again, (restored,) = exploration.answer({"ask": "run", "prompt": PROMPT, "scales": {}})
    assert np.abs(pattern(plain, before, "L1H6") - pattern(changed, after, "L1H6").astype(float)).max() > 25
    assert np.array_equal(pattern(plain, before, "L0H3"), pattern(changed, after, "L0H3")), "its own pattern stays"
    assert changed["after"] != changed["before"] == plain["before"]
    assert np.array_equal(pattern(plain, before, "L1H6"), pattern(again, restored, "L1H6"))


def test_a_head_scaled_by_one_is_unchanged(exploration: Exploration) -> None:
    plain, (before,) = exploration.answer({"ask": "run", "prompt": PROMPT, "scales": {}})
    same, (after,) = exploration.answer({"ask": "run", "prompt": PROMPT, "scales": {"L0H3": 1}})
    assert np.array_equal(pattern(plain, before, "L1H6"), pattern(same, after, "L1H6"))
    assert same["after"] == same["before"]


def test_a_pair_is_answered_by_the_lenses_of_pairs(exploration: Exploration) -> None:
    told, _ = exploration.answer({"ask": "pair", "heads": ["L1H6", "L0H3"]})
    assert any("K-composition" in line for line in told["lines"])


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        ({"ask": "dance"}, "'dance' is not a question"),
        ({"ask": "run", "prompt": PROMPT, "scales": {"L9H9": 0}}, "L9H9"),
        ({"ask": "run", "prompt": PROMPT, "scales": {"L0H3": float("nan")}}, "finite"),
        ({"ask": "run", "prompt": "x" * 5000, "scales": {}}, "context"),
        ({"ask": "pair", "heads": ["L0H0", "nonsense"]}, "nonsense"),
        ({"ask": "pair"}, "heads"),
    ],
)
def test_what_cannot_be_answered_is_said_in_one_line(
    exploration: Exploration, question: dict[str, Any], problem: str
) -> None:
    told, packed = exploration.answer(question)
    assert problem in told["problem"]
    assert "\n" not in told["problem"]
    assert packed == []


def test_the_widget_hands_out_its_payload_and_its_selection() -> None:
    widget = headspan.explore("demo", lenses=["affinity"], progress=False)
    assert json.loads(widget.payload)["model"]["name"] == "demo"
    assert widget.selected == ""
    widget.set_state({"selected": "L1H6", "selected_pair": ["L0H3", "L1H6"]})
    assert (widget.selected, widget.selected_pair) == ("L1H6", ["L0H3", "L1H6"])


def test_another_range_of_layers_is_opened() -> None:
    widget = explore("synthetic:tiny", lenses=["affinity", "ranks"], progress=False)
    layers = json.loads(widget.payload)["model_layers"]
    widget.open_layers(layers[0], layers[0])
    assert json.loads(widget.payload)["heads"]["layers"] == layers[:1]
    assert json.loads(widget.payload)["pairs"] is None, "one layer composes with nothing"
    with pytest.raises(HeadspanError, match="there is no layer from 90 to 99"):
        widget.open_layers(90, 99)


def test_a_message_is_answered_under_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    widget = explore("synthetic:tiny", lenses=["ranks"], progress=False)
    sent: list[Any] = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append((content, buffers)))
    widget._asked(widget, {"number": 7, "question": {"ask": "layers", "low": 90, "high": 99}}, [])
    widget._asked(widget, {"number": 8, "question": {"ask": "dance"}}, [])
    assert [content["number"] for content, _ in sent] == [7, 8]
    assert all("problem" in content["answer"] for content, _ in sent)


def test_a_lens_that_is_not_there_or_does_not_apply_is_refused() -> None:
    model = headspan.open("synthetic:tiny")
    with pytest.raises(ArgumentError, match="there is no lens 'nonsense'"):
        explore(model, lenses=["nonsense"], progress=False)
    with pytest.raises(ArgumentError, match="validate takes minutes"):
        explore(model, lenses=["validate"], progress=False)


def test_the_module_and_its_styles_stay_within_the_widget() -> None:
    assert notebook_source().rstrip().endswith("export default {render};")
    assert notebook_style().startswith(".headspan.notebook {")
    assert ":root" not in notebook_style()


def test_heads_scaled_together_leave_the_model_as_it_was() -> None:
    running = headspan.open("demo").running()
    before = {name: value.clone() for name, value in running.module.named_parameters()}
    with intervened(running, ScaledHeads({"L0H3": 0.5, "L1H6": 2.0})) as notes:
        assert notes == ()
    assert all((value == before[name]).all() for name, value in running.module.named_parameters())
