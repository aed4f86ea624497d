"""The folder of a run: what it holds, whose it is, and the state from which a killed run goes on.

    run.json               the recipe
    state.pt               weights, optimiser, generators and record at the last saved step (one file, replaced whole)
    checkpoints/step-N/    weights at chosen steps, each an ordinary checkpoint
    model/                 the weights at the end
    track.nc, lenses.nc    the record, and what the lenses see along the kept checkpoints
    result.json            the summary

A folder that holds another run, or anything else, is refused before any work is done for it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headspan.checkpoint.config import read_json
from headspan.errors import HeadspanError
from headspan.lab.model import LabModel
from headspan.lab.recipe import Recipe
from headspan.lab.saving import load_weights, make_folder, save_model, write_bytes, write_json_file

Row = dict[str, np.ndarray]
SCHEMA = "headspan.lab-run/1"


@dataclass
class Progress:
    """Everything that changes while a run trains."""

    step: int
    model: LabModel
    optimizer: torch.optim.Optimizer
    data: torch.Generator
    dropout: torch.Generator
    rows: list[Row]

    def packed(self) -> dict[str, Any]:
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


@dataclass(frozen=True)
class RunFolder:
    """One run's files."""

    path: Path

    @classmethod
    def claim(cls, path: Path, recipe: Recipe) -> RunFolder:
        """The folder for a run: made, or found to hold this same run; refused if it holds anything else."""
        folder = cls(path)
        if path.exists() and not path.is_dir():
            raise HeadspanError(f"'{path}' is a file; -o names a folder for the run")
        if folder.recipe_file.is_file():
            folder._check_same(recipe)
        elif path.is_dir() and any(path.iterdir()):
            raise HeadspanError(f"the folder '{path}' is not empty and holds no run; choose another with -o")
        make_folder(path)
        write_json_file(folder.recipe_file, {"schema": SCHEMA, "recipe": recipe.record()})
        return folder

    def _check_same(self, recipe: Recipe) -> None:
        before, now = self.recipe().identity(), recipe.identity()
        differing = [name for name in now if before.get(name) != now[name]]
        if differing:
            name = differing[0]
            old, new = before.get(name), now[name]
            if isinstance(old, dict) and isinstance(new, dict):
                part = next(key for key in new if old.get(key) != new[key])
                name, old, new = f"{name}.{part}", old.get(part), new[part]
            raise HeadspanError(
                f"the folder '{self.path}' holds another run ({name} {old!r}, now {new!r}); choose another with -o"
            )

    @property
    def recipe_file(self) -> Path:
        return self.path / "run.json"

    @property
    def state_file(self) -> Path:
        return self.path / "state.pt"

    @property
    def track_file(self) -> Path:
        return self.path / "track.nc"

    @property
    def lenses_file(self) -> Path:
        return self.path / "lenses.nc"

    @property
    def result_file(self) -> Path:
        return self.path / "result.json"

    @property
    def model_folder(self) -> Path:
        return self.path / "model"

    def recipe(self) -> Recipe:
        """The recipe of the run in this folder."""
        return Recipe.of(read_json(self.recipe_file).get("recipe", {}))

    def save_state(self, progress: Progress) -> None:
        """Keep a state to go on from; the one before stays until this one is whole."""
        buffer = io.BytesIO()
        torch.save(progress.packed(), buffer)
        write_bytes(self.state_file, buffer.getvalue())

    def load_state(self, progress: Progress) -> bool:
        """Go on from the kept state; False where there is none."""
        if not self.state_file.is_file():
            return False
        try:
            state = torch.load(self.state_file, map_location="cpu", weights_only=True)
            progress.unpack(state, str(self.state_file))
        except (KeyError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as problem:
            raise HeadspanError(
                f"'{self.state_file}' is damaged or another configuration's ({problem}); delete it to start anew"
            ) from problem
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
