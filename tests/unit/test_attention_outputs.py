"""Attention, told: tables, JSON, files, findings, figures, the command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import headspan
from headspan.cli.main import app
from headspan.errors import ArgumentError, HeadspanError
from headspan.labels import labeled
from headspan.lenses.attention.schema import SCHEMA
from headspan.lenses.run import reopened
from headspan.result import Result
from tests.unit.running_models import TEXT, fresh, running

PAIRS = "word;clue\ndog;an animal\nsun;a star\nbed;to sleep\ncake;to eat\n"


@pytest.fixture(scope="module")
def result() -> Result:
    return headspan.attention(running(), TEXT, level="word", permutations=19)


@pytest.fixture(scope="module")
def shots(stories: Path) -> Result:
    return headspan.attention(stories, few_shot=PAIRS, shots=3, level="word", permutations=9, length=4)


def test_the_table_has_one_row_per_head_with_the_null_beside(result: Result) -> None:
    rows = result.table()
    assert rows["head"].tolist() == ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"]
    row = rows.iloc[4]
    assert row["entropy"] == float(result["entropy"].sel(head="L1H1"))
    assert row["previous_mass_null"] == float(result["previous_mass_null"])
    assert row["state_correlation_p"] == float(result["state_correlation_p"].sel(head="L1H1"))
    best = result.top(2, metric="previous_mass")
    assert list(best) == ["head", "score", "expected"]
    assert best["score"].tolist() == sorted(result["previous_mass"].values, reverse=True)[:2]


def test_rows_of_1024_heads_are_those_of_each_head() -> None:
    draw = np.random.default_rng(0)
    names = [name for name, one in SCHEMA.declared("").items() if one.dims == ("head",)]
    made = {name: (("layer", "head"), draw.standard_normal((32, 32))) for name in names}
    maps = xr.Dataset(made, coords={"layer": np.arange(32)}).assign(entropy_null=0.5)
    table = reopened(headspan.attention("demo", [1, 2]).lens, {"": labeled(maps)}, {}).table()
    assert len(table) == 1024
    for layer, head in ((0, 0), (0, 31), (1, 0), (17, 5), (31, 31)):
        found, here = table[table["head"] == f"L{layer}H{head}"].iloc[0], maps.isel(layer=layer, head=head)
        assert {name: found[name] for name in names} == {name: float(here[name]) for name in names}


def test_json_holds_heads_layers_maps_and_where_they_come_from(result: Result) -> None:
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert document["schema"] == "headspan.attention/2"
    assert {"model", "file_hash", "null", "level", "pooling", "special"} <= set(document["provenance"])
    arrays = document["arrays"]
    assert len(arrays["query_text"]) == len(arrays["mean_map"][0]) == result["query"].size
    assert [row["layer"] for row in document["layers"]] == [0, 1]


@pytest.mark.parametrize("ending", [".nc", ".csv", ".json", ".parquet"])
@pytest.mark.parametrize("kind", ["prompt", "shots"])
def test_a_result_survives_a_file(tmp_path: Path, ending: str, kind: str, result: Result, shots: Result) -> None:
    path, found = tmp_path / f"result{ending}", result if kind == "prompt" else shots
    found.save(path)
    if ending != ".nc":
        assert path.stat().st_size > 500
        return
    read = headspan.load(path)
    xr.testing.assert_equal(read.dataset(), found.dataset())
    assert [one.statement for one in read.findings] == [one.statement for one in found.findings]


def test_files_of_version_1_are_read(tmp_path: Path, shots: Result) -> None:
    """There a few-shot result was a tree of grids under other names."""
    grid = shots.grid()
    by_shot = ["shot_map", "shot_write_map", "within", "across", "within_null", "within_null_sd", "within_p"]
    by_shot += ["own_word", "own_word_null", "other_word"]
    clues = ["target_word", "written_clue", "given_clue"]
    likelihood = ["log_likelihood", "log_likelihood_se", "log_likelihood_words"]
    old = {new: name for name, new in SCHEMA.renamed.items()}
    nodes = {"shots": grid[by_shot], "clues": grid[clues], "likelihood": grid[likelihood]}
    nodes["map"] = grid.drop_vars([*by_shot, *clues, *likelihood, "within_z", "shots"])
    nodes = {
        name: node.drop_vars([one for one in node.coords if not set(node[one].dims) & _dims(node)]).rename(
            {one: old[one] for one in node.data_vars if one in old}
        )
        for name, node in nodes.items()
    }
    attrs = {**shots.attrs, "schema": "headspan.attention/1"}
    del attrs["boundaries"]
    tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **nodes})
    tree.to_netcdf(tmp_path / "old.nc", engine="netcdf4")
    read = headspan.load(tmp_path / "old.nc")
    for name in shots.dataset().drop_vars("within_z").data_vars:
        np.testing.assert_array_equal(read[str(name)], shots[str(name)])
    assert read.figures["Attention map"] == shots.figures["Attention map"]


def _dims(node: xr.Dataset) -> set[str]:
    return {str(dim) for one in node.data_vars.values() for dim in one.dims}


def test_findings_give_values_beside_the_null(result: Result, shots: Result) -> None:
    found = result.findings
    assert any("attends most narrowly" in finding.statement for finding in found)
    assert any("Averaging over heads hides" in finding.statement for finding in found)
    assert all(finding.expected is not None for finding in found)
    told = " ".join(finding.statement for finding in shots.findings)
    assert "heads keep attention within its own shot more than within moved boundaries" in told
    assert "attends most from clues to their own word" in told
    assert "Held-out clues have a log-likelihood" in told


def test_a_sink_is_named_with_its_token(minilm: Path) -> None:
    found = headspan.attention(minilm, "A cat sat on the mat.", permutations=0).findings
    told = next(finding.statement for finding in found if "position 0 ('[CLS]')" in finding.statement)
    assert re.search(r"more than 30 % of their attention to a single position, (all|\d+) of them to position 0", told)


def test_a_single_token_has_no_findings_and_one_figure() -> None:
    alone = headspan.attention(running(), [7])
    assert alone.findings == []
    assert list(alone.figures) == ["Attention map", "Attention in every layer"]


def test_figures_show_the_numbers_of_the_result(result: Result) -> None:
    drawn, grid = result.figures, result.grid()
    assert list(drawn) == [
        "Attention map",
        "Attention in every layer",
        "Entropy by layer",
        "Where heads attend",
        "States by layer",
        "Attention beside cosines",
        "Cosines and attention by layer",
    ]
    panels = drawn["Attention map"].data
    assert len(panels) == 4
    np.testing.assert_array_equal(np.nan_to_num(panels[3].z), grid["write_map"].values[1])
    np.testing.assert_array_equal(drawn["Entropy by layer"].data[0].y, grid["relative_entropy"].values.ravel())
    np.testing.assert_array_equal(drawn["Where heads attend"].data[1].z, grid["previous_mass"].values)
    np.testing.assert_array_equal(drawn["States by layer"].data[0].y, grid["mean_cosine"].values)


def test_labels_that_hold_tags_are_escaped(result: Result) -> None:
    texts = result.figures["Attention map"].layout.xaxis.ticktext
    assert texts[0] == "&lt;s&gt;"


def test_a_long_prompt_is_drawn_in_part_and_the_title_says_so() -> None:
    figure = headspan.attention(running(), [5, 6, 7] * 40, permutations=0).figures["Attention map"]
    assert figure.layout.title.text == "Attention map, first 96 of 120 tokens"
    assert np.asarray(figure.data[0].z).shape == (96, 96)


def test_shots_are_drawn_with_their_boundaries(shots: Result) -> None:
    drawn = shots.figures
    assert {"Attention between shots", "Within shots", "Held-out clues"} < set(drawn)
    lines = [shape.x0 for shape in drawn["Attention map"].layout.shapes if shape.x0 == shape.x1]
    assert lines == [place - 0.5 for place in shots.attrs["boundaries"]]


# The command


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["attention", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_prints_heads_and_layers() -> None:
    text = run("demo", "--prompt", "abcabcabc", "--permutations", "0")
    assert "9 tokens; narrowest heads, 10 of 16, uniform attention below" in text
    assert "Layers" in text


def test_the_command_takes_tokens_files_and_words(stories: Path, tmp_path: Path) -> None:
    ids = json.loads(run("demo", "--tokens", "1,2,3,1,2,3", "--json"))
    assert ids["arrays"]["query_text"] == ["b", "c", "d"] * 2
    (tmp_path / "prompt.txt").write_text("The dog saw the big dog.")
    arguments = ("--prompt-file", str(tmp_path / "prompt.txt"), "--level", "word", "--words", "dog,big", "--json")
    document = json.loads(run(str(stories), *arguments))
    assert document["arrays"]["query_text"] == ["dog", "big", "dog"]


def test_the_command_cuts_a_long_prompt_when_asked() -> None:
    text = run("demo", "--prompt", "a" * 70, "--truncate", "--permutations", "0")
    assert "The last 6 tokens exceeded the context and were cut." in text


def test_the_command_shows_a_few_shot_prompt_and_writes_it(tmp_path: Path, stories: Path) -> None:
    file, kept = tmp_path / "pairs.csv", tmp_path / "shots.nc"
    file.write_text(PAIRS)
    options = ("--shots", "2", "--target", "sun,moon", "--permutations", "0", "-o", str(kept))
    text = run(str(stories), "--few-shot", str(file), *options)
    assert "Held-out clues, log-likelihood per token" in text
    assert "moon" in text
    assert "Attention between shots" in headspan.load(kept).figures


def test_the_command_takes_several_few_shot_files_as_one_batch(tmp_path: Path, stories: Path) -> None:
    """The mean over both prompts is that of the two alone."""
    files = [tmp_path / "one.csv", tmp_path / "two.csv"]
    files[0].write_text(PAIRS)
    files[1].write_text("\n".join([PAIRS.splitlines()[0], *reversed(PAIRS.splitlines()[1:])]))
    options = ("--shots", "2", "--target", "sun,moon", "--permutations", "0", "--json")
    each = [json.loads(run(str(stories), "--few-shot", str(file), *options)) for file in files]
    both = json.loads(run(str(stories), *(part for file in files for part in ("--few-shot", str(file))), *options))
    assert len(both["prompts"]) == 2
    entropies = [{row["head"]: row["entropy"] for row in one["heads"]} for one in each]
    assert entropies[0] != entropies[1]
    for row in both["batch"]:
        assert row["entropy_mean"] == pytest.approx(sum(one[row["head"]] for one in entropies) / 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompt", " "], "the prompt is empty"),
        (["--prompt", "a" * 65], "the model's context 64"),
        (["--tokens", "1,x"], "is not a list of token ids"),
        (["--tokens", "64"], "token 64 does not exist"),
        (["--prompt", "a", "--tokens", "1"], "--prompt, --prompt-file and --tokens are three ways to say the same"),
        (["--prompt", "a", "--few-shot", "x.csv"], "prompt and few_shot were both given"),
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
    assert headspan.attention(model, "abc", permutations=0)["query"].size == 3
    with pytest.raises(ArgumentError, match="word level needs a fast tokenizer"):
        headspan.attention(model, "abc", level="word")


# Where it applies


def test_lenses_that_run_the_model_say_why_they_cannot(gpt2_attention: Path, stories: Path) -> None:
    reasons = headspan.open(gpt2_attention).skip_reasons()
    assert reasons["attention"] == reasons["detect"] is not None
    assert "no W_E and no MLP" in str(reasons["detect"])
    assert headspan.open(stories).skip_reasons()["detect"] is None
