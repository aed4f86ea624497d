"""A lab model on disk: config.json and model.safetensors in a folder, as any other checkpoint; and back.

Content is made in memory and written to a temporary name first, so that a full disk or a kill leaves the file before it
as it was.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from headspan.atomic import written_whole
from headspan.checkpoint.config import read_json
from headspan.errors import CheckpointError, HeadspanError
from headspan.lab.architecture import MODEL_TYPE, Architecture
from headspan.lab.model import LabModel

CONFIG, WEIGHTS = "config.json", "model.safetensors"


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
        tensors = load((folder / WEIGHTS).read_bytes())
    except (OSError, SafetensorError) as problem:
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
