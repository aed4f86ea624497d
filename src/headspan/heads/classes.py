"""Classes of heads: published lists, or a user's own in a YAML file, checked against the model they are for.

A labels file is YAML: `classes`, a map from class names to lists of heads, and optionally `source` and `model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from headspan.dims import HeadLabel
from headspan.errors import ArgumentError, HeadspanError
from headspan.heads.heads import Heads
from headspan.input_files import LARGEST_YAML, file_text, user_path, yaml_value

PUBLISHED: Mapping[str, str] = {"ioi": "gpt2_heads_wang2023.yaml", "2601.10266": "gpt2_heads_2601_10266.yaml"}
DEFAULT = "2601.10266"


@dataclass(frozen=True)
class HeadClasses:
    """Class of each labeled head, and where the labels come from."""

    classes: Mapping[str, tuple[str, ...]]
    """Class name -> head labels."""
    source: str

    @property
    def of_head(self) -> dict[str, str]:
        """Head label -> class; a head in several classes counts for the first."""
        found: dict[str, str] = {}
        for name, labels in self.classes.items():
            for label in labels:
                found.setdefault(label, name)
        return found


def head_classes(labels: str | Path, model: Heads | Mapping[str, Any]) -> HeadClasses:
    """Labels by published name (`ioi`, `2601.10266`) or from a YAML file, checked against the model.

    Parameters
    ----------
    labels
        A published name or the path of a file.
    model
        The heads the labels are for, or the attributes of a result about them; a label that names a head the model does
        not have is refused.
    """
    name, shape = str(labels), _shape(model)
    if name in PUBLISHED:
        text = resources.files("headspan.heads").joinpath("published", PUBLISHED[name]).read_text("utf-8")
    else:
        text = _file_text(user_path(labels))
    content = _content(text, name)
    _check_model(content.get("model"), shape, name)
    classes = {str(key): _checked_labels(values, shape, str(key)) for key, values in content["classes"].items()}
    return HeadClasses(classes, str(content.get("source", name)))


def published_classes(model: Heads | Mapping[str, Any]) -> HeadClasses | None:
    """The published labels that fit a model: those of GPT-2 small, by its shape; None for any other."""
    try:
        return head_classes(DEFAULT, model)
    except HeadspanError:
        return None


def _shape(model: Heads | Mapping[str, Any]) -> dict[str, Any]:
    """What labels are checked against, of heads or of a result's attributes."""
    names = ("family", "n_layers", "n_heads", "n_kv_heads", "d_model")
    if not isinstance(model, Heads):
        return {name: model.get(name, 0) for name in names}
    return {"family": model.checkpoint.family, **{name: getattr(model.stack, name) for name in names[1:]}}


def _file_text(path: Path) -> str:
    try:
        return file_text(path, LARGEST_YAML)
    except HeadspanError as problem:
        raise HeadspanError(f"labels {problem}; give a YAML file, or one of {', '.join(PUBLISHED)}") from problem


def _content(text: str, name: str) -> dict[str, Any]:
    content = yaml_value(text, name)
    if not isinstance(content, dict) or not isinstance(content.get("classes"), dict) or not content["classes"]:
        raise HeadspanError(
            f"labels '{name}' need a map 'classes' from class names to lists of heads such as [L4H7, L5H1]"
        )
    return content


def _check_model(wanted: object, shape: Mapping[str, Any], name: str) -> None:
    if not isinstance(wanted, dict):
        return
    wrong = [f"{key} {shape[key]}, not {value}" for key, value in wanted.items() if shape.get(key, value) != value]
    if wrong:
        raise HeadspanError(f"labels '{name}' are for another model: this one has {', '.join(wrong)}")


def _checked_labels(values: object, shape: Mapping[str, Any], name: str) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str | float) for value in values):
        raise HeadspanError(f"class '{name}' needs a list of heads such as [L4H7, L5H1]")
    labels = [HeadLabel.parse(str(value)) for value in values]
    for label in labels:
        limit = shape["n_kv_heads" if label.kv else "n_heads"]
        if label.layer >= shape["n_layers"] or label.head >= limit:
            raise ArgumentError(
                f"class '{name}' names {label}, but the model has layers 0..{shape['n_layers'] - 1} "
                f"and heads 0..{limit - 1}"
            )
    return tuple(str(label) for label in labels)
