"""The folder of a run: what it holds, whose it is, and the state from which a killed run goes on.

    run.json               the recipe
    state.pt               weights, optimizer, generators and record at the last saved step (one file, replaced whole,
                           with its checksum); state.previous.pt is the one before it
    checkpoints/step-N/    weights at chosen steps, each an ordinary checkpoint: config.json and model.safetensors
    model/                 the weights at the end
    track.nc, lenses.nc    the record, and what the lenses see along the kept checkpoints
    result.json            the summary

A folder that holds another run, or anything else, is refused before any work is done for it. Content is made in memory
and written to a temporary name first, so that a full disk or a kill leaves the file before it as it was.
"""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from headspan.atomic import written_whole
from headspan.checkpoint.config import read_json
from headspan.errors import CheckpointError, DamagedFile, HeadspanError
from headspan.folder_lock import LOCK, locked
from headspan.input_files import LARGEST_STATE, file_bytes
from headspan.lab.architecture import MODEL_TYPE, Architecture
from headspan.lab.model import LabModel
from headspan.lab.optimizers import Optimizer
from headspan.lab.recipe import Recipe
from headspan.lab.record import Row
from headspan.seal import sealed, unsealed

SCHEMA = "headspan.lab-run/1"
CONFIG, WEIGHTS = "config.json", "model.safetensors"
PACKED = ("step", "model", "optimizer", "data", "dropout", "rows")


@dataclass
class Progress:
    """Everything that changes while a run trains."""

    step: int
    model: LabModel
    optimizer: Optimizer
    data: torch.Generator
    dropout: torch.Generator
    rows: list[Row]

    def pack(self) -> dict[str, Any]:
        """As plain tensors, lists and numbers, which load without running code."""
        rows = [{name: torch.from_numpy(np.asarray(value)) for name, value in row.items()} for row in self.rows]
        return {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "data": self.data.get_state(),
            "dropout": self.dropout.get_state(),
            "rows": rows,
        }

    def unpack(self, state: Mapping[str, Any], place: str) -> None:
        """Go on from a packed state."""
        load_weights(self.model, dict(state["model"]), place)
        self.optimizer.load_state_dict(state["optimizer"])
        self.data.set_state(state["data"])
        self.dropout.set_state(state["dropout"])
        self.step = int(state["step"])
        self.rows = [{name: value.numpy() for name, value in row.items()} for row in state["rows"]]


class RunFolder:
    """One run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe_file, self.result_file = path / "run.json", path / "result.json"
        self.state_file, self.model_folder = path / "state.pt", path / "model"
        self.previous_file = path / "state.previous.pt"
        self.track_file, self.lenses_file = path / "track.nc", path / "lenses.nc"

    def __repr__(self) -> str:
        return f"RunFolder('{self.path}')"

    @classmethod
    def claim(cls, path: Path, recipe: Recipe) -> RunFolder:
        """The folder for a run: made, or found to hold this same run; refused if it holds anything else."""
        folder = cls(path)
        if path.exists() and not path.is_dir():
            raise HeadspanError(f"'{path}' is a file; -o names a folder for the run")
        if folder.recipe_file.is_file():
            folder._check_same(recipe)
        elif path.is_dir() and any(entry.name != LOCK for entry in path.iterdir()):
            raise HeadspanError(f"the folder '{path}' is not empty and holds no run; choose another with -o")
        make_folder(path)
        return folder

    @contextmanager
    def writing(self, recipe: Recipe) -> Iterator[None]:
        """Within the block, this process alone trains in the folder."""
        with locked(self.path, "training run"):
            write_json_file(self.recipe_file, {"schema": SCHEMA, "recipe": recipe.record()})
            yield

    def _check_same(self, recipe: Recipe) -> None:
        before, now = self.recipe().identity(), recipe.identity()
        name = next((name for name in now if before.get(name) != now[name]), None)
        if name is not None:
            raise HeadspanError(
                f"the folder '{self.path}' holds another run ({name} {before.get(name)!r}, now {now[name]!r}); "
                "choose another with -o"
            )

    def recipe(self) -> Recipe:
        """The recipe of the run in this folder."""
        return Recipe.of(read_json(self.recipe_file).get("recipe", {}))

    def save_state(self, progress: Progress) -> None:
        """Keep a state to go on from, with its checksum; the one before it stays as `state.previous.pt`."""
        buffer = io.BytesIO()
        torch.save(progress.pack(), buffer)
        content = sealed(buffer.getvalue())
        with suppress(OSError):  # where files cannot be linked, there is one state and no other
            self.previous_file.unlink(missing_ok=True)
            os.link(self.state_file, self.previous_file)
        write_bytes(self.state_file, content)

    def load_state(self, progress: Progress) -> bool:
        """Go on from the kept state, or from the one before it where that is damaged; False where there is none."""
        if not self.state_file.exists():
            return False
        used, damage = self.state_file, ""
        try:
            try:
                state = _read_state(self.state_file)
            except _Damaged as problem:
                used, damage = self.previous_file, str(problem)
                state = _read_state(self.previous_file)
            progress.unpack(state, str(used))
        except (_Damaged, KeyError, ValueError, RuntimeError, TypeError, AttributeError) as problem:
            raise HeadspanError(
                f"'{self.state_file}' is damaged or another configuration's ({damage or problem}); delete it to start "
                "anew"
            ) from problem
        if damage:
            warnings.warn(
                f"'{self.state_file}' is damaged ({damage}); the run goes on from the state before it, at step "
                f"{progress.step}",
                DamagedFile,
                stacklevel=2,
            )
        return True

    def keep_checkpoint(self, model: LabModel, step: int) -> Path:
        """Write the weights at a step as a checkpoint of their own."""
        return save_model(model, self.path / "checkpoints" / f"step-{step}")

    def save_model(self, model: LabModel, step: int) -> None:
        """The end of a run: its model, and the same as the last kept checkpoint."""
        self.keep_checkpoint(model, step)
        save_model(model, self.model_folder)

    def checkpoints(self) -> dict[int, Path]:
        """Kept checkpoints by step, ascending."""
        found = (self.path / "checkpoints").glob("step-*/config.json")
        steps = {int(file.parent.name.removeprefix("step-")): file.parent for file in found}
        return dict(sorted(steps.items()))


class _Damaged(Exception):
    """A state that cannot be read."""


def _read_state(path: Path) -> dict[str, Any]:
    """A packed state; one without a checksum is an older version's, and begins as every zip file does."""
    try:
        content = unsealed(file_bytes(path, LARGEST_STATE), older=b"PK")
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        return {name: state[name] for name in PACKED}
    except Exception as problem:  # on damaged bytes torch's reader raises whatever it stumbles over
        raise _Damaged(" ".join(str(problem).split())[:200] or type(problem).__name__) from problem


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole, or leave the one before it."""
    with written_whole(path) as temporary:
        temporary.write_bytes(content)


def write_json_file(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON object whole, or leave the file before it."""
    write_bytes(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, or say in one line why not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise HeadspanError(
            f"cannot make the folder '{folder}': {problem.strerror or problem}; choose another place with -o"
        ) from problem


def save_model(model: LabModel, folder: Path) -> Path:
    """Write the model as a checkpoint folder that headspan (or safetensors alone) opens; returns the folder."""
    make_folder(folder)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_bytes(folder / WEIGHTS, save(tensors, metadata={"format": "pt"}))
    write_json_file(folder / CONFIG, model.shape.config())
    return folder


def open_model(folder: Path) -> LabModel:
    """A lab model from its checkpoint folder.

    Raises
    ------
    CheckpointError
        If the folder is no checkpoint of the lab, or its weights are not those that its config describes.
    """
    config = read_json(folder / CONFIG)
    if config.get("model_type") != MODEL_TYPE:
        raise CheckpointError(
            f"'{folder}' holds a model of type {config.get('model_type')!r}; the lab runs only its own ({MODEL_TYPE!r})"
        )
    model = LabModel(Architecture.of(config))
    try:
        tensors = load(file_bytes(folder / WEIGHTS, LARGEST_STATE))
    except (HeadspanError, SafetensorError) as problem:
        raise CheckpointError(f"'{folder / WEIGHTS}' cannot be read: {problem}") from problem
    load_weights(model, tensors, str(folder))
    return model


def load_weights(model: LabModel, tensors: dict[str, torch.Tensor], place: str) -> None:
    """Put weights into a model, refused if they are another configuration's."""
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if expected != found:
        name = next(name for name in sorted(set(expected) | set(found)) if expected.get(name) != found.get(name))
        raise CheckpointError(
            f"'{place}' is another configuration's: tensor '{name}' needs shape {expected.get(name)}, "
            f"found {found.get(name)}"
        )
    model.load_state_dict(tensors)
