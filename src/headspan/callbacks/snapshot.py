"""The weights of a model in training as an ordinary checkpoint folder: config.json and model.safetensors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from headspan.checkpoint import open_checkpoint
from headspan.errors import ArgumentError, StoreError


def write_snapshot(model: Any, config: Any, folder: Path) -> None:
    """Write a model's weights as they are now.

    Parameters
    ----------
    model, config
        What `headspan.open` takes in memory: a `transformers` model, or a module or state dict with its config.
    folder
        Where to; replaced if it exists.
    """
    checkpoint = open_checkpoint(_source(model, config))
    names = list(checkpoint.store.infos)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.store.read(names).items()}
    fields = {name: value for name, value in checkpoint.config.fields.items() if _is_plain(value)}
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
        save_file(_unshared(tensors), folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    except OSError as problem:
        shutil.rmtree(folder, ignore_errors=True)
        raise StoreError(f"cannot write the weights to '{folder}': {problem.strerror or problem}") from problem


def _source(model: Any, config: Any) -> Any:
    if config is None:
        return model
    if isinstance(model, Mapping):
        return dict(model), config
    if not hasattr(model, "state_dict"):
        raise ArgumentError(f"model is a {type(model).__name__}; give a torch module, or its state dict with config=")
    return model.state_dict(), config


def _unshared(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors with memory of their own: safetensors refuses tied ones."""
    seen: set[int] = set()
    found = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        found[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    return found


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold it."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
