"""`headspan train` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
import xarray as xr
from typer.testing import CliRunner

from headspan.cli.train import train as command
from headspan.errors import ArgumentError, HeadspanError

app = typer.Typer()
app.command()(command)
app.command("other")(lambda: None)
TINY = [
    part
    for setting in ("d_model=16", "vocabulary=16", "length=16", "shortest=4", "longest=6", "ood_block=7", "cooldown=0",
                    "track_every=4", "sharpness_every=0", "test_size=16", "batch=8", "lenses_every=0")
    for part in ("--set", setting)
]  # fmt: skip
ADDITION = [
    part
    for setting in ("d_model=16", "mlp=8", "track_every=4", "sharpness_every=0", "lenses_every=0")
    for part in ("--set", setting)
]


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["train", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_json_says_how_good_when_and_where(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    document = json.loads(run("copying", "-o", folder, "--preset", "smoke", "--steps", 8, "--json", *TINY))
    assert {"id_accuracy", "ood_accuracy", "transition_step", "paths"} <= set(document)
    assert document["transition_step"] is None
    assert Path(document["paths"]["model"], "model.safetensors").is_file()
    assert Path(document["paths"]["track"]).is_file()
    again = json.loads(run("copying", "-o", folder, "--preset", "smoke", "--steps", 8, "--json", *TINY))
    assert again == document


def test_several_seeds_print_a_table_and_a_success_rate(tmp_path: Path) -> None:
    text = run("copying", "-o", tmp_path / "runs", "--preset", "smoke", "--steps", 4, "--seeds", "0..1", *TINY)
    assert "Learned (OOD accuracy above 0.9): 0 % of 2 seeds" in text
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"seed-0", "seed-1"}


@pytest.mark.slow
def test_a_report_of_a_run_that_learned_nothing_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = ("--preset", "smoke", "--steps", 8, "--json", "--report")
    document = json.loads(run("copying", "-o", folder, *options, *TINY))
    page = Path(document["report"]).read_text()
    assert "The model does not learn to copy within 8 steps" in page
    assert "Left out: swap: the run has no transition to look before; train longer." in page
    assert "Left out: ablation: the embedding&#x27;s spectrum has no gap" in page
    assert 'id="lab"' in page
    assert 'id="affinity"' in page, "the lab's section stands in the ordinary report"
    assert page.count("<html") == 1


@pytest.mark.slow
def test_lenses_follow_a_run_unless_told_not_to(tmp_path: Path) -> None:
    options = ("--preset", "smoke", "--steps", 8, "--json", *TINY, "--set", "lenses_every=8")
    document = json.loads(run("copying", "-o", tmp_path / "run", *options))
    series = xr.open_datatree(document["paths"]["lenses"], engine="netcdf4")
    assert {"ranks", "affinity", "similarity", "positions", "spectra"} <= set(series.children)
    assert series["similarity"]["step"].values.tolist() == [0, 8]
    series.close()
    bare = json.loads(run("copying", "-o", tmp_path / "bare", *options, "--no-lenses"))
    assert "lenses" not in bare["paths"]


def test_a_study_is_kept_with_every_run_and_answered_in_a_sentence(tmp_path: Path) -> None:
    options = ("--preset", "smoke", "--steps", 4, "--seeds", "0..1", "--study", "sparsity", *TINY)
    text = run("copying", "-o", tmp_path / "runs", *options)
    assert "Learned position directions live on so many of 16 coordinates" in text.replace("\n", " ")
    document = json.loads(run("copying", "-o", tmp_path / "runs", "--json", *options))
    assert [Path(file).name for file in document["studies"]["sparsity"]["paths"]] == ["study-sparsity.nc"] * 2
    assert "2 runs" in document["studies"]["sparsity"]["answers"][0]


def test_addition_and_text_train_too(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(b"the quick brown fox jumps over the lazy dog. " * 60)
    assert "none" in run("addition", "-o", tmp_path / "a", "--steps", 4, *ADDITION)
    assert "none" in run("text", "--text", file, "-o", tmp_path / "t", "--steps", 4, *ADDITION)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sorting"], "there is no task 'sorting'; tasks are copying, addition, text"),
        (["copying", "--preset", "slow"], "the task copying has no preset 'slow'"),
        (["addition", "--preset", "fast"], "the task addition has no preset 'fast'; its presets are default"),
        (["text", "--text", "x.txt", "--preset", "smoke"], "the task text has no presets, found --preset smoke"),
        (["copying", "--steps", "0"], "steps needs to be at least 1, found 0"),
        (["copying", "--set", "heads=3"], "d_model 64 is not divisible by 3 heads"),
        (
            ["copying", "--set", "longest=40"],
            "longest needs to be at most 32, to fit 2 times into 64 positions",
        ),
        (["copying", "--set", "vocabulary=1"], "vocabulary needs to be 2 to 1,000,000 tokens, found 1"),
        (["copying", "--text", "x.txt"], "--text goes with the task text, not with copying"),
        (["text"], "the task text needs a file: --text FILE"),
        (["copying", "--seeds", "9..0"], "need to ascend"),
        (["copying", "--study", "telepathy"], "there is no study 'telepathy'; studies are plateau, sparsity, lengths"),
        (["text", "--text", "x.txt", "--tokenizer", "absent.json"], "tokenizer 'absent.json' cannot be read"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_folder(arguments: list[str], message: str, tmp_path: Path) -> None:
    error = HeadspanError if "cannot be read" in message else ArgumentError
    with pytest.raises(error, match=message):
        run(*arguments, "-o", tmp_path / "run")
    assert not (tmp_path / "run").exists()
