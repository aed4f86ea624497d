"""What to sweep over: from what the user names to series of checkpoints, one per model.

1. A name is a YAML (or JSON, or text) file, a folder of checkpoints by step, `repo@{step1,step2}`, or one checkpoint.
2. Names that differ only in their step (`repo@step1`, `repo@step2`) make one series; a folder is a series.
3. The step is the last number in the revision's or folder's name. Where there is none, a model has one checkpoint.

In YAML: a list of names; or a mapping from the model's name to a name, a list of names, or a mapping from step to name.
Paths in a file are taken from where the file is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headspan.errors import ArgumentError, HeadspanError
from headspan.input_files import LARGEST_YAML, file_text, user_path, yaml_value

LIST_FILES = (".yaml", ".yml", ".json", ".txt")
BRACES = re.compile(r"^(?P<repo>[^{}@]+)@\{(?P<revisions>[^{}]*)\}$")
LAST_NUMBER = re.compile(r"^(?P<before>.*?)(?P<number>\d+)(?P<after>\D*)$")
STEP_FOLDER = re.compile(r"^(?:.*[^0-9])?\d+$")
CHECKPOINT_FILES = ("config.json", "adapter_config.json")
DEEPEST_LIST = 3
MOST_CHECKPOINTS = 100_000
LAST_STEP = 2**53
"""Steps are stored as numbers that a double holds exactly."""


@dataclass
class Series:
    """The checkpoints of one model by training step."""

    model: str
    sources: dict[int, str] = field(default_factory=dict)

    def add(self, step: int, source: str) -> None:
        """Put a checkpoint into the series; two different ones at a step are refused."""
        if not 0 <= step < LAST_STEP or len(self.sources) >= MOST_CHECKPOINTS:
            raise ArgumentError(
                f"'{self.model}' has a checkpoint at step {step}; a series has up to {MOST_CHECKPOINTS:,} checkpoints, "
                f"at steps from 0 to {LAST_STEP - 1}"
            )
        if self.sources.get(step, source) != source:
            raise ArgumentError(
                f"'{self.model}' has two checkpoints at step {step}: '{self.sources[step]}' and '{source}'; "
                "give them names of their own in a YAML file (name: source)"
            )
        self.sources[step] = source


def parse_series(specs: str | Path | Sequence[str | Path]) -> list[Series]:
    """Every series that the given names stand for, steps ascending.

    Raises
    ------
    ArgumentError
        If nothing is named, or two checkpoints claim one step of one model.
    HeadspanError
        If a file cannot be understood.
    """
    names = [specs] if isinstance(specs, str | Path) else list(specs)
    found: dict[str, Series] = {}
    for name in names:
        try:
            _add_name(found, str(name), Path())
        except OSError as problem:
            raise HeadspanError(f"'{name}' cannot be looked into: {problem.strerror or problem}") from problem
    if not found:
        raise ArgumentError(
            "there is nothing to sweep over: give a list of checkpoints, a folder of them by step, or repo@{step1,...}"
        )
    series = [Series(each.model, dict(sorted(each.sources.items()))) for each in found.values()]
    check_places(series)
    return series


def check_places(series: Iterable[Series]) -> None:
    """Refuse models whose names make the same folder."""
    folders: dict[str, str] = {}
    for each in series:
        other = folders.setdefault(group_name(each.model), each.model)
        if other != each.model:
            raise ArgumentError(f"the models '{other}' and '{each.model}' would share a place; rename one in YAML")


def group_name(model: str) -> str:
    """A model's name as the name of one folder."""
    return re.sub(r"[^A-Za-z0-9._+=-]", "-", model.replace("/", "--")).lstrip(".") or "model"


def _add_name(found: dict[str, Series], name: str, beside: Path, within: tuple[Path, ...] = ()) -> None:
    """Add what a name stands for; `within` are the lists that lead to it."""
    path = (beside / user_path(name)).absolute()
    if path.suffix in LIST_FILES and path.exists() and not path.is_dir():
        if path in within:
            raise HeadspanError(f"the list '{path}' includes itself; name checkpoints in it")
        if len(within) >= DEEPEST_LIST:
            raise HeadspanError(f"'{path}' is a list in a list, {DEEPEST_LIST} deep; name its checkpoints in one list")
        _add_listed(found, _listed(path), (*within, path))
    elif path.is_dir():
        _add_folder(found, path)
    elif braces := BRACES.match(name):
        for revision in filter(None, (part.strip() for part in braces["revisions"].split(","))):
            _add_one(found, f"{braces['repo']}@{revision}")
    else:
        _add_one(found, str(path) if path.exists() else name)


def _listed(path: Path) -> Any:
    text = file_text(path, LARGEST_YAML)
    content = text.split() if path.suffix == ".txt" else yaml_value(text, path)
    if not isinstance(content, list | dict) or not content:
        raise HeadspanError(
            f"'{path.name}' names no checkpoint; it holds a list of them, or a mapping from a model's name to them"
        )
    return content


def _add_listed(found: dict[str, Series], content: Any, within: tuple[Path, ...]) -> None:
    path = within[-1]
    if isinstance(content, list):
        for name in content:
            _add_name(found, _text(name, path), path.parent, within)
        return
    for model, names in content.items():
        own: dict[str, Series] = {}
        if isinstance(names, dict):
            own[""] = Series(str(model))
            for step, name in names.items():
                if not isinstance(step, int) or isinstance(step, bool):
                    raise HeadspanError(f"'{path.name}': the step {step!r} of '{model}' is not a whole number")
                local = path.parent / user_path(_text(name, path))
                own[""].add(step, str(local.absolute()) if local.exists() else _text(name, path))
        else:
            for name in names if isinstance(names, list) else [names]:
                _add_name(own, _text(name, path), path.parent, within)
        series = found.setdefault(str(model), Series(str(model)))
        for part in own.values():
            for step, source in part.sources.items():
                series.add(step, source)


def _text(name: object, path: Path) -> str:
    if not isinstance(name, str) or not name:
        raise HeadspanError(f"'{path.name}' names a checkpoint by {name!r}; a path or a name on the Hub was needed")
    return name


def _add_folder(found: dict[str, Series], folder: Path) -> None:
    """A checkpoint, a folder of checkpoints by step, a run of the lab, or a folder of runs."""
    if _is_checkpoint(folder):
        _add_one(found, str(folder))
        return
    runs = {folder.name: _step_folders(folder) or _step_folders(folder / "checkpoints")}
    if not runs[folder.name]:
        runs = {f"{folder.name}-{run.name}": _step_folders(run / "checkpoints") for run in _folders(folder)}
    if not any(runs.values()):
        raise HeadspanError(
            f"there is no checkpoint in the folder '{folder}'; needed: config.json and weights, or folders of them "
            "named by step, such as step-100 or checkpoint-100"
        )
    for model, steps in runs.items():
        for step, path in steps:
            found.setdefault(model, Series(model)).add(step, str(path))


def _add_one(found: dict[str, Series], source: str) -> None:
    """One checkpoint; its series is named by what does not depend on the step."""
    path = Path(source)
    if path.is_absolute():
        step = _number(path.name) if STEP_FOLDER.match(path.name) else None
        model = path.name if step is None else path.parent.name
    else:
        model, _, revision = source.partition("@")
        step = _number(revision)
        # A commit's letters and digits are no step, and a branch without a number is a model of its own.
        if re.fullmatch(r"[0-9a-f]{40}", revision) or (revision and step is None):
            model, step = source, None
    found.setdefault(model, Series(model)).add(step or 0, source)


def _number(text: str) -> int | None:
    match = LAST_NUMBER.match(text)
    return int(match["number"]) if match and len(match["number"]) <= len(str(LAST_STEP)) else None


def _folders(folder: Path) -> Iterable[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else ()


def _step_folders(folder: Path) -> list[tuple[int, Path]]:
    """Checkpoints in a folder whose names end in a number, by that number."""
    steps = [(_number(path.name), path) for path in _folders(folder) if STEP_FOLDER.match(path.name)]
    return sorted((step, path) for step, path in steps if step is not None and _holds_weights(path))


def _is_checkpoint(folder: Path) -> bool:
    return any((folder / name).is_file() for name in CHECKPOINT_FILES)


def _holds_weights(folder: Path) -> bool:
    """A checkpoint, or what is left of one: a broken checkpoint is to fail by name, not to be passed over."""
    try:
        return _is_checkpoint(folder) or any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))
    except PermissionError:
        return True


def as_record(series: Iterable[Series]) -> dict[str, dict[str, str]]:
    """Series as plain values for a manifest."""
    return {each.model: {str(step): source for step, source in each.sources.items()} for each in series}


def from_record(record: Mapping[str, Mapping[str, str]]) -> list[Series]:
    """Series out of a manifest."""
    found = [Series(model) for model in record]
    for each in found:
        for step, source in sorted((_step(text), source) for text, source in record[each.model].items()):
            each.add(step, source)
    return found


def _step(text: str) -> int:
    if not re.fullmatch(r"\d{1,16}", text):
        raise ArgumentError(f"the step {text!r:.40} is not a whole number")
    return int(text)
