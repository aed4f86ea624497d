"""How commands end: refusals before any work, the order of what is written, and options that are told alike."""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest
import typer
import xarray as xr

from headspan.cli.delivery import Delivery, delivery
from headspan.cli.figure_files import ImageFiles
from headspan.cli.main import app
from headspan.cli.tables import print_columns, print_records
from headspan.errors import HeadspanError
from headspan.explorer import figure_files, lens_figures

COMMANDS = {
    "affinity": 1,
    "attention": 1,
    "compare": 2,
    "detect": 1,
    "gaussian": 1,
    "intervene": 1,
    "positions": 1,
    "similarity": 1,
    "spectra": 1,
    "validate": 1,
}
"""Commands that deliver a result, and how many models each takes."""
PAGES = ("attention", "compare", "intervene", "validate")


class Forms:
    """A lens that counts how often it is asked for its JSON."""

    asked = 0

    def table(self, result: xr.Dataset) -> pd.DataFrame:
        return result.to_dataframe().reset_index()

    def as_json(self, result: xr.Dataset) -> dict[str, object]:
        self.asked += 1
        return {"values": result["value"].values.tolist()}


def result() -> xr.Dataset:
    return xr.Dataset({"value": ("head", [1.5, 2.5])})


def show(result: xr.Dataset) -> None:
    typer.echo(f"a table of {result.sizes['head']} heads")


@cache
def program() -> typer.core.TyperGroup:
    """The whole command line; making it from annotations takes a second."""
    return typer.main.get_command(app)


def refusal(name: str, *options: str) -> str:
    """What a command says to options, given models that are not there."""
    with pytest.raises(HeadspanError, match=r"\w") as caught:
        program().main([name, *["no-such-model"] * COMMANDS[name], *options], standalone_mode=False)
    return str(caught.value)


def options_of(name: str) -> list[typer.core.TyperOption]:
    return [each for each in program().commands[name].params if isinstance(each, typer.core.TyperOption)]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "result.xyz"], "its ending is none of .nc, .csv, .parquet, .json"),
        (["-o", "nowhere/result.csv"], "there is no folder 'nowhere'"),
        (["-o", "."], "cannot write '.': it is a folder"),
        (["--figures", "pictures", "--figure-format", "gif"], "figures cannot be written as 'gif'"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_the_model_is_looked_for(
    name: str, options: list[str], message: str
) -> None:
    assert message in refusal(name, *options)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_every_ending_that_the_command_writes(name: str) -> None:
    endings = refusal(name, "-o", "result.xyz").split("none of ")[1].split(", ")
    (option,) = (each for each in options_of(name) if "--output" in each.opts)
    assert [ending for ending in endings if ending not in str(option.help)] == []
    assert (".html" in endings) == (name in PAGES)


def test_an_option_of_several_commands_has_one_help_text() -> None:
    shared = {"--config", "--stack", "--fold", "--delta", "--memory", "--prompt", "--prompt-file", "--truncate"}
    shared |= {"--force", "--figures", "--figure-format", "--dark", "--json"}
    texts: dict[str, list[str]] = {option: [] for option in shared}
    for name in program().commands:
        for each in options_of(name):
            for option in shared.intersection(each.opts):
                texts[option].append(str(each.help))
    assert min(map(len, texts.values())) > 1
    assert {option: told for option, told in texts.items() if len(set(told)) > 1} == {}


def test_a_result_is_drawn_then_saved_then_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output, there_when_drawn = tmp_path / "result.csv", []

    def write(figures: dict, folder: Path, form: str, dark: bool) -> list[Path]:
        there_when_drawn.append((output.exists(), list(figures), form, dark))
        return [folder / "one.png"]

    monkeypatch.setattr(lens_figures, "lens_figures", lambda lens, result, classes: {"A figure": go.Figure()})
    monkeypatch.setattr(figure_files, "write_figure_files", write)
    to = delivery("a-lens", output, ImageFiles(tmp_path / "images", "png", True), False)
    to.deliver(result(), Forms(), show)
    assert there_when_drawn == [(False, [("a-lens", "A figure")], "png", True)]
    assert pd.read_csv(output)["value"].tolist() == [1.5, 2.5]
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["a table of 2 heads", f"Written to {output}"]
    assert shown.err == f"1 figures written to {tmp_path / 'images'}\n"


def test_json_has_stdout_to_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    delivery("a-lens", tmp_path / "result.csv", None, True).deliver(result(), Forms(), show)
    assert json.loads(capsys.readouterr().out) == {"values": [1.5, 2.5]}


def test_tables_do_not_wait_for_json(capsys: pytest.CaptureFixture[str]) -> None:
    forms = Forms()
    Delivery("a-lens").deliver(result(), forms, show)
    assert forms.asked == 0
    assert capsys.readouterr().out == "a table of 2 heads\n"


def test_a_lens_writes_further_endings_by_itself(tmp_path: Path) -> None:
    def write(result: xr.Dataset, path: Path) -> None:
        path.write_text(f"{result.sizes['head']} heads")

    to = delivery("a-lens", tmp_path / "result.graph", None, False, more={".graph": write})
    to.deliver(result(), Forms(), show)
    assert (tmp_path / "result.graph").read_text() == "2 heads"


def test_a_file_that_exists_is_refused_only_where_force_is_asked_for(tmp_path: Path) -> None:
    output = tmp_path / "result.csv"
    output.write_text("precious")
    with pytest.raises(HeadspanError, match="exists already; overwrite it with --force"):
        delivery("a-lens", output, None, False, force=False)
    assert delivery("a-lens", output, None, False).output == output


def test_a_cell_without_a_value_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    print_records("Records", [{"first_name": None, "number": 0.123456}])
    assert capsys.readouterr().out.split() == ["Records", "first", "name", "number", "-", "0.1235"]


def test_columns_choose_name_and_format_keys(capsys: pytest.CaptureFixture[str]) -> None:
    print_columns("Columns", {"z": ("z-score", "{:+.1f}"), "name": ("head", "{}")}, [{"name": "L0H1", "z": 2, "x": 0}])
    assert capsys.readouterr().out.split() == ["Columns", "z-score", "head", "+2.0", "L0H1"]


def test_no_function_of_the_command_line_is_longer_than_fifty_lines() -> None:
    files = sorted((Path(__file__).parents[2] / "src" / "headspan" / "cli").glob("*.py"))
    nodes = [(file.name, node) for file in files for node in ast.walk(ast.parse(file.read_text()))]
    functions = [(name, node) for name, node in nodes if isinstance(node, ast.FunctionDef)]
    assert len(functions) > 100
    assert [(name, node.name) for name, node in functions if node.end_lineno - node.lineno >= 50] == []
