"""How commands end: refusals before any work, the order of what is written, and options that are told alike."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest
import typer

import headspan
from headspan.cli.delivery import Delivery, ImageFiles
from headspan.cli.main import app
from headspan.command import Rows
from headspan.errors import HeadspanError
from headspan.explorer import figure_files
from headspan.lenses.catalog import lens, lenses
from headspan.result import Result

POSITIONAL = {"channels": ["L0H0", "L1H0"]}
"""Arguments of commands that take more than models."""


@pytest.fixture(scope="module")
def result() -> Result:
    return headspan.ranks("demo")


def show(result: Result) -> Iterator[str | Rows]:
    yield f"{result['rank_Q'].size} heads"
    yield Rows.of_records("Ranks", [{"first_name": None, "number": 0.123456}])


@cache
def program() -> typer.core.TyperGroup:
    """The whole command line; making it from annotations takes a second."""
    return typer.main.get_command(app)


def refusal(name: str, *options: str) -> str:
    """What a command says to options, given models that are not there."""
    models = ["no-such-model"] * lens(name).subjects
    with pytest.raises(HeadspanError, match=r"\w") as caught:
        program().main([name, *models, *POSITIONAL.get(name, []), *options], standalone_mode=False)
    return str(caught.value)


def options_of(name: str) -> list[typer.core.TyperOption]:
    return [each for each in program().commands[name].params if isinstance(each, typer.core.TyperOption)]


@pytest.mark.parametrize("name", lenses())
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "result.xyz"], "its ending is none of .nc, .csv, .parquet, .json, .html"),
        (["-o", "nowhere/result.csv"], "there is no folder 'nowhere'"),
        (["-o", "."], "cannot write '.': it is a folder"),
        (["--figures", "pictures", "--figure-format", "gif"], "figures cannot be written as 'gif'"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_the_model_is_looked_for(
    name: str, options: list[str], message: str
) -> None:
    assert message in refusal(name, *options)


@pytest.mark.parametrize("name", lenses())
def test_help_names_every_ending_that_the_command_writes(name: str) -> None:
    endings = refusal(name, "-o", "result.xyz").split("none of ")[1].split(", ")
    (option,) = (each for each in options_of(name) if "--output" in each.opts)
    assert [ending for ending in endings if ending not in str(option.help)] == []


@pytest.mark.parametrize("name", lenses())
def test_every_lens_has_json_and_a_file(name: str) -> None:
    spelled = {spelling for each in options_of(name) for spelling in each.opts}
    assert {"--json", "-o", "--output", "--figures", "--force"} <= spelled


def test_the_singular_forms_stay() -> None:
    spelled = {spelling for each in options_of("affinity") for spelling in each.opts}
    assert {"--pairings", "--pairing", "--metrics", "--metric"} <= spelled


def test_commands_stand_in_groups() -> None:
    groups = {name: command.rich_help_panel for name, command in program().commands.items()}
    assert groups["affinity"] == groups["report"] == "Look at a model"
    assert groups["attention"] == "Run it"
    assert groups["compare"] == groups["sweep"] == "Compare and follow"
    assert groups["claims"] == "Documents"


def test_flags_show_no_type() -> None:
    from typer.testing import CliRunner

    for name in ("", "ranks", "report", "train"):
        told = CliRunner().invoke(app, [*filter(None, [name]), "--help"]).stdout
        assert "<bool>" not in told


def test_an_option_of_several_commands_has_one_help_text() -> None:
    shared = {"--config", "--stack", "--fold", "--delta", "--memory", "--prompt", "--prompt-file", "--truncate"}
    shared |= {"--force", "--figures", "--figure-format", "--dark", "--json", "--dtype", "--device"}
    texts: dict[str, list[str]] = {option: [] for option in shared}
    for name in program().commands:
        for each in options_of(name):
            for option in shared.intersection(each.opts):
                texts[option].append(str(each.help))
    assert min(map(len, texts.values())) > 1
    assert {option: told for option, told in texts.items() if len(set(told)) > 1} == {}


def test_a_result_is_drawn_then_saved_then_printed(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output, there_when_drawn = tmp_path / "result.csv", []

    def write(figures: dict, folder: Path, form: str, dark: bool) -> list[Path]:
        there_when_drawn.append((output.exists(), list(figures), form, dark))
        return [folder / "one.png"]

    monkeypatch.setattr(Result, "draw", lambda result, classes=None: {"A figure": go.Figure()})
    monkeypatch.setattr(figure_files, "write_figure_files", write)
    Delivery(output, ImageFiles(tmp_path / "images", "png", True)).deliver(result, show, {})
    assert there_when_drawn == [(False, [("ranks", "A figure")], "png", True)]
    assert pd.read_csv(output)["rank_Q"].tolist() == [16] * 16
    shown = capsys.readouterr()
    assert shown.out.split() == [
        "16",
        "heads",
        "Ranks",
        "first",
        "name",
        "number",
        "-",
        "0.1235",
        "Written",
        "to",
        str(output),
    ]
    assert shown.err == f"1 figures written to {tmp_path / 'images'}\n"


def test_json_has_stdout_to_itself(result: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Delivery(tmp_path / "result.csv", as_json=True).deliver(result, show, {})
    assert json.loads(capsys.readouterr().out)["schema"] == "headspan.ranks/2"


def test_a_file_that_exists_is_refused_unless_force_is_asked_for(tmp_path: Path) -> None:
    output = tmp_path / "result.csv"
    output.write_text("precious")
    with pytest.raises(HeadspanError, match="exists already; overwrite it with --force"):
        Delivery.of(lens("ranks"), output)
    assert Delivery.of(lens("ranks"), output, force=True).output == output


def test_columns_choose_name_and_format_keys() -> None:
    rows = Rows.of_columns(
        "C", {"z": ("z-score", "{:+.1f}"), "name": ("head", "{}")}, [{"name": "L0H1", "z": 2, "x": 0}]
    )
    assert (rows.columns, rows.rows) == (["z-score", "head"], [["+2.0", "L0H1"]])


def test_no_function_of_the_command_line_is_longer_than_fifty_lines() -> None:
    source = Path(__file__).parents[2] / "src" / "headspan"
    files = [*sorted((source / "cli").glob("*.py")), *sorted((source / "lenses").glob("*/command.py"))]
    nodes = [(file.name, node) for file in files for node in ast.walk(ast.parse(file.read_text()))]
    functions = [(name, node) for name, node in nodes if isinstance(node, ast.FunctionDef)]
    assert len(functions) > 60
    assert [(name, node.name) for name, node in functions if node.end_lineno - node.lineno >= 50] == []
