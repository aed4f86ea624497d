"""What can be swept over, and which series come of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headspan.errors import ArgumentError, HeadspanError
from headspan.sweeps.specification import Series, as_record, from_record, group_name, parse_series


def checkpoint(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def test_revisions_in_braces_are_one_series_in_order_of_their_steps() -> None:
    (series,) = parse_series("org/pythia@{step1000, step0,step512}")
    assert series == Series(
        "org/pythia", {0: "org/pythia@step0", 512: "org/pythia@step512", 1000: "org/pythia@step1000"}
    )


def test_revisions_that_a_shell_expanded_are_the_same_series() -> None:
    assert parse_series(["org/m@step1", "org/m@step2"]) == parse_series("org/m@{step1,step2}")


def test_a_branch_or_commit_without_a_step_is_a_model_of_its_own() -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    found = parse_series(["org/m", "org/m@main", f"org/m@{commit}", "demo"])
    assert [series.model for series in found] == ["org/m", "org/m@main", f"org/m@{commit}", "demo"]
    assert all(list(series.sources) == [0] for series in found)


def test_a_folder_of_steps_is_a_series_by_the_numbers_in_their_names(tmp_path: Path) -> None:
    for name in ("checkpoint-20", "checkpoint-100", "checkpoint-3"):
        checkpoint(tmp_path / "run" / name)
    (tmp_path / "run" / "logs-7").mkdir()
    (tmp_path / "run" / "trainer_state.json").write_text("{}")
    (series,) = parse_series(tmp_path / "run")
    assert series.model == "run"
    assert [Path(source).name for source in series.sources.values()] == [
        "checkpoint-3",
        "checkpoint-20",
        "checkpoint-100",
    ]


def test_a_step_that_lost_its_config_is_kept_so_that_it_fails_by_name(tmp_path: Path) -> None:
    checkpoint(tmp_path / "run" / "step-1")
    (tmp_path / "run" / "step-2").mkdir()
    (tmp_path / "run" / "step-2" / "model.safetensors").write_text("")
    (series,) = parse_series(tmp_path / "run")
    assert list(series.sources) == [1, 2]


def test_runs_of_the_lab_are_series_alone_and_together(tmp_path: Path) -> None:
    for seed in (0, 1):
        for step in (0, 50):
            checkpoint(tmp_path / "runs" / f"seed-{seed}" / "checkpoints" / f"step-{step}")
    assert [series.model for series in parse_series(tmp_path / "runs" / "seed-1")] == ["seed-1"]
    both = parse_series(tmp_path / "runs")
    assert [(series.model, list(series.sources)) for series in both] == [
        ("runs-seed-0", [0, 50]),
        ("runs-seed-1", [0, 50]),
    ]


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_a_file_lists_names_or_maps_models_to_them(ending: str, tmp_path: Path) -> None:
    checkpoint(tmp_path / "run" / "step-4")
    file = tmp_path / f"list.{ending}"
    file.write_text(json.dumps(["run", "org/m@{step1,step2}", "demo"]))
    assert [series.model for series in parse_series(file)] == ["run", "org/m", "demo"]
    file.write_text(json.dumps({"a": "run", "b": ["org/m@step1", "org/m@step2"], "c": "demo"}))
    named = {series.model: list(series.sources) for series in parse_series(file)}
    assert named == {"a": [4], "b": [1, 2], "c": [0]}


def test_yaml_may_say_which_step_a_checkpoint_is(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("mine:\n  0: org/first\n  10: org/second@main\n")
    (series,) = parse_series(tmp_path / "list.yaml")
    assert series == Series("mine", {0: "org/first", 10: "org/second@main"})
    (tmp_path / "list.yaml").write_text("mine:\n  early: org/first\n")
    with pytest.raises(HeadspanError, match=r"the step 'early' of 'mine' is not a whole number"):
        parse_series(tmp_path / "list.yaml")


def test_a_text_file_holds_one_name_per_line(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("demo\norg/m@step3\n")
    assert [series.model for series in parse_series(tmp_path / "list.txt")] == ["demo", "org/m"]


def test_two_checkpoints_at_one_step_are_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path / "a" / "run" / "step-1")
    checkpoint(tmp_path / "b" / "run" / "step-1")
    with pytest.raises(ArgumentError, match=r"'run' has two checkpoints at step 1: .* names of their own in a YAML"):
        parse_series([tmp_path / "a" / "run", tmp_path / "b" / "run"])


def test_names_that_make_the_same_folder_are_refused(tmp_path: Path) -> None:
    assert group_name("org/name@main") == "org--name-main"
    assert group_name("../..") == "--.."
    with pytest.raises(ArgumentError, match=r"'org/m' and 'org--m' would share a place"):
        parse_series(["org/m", "org--m"])


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- 3\n")
    with pytest.raises(HeadspanError, match=r"names a checkpoint by 3; a path or a name on the Hub"):
        parse_series(tmp_path / "list.yaml")


def test_series_survive_a_manifest() -> None:
    series = parse_series(["org/m@{step1,step20}", "demo"])
    assert from_record(json.loads(json.dumps(as_record(series)))) == series
