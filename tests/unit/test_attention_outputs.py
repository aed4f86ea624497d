"""Attention, told: tables, JSON, files, findings, figures, the command, the report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer
import xarray as xr
from headspan.explorer.report import write_report
from headspan.figures import figures_of
from headspan.findings import findings_of
from headspan.lenses.attention.pairs import Pair
from headspan.lenses.saving import save_result
from typer.testing import CliRunner

import headspan
from headspan.errors import HeadspanError, ShapeError, UnsupportedModel
from headspan.explorer import report, subjects
from headspan.lenses import LENSES, attention, obstacles
from headspan.lenses.attention.command import attention as command
from headspan.lenses.attention.few_shot import few_shot
from headspan.runtime import encoded, open_runnable
from tests.browser.page_elements import asks_nothing
from tests.unit.running_models import TEXT, fresh, running

PAIRS = [Pair("dog", "an animal"), Pair("sun", "a star"), Pair("bed", "to sleep"), Pair("cake", "to eat")]


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    return attention.compute(running(), encoded(running(), TEXT), level="word", permutations=19)


@pytest.fixture(scope="module")
def shots(stories: Path) -> xr.DataTree:
    return few_shot(open_runnable(stories), PAIRS, shots=3, level="word", permutations=9, length=4)


def test_the_table_has_one_row_per_head_with_chance_beside(result: xr.Dataset) -> None:
    rows = attention.table(result)
    assert rows["head"].tolist() == ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"]
    row = rows.iloc[4]
    assert row["entropy"] == float(result["entropy"][1, 1])
    assert row["previous_mass_chance"] == float(result["previous_mass_chance"])
    assert row["state_p_value"] == float(result["state_p_value"][1, 1])


def test_json_holds_heads_layers_maps_and_where_they_come_from(result: xr.Dataset) -> None:
    document = json.loads(json.dumps(attention.as_json(result), allow_nan=False))
    assert document["schema"] == "headspan.attention/1"
    assert {"model", "file_hash", "null", "level", "pooling", "special"} <= set(document["provenance"])
    assert len(document["texts"]) == len(document["maps"]["mean_map"][0]) == result.sizes["query"]
    assert [row["layer"] for row in document["layers"]] == [0, 1]


@pytest.mark.parametrize("ending", [".nc", ".csv", ".json", ".parquet"])
@pytest.mark.parametrize("kind", ["prompt", "shots"])
def test_a_result_survives_a_file(
    tmp_path: Path, ending: str, kind: str, result: xr.Dataset, shots: xr.DataTree
) -> None:
    path, found = tmp_path / f"result{ending}", result if kind == "prompt" else shots
    save_result(found, path, table=attention.table, as_json=attention.as_json)
    if ending != ".nc":
        assert path.stat().st_size > 500
    elif kind == "prompt":
        with xr.open_dataset(path, engine="h5netcdf") as read:
            xr.testing.assert_equal(read.load(), result)
    else:
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            np.testing.assert_array_equal(tree["shots"]["within"], shots["shots"]["within"])


def test_findings_give_values_beside_chance(result: xr.Dataset, shots: xr.DataTree) -> None:
    found = findings_of("attention", result)
    assert any("looks most narrowly" in finding.statement for finding in found)
    assert any("Averaging over heads hides" in finding.statement for finding in found)
    assert all(finding.expected is not None for finding in found)
    told = " ".join(finding.statement for finding in findings_of("attention", shots))
    assert "Attention keeps to its own shot" in told
    assert "looks from clues to their own word most" in told
    assert "Held-out clues have a log-likelihood" in told


def test_a_sink_is_named_with_its_token(minilm: Path) -> None:
    model = open_runnable(minilm)
    found = findings_of("attention", attention.compute(model, encoded(model, "A cat sat on the mat."), permutations=0))
    assert any("position 0 ('[CLS]')" in finding.statement for finding in found)


def test_a_single_token_has_no_findings_and_one_figure() -> None:
    alone = attention.compute(running(), encoded(running(), [7]))
    assert findings_of("attention", alone) == []
    assert list(figures_of("attention", alone)) == ["Attention map", "Attention in every layer"]


def test_figures_show_the_numbers_of_the_result(result: xr.Dataset) -> None:
    drawn = figures_of("attention", result)
    assert list(drawn) == [
        "Attention map",
        "Attention in every layer",
        "Entropy by layer",
        "Where heads look",
        "States by layer",
        "Attention beside cosines",
    ]
    panels = drawn["Attention map"].data
    assert len(panels) == 4
    np.testing.assert_array_equal(np.nan_to_num(panels[3].z), result["write_map"].values[1])
    np.testing.assert_array_equal(drawn["Entropy by layer"].data[0].y, result["relative_entropy"].values.ravel())
    np.testing.assert_array_equal(drawn["Where heads look"].data[1].z, result["previous_mass"].values)
    np.testing.assert_array_equal(drawn["States by layer"].data[0].y, result["mean_cosine"].values)


def test_labels_that_hold_tags_are_escaped(result: xr.Dataset) -> None:
    texts = figures_of("attention", result)["Attention map"].layout.xaxis.ticktext
    assert texts[0] == "&lt;s&gt;"


def test_a_long_prompt_is_drawn_in_part_and_the_title_says_so() -> None:
    found = attention.compute(running(), encoded(running(), [5, 6, 7] * 40), permutations=0)
    figure = figures_of("attention", found)["Attention map"]
    assert figure.layout.title.text == "Who attends to whom, first 96 of 120 tokens"
    assert np.asarray(figure.data[0].z).shape == (96, 96)


def test_shots_are_drawn_with_their_boundaries(shots: xr.DataTree) -> None:
    drawn = figures_of("attention", shots)
    assert {"Attention between shots", "Within shots", "Held-out clues"} < set(drawn)
    lines = [shape.x0 for shape in drawn["Attention map"].layout.shapes if shape.x0 == shape.x1]
    assert lines == [place - 0.5 for place in attention.maps_of(shots).attrs["boundaries"]]


# The command

app = typer.Typer()
app.command("attention")(command)
app.command("other")(lambda: None)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["attention", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_prints_heads_and_layers() -> None:
    text = run("demo", "--prompt", "abcabcabc", "--permutations", "0")
    assert "9 tokens; narrowest heads, 10 of 16, uniform below" in text
    assert "Layers" in text


def test_the_command_takes_tokens_files_and_words(stories: Path, tmp_path: Path) -> None:
    ids = json.loads(run("demo", "--tokens", "1,2,3,1,2,3", "--json"))
    assert ids["texts"] == ["b", "c", "d"] * 2
    (tmp_path / "prompt.txt").write_text("The dog saw the big dog.")
    arguments = ("--prompt-file", str(tmp_path / "prompt.txt"), "--level", "word", "--words", "dog,big", "--json")
    document = json.loads(run(str(stories), *arguments))
    assert document["texts"] == ["dog", "big", "dog"]


def test_the_command_cuts_a_long_prompt_when_asked() -> None:
    text = run("demo", "--prompt", "a" * 70, "--truncate", "--permutations", "0")
    assert "The last 6 tokens exceeded the context and were cut." in text


def test_the_command_writes_a_page_that_asks_nothing(tmp_path: Path, stories: Path) -> None:
    file, page = tmp_path / "pairs.csv", tmp_path / "page.html"
    file.write_text("word;clue\n" + "\n".join(f"{pair.word};{pair.clue}" for pair in PAIRS))
    text = run(str(stories), "--few-shot", str(file), "--shots", "2", "--permutations", "0", "-o", str(page))
    assert "Held-out clues, log-likelihood per token" in text
    html = page.read_text()
    assert asks_nothing(html)
    assert "Attention between shots" in html


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompt", " "], "the prompt is empty"),
        (["--prompt", "a" * 65], "the model's context 64"),
        (["--tokens", "1,x"], "is not a list of token ids"),
        (["--tokens", "64"], "token 64 does not exist"),
        (["--prompt", "a", "--tokens", "1"], "give one of --prompt, --prompt-file, --tokens and --few-shot"),
        (["--prompt", "a", "--few-shot", "x.csv"], "give one of --prompt"),
        (["--prompt-file", "none.txt"], "'none.txt' cannot be read"),
        (["--few-shot", "none.csv"], "'none.csv' cannot be read"),
        (["--tokens", "1,2", "--level", "word"], "word level needs a text"),
        (["--prompt", "abc", "--words", "z"], "'z' does not occur in the prompt"),
        (["--prompt", "abc", "-o", "result.xls"], "cannot write 'result.xls'"),
    ],
)
def test_the_command_refuses_bad_input_in_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(HeadspanError, match=message) as raised:
        run("demo", *arguments)
    assert "\n" not in str(raised.value)


def test_a_slow_tokenizer_serves_tokens_but_not_words() -> None:
    class Slow:
        """A tokenizer that does not say where its tokens stand."""

        is_fast = False
        all_special_ids: tuple[int, ...] = ()

        def __call__(self, text: str, **options: object) -> dict[str, list[int]]:
            return {"input_ids": [ord(each) - 90 for each in text]}

        def get_special_tokens_mask(self, ids: list[int], already_has_special_tokens: bool) -> list[int]:
            return [0] * len(ids)

        def decode(self, ids: list[int]) -> str:
            return chr(ids[0] + 90)

    model = fresh(own=Slow())
    prompt = encoded(model, "abc")
    assert attention.compute(model, prompt, permutations=0).sizes["query"] == 3
    with pytest.raises(ShapeError, match="word level needs a fast tokenizer"):
        attention.compute(model, prompt, level="word")


# The report


def test_lenses_that_run_the_model_say_why_they_cannot(gpt2_attention: Path, stories: Path) -> None:
    hindered = obstacles(headspan.open(gpt2_attention))
    assert (
        hindered["attention"]
        == hindered["detect"]
        == ("the checkpoint is partial, it lacks W_E, MLP; open the complete one")
    )
    assert obstacles(headspan.open(stories))["detect"] is None


def test_the_report_runs_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "LENSES", {name: LENSES[name] for name in ("attention", "detect")})
    html = write_report(headspan.open("demo"), tmp_path / "report.html").read_text()
    assert "Induction heads, which look at what came after an earlier copy of the token" in html
    assert "Detector scores" in html
    assert asks_nothing(html)


def test_the_report_does_not_run_what_is_large_or_not_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "LENSES", {"detect": LENSES["detect"]})
    monkeypatch.setattr(subjects, "MOST_PARAMETERS", 1000)
    html = write_report(headspan.open("demo"), tmp_path / "report.html").read_text()
    assert "Does not apply: models of more than 1,000 parameters are run by the lens" in html


def test_a_model_that_transformers_does_not_load_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "LENSES", {"detect": LENSES["detect"]})

    def refuse(*_: object, **__: object) -> None:
        raise UnsupportedModel("transformers cannot run it")

    monkeypatch.setattr("headspan.runtime.model.load_module", refuse)
    html = write_report(headspan.open("demo"), tmp_path / "report.html").read_text()
    assert "Does not apply: transformers cannot run it." in html
