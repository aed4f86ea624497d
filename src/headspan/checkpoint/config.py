"""A model's config.json, read with suspicion.

Fields are asked for by name (with the older spellings of the same field) and come back checked: present, of the right
type, within limits that no real model exceeds. Nothing downstream has to wonder whether `num_hidden_layers` is a
thousand million or a string.

`transformers` writes a config inside another one without the fields that have their default, so that the `text_config`
of a published LLaVA does not even say how many layers it has. The defaults stand in `config_defaults.json`, for the
fields that headspan asks for; a test holds them against `transformers`, and `python -m tests.families.config_defaults`
writes them anew. A config that is a file of its own must say everything itself: what it lacks is an error there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from headspan import input_files
from headspan.errors import CheckpointError

MAX_JSON_BYTES = input_files.LARGEST_JSON
MAX_LAYERS = 10_000
MAX_HEADS = 65_536
MAX_WIDTH = 10_000_000
MAX_NUMBER = 1e30


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; anything else is a CheckpointError that names the file."""
    return input_files.read_json(path, CheckpointError)


def json_object(content: bytes, place: str) -> dict[str, Any]:
    """The JSON object that `content` spells; anything else is a CheckpointError that names `place`."""
    return input_files.json_object(content, place, CheckpointError)


@dataclass(frozen=True)
class Config:
    """The fields of a config.json; `place` is what error messages call it."""

    fields: Mapping[str, Any]
    place: str = "config.json"

    @property
    def model_type(self) -> str:
        value = self.fields.get("model_type")
        if not isinstance(value, str) or not value:
            raise CheckpointError(
                f"{self.place} has no 'model_type'; add the type transformers uses, for example \"gpt2\""
            )
        return value

    def get(self, *names: str) -> Any:
        """The first of these fields that is there and not null, or None."""
        return next((self.fields[name] for name in names if self.fields.get(name) is not None), None)

    def with_fields(self, fields: Mapping[str, Any]) -> Config:
        """The same config with some fields replaced."""
        return replace(self, fields={**self.fields, **fields})

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.get(name)
        return default if value is None else bool(value)

    def integer(self, *names: str, most: int, default: int | None = None, least: int = 1) -> int:
        """A whole number between `least` and `most`, under any of its spellings."""
        value = self.get(*names)
        if value is None:
            if default is None:
                raise CheckpointError(f"{self.place} has no '{names[0]}', which model_type '{self.model_type}' needs")
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise CheckpointError(
                f"{self.place}: '{names[0]}' is {_short(value)}, not a whole number in {least}..{most}"
            )
        return value

    def number(self, *names: str, default: float) -> float:
        value = self.get(*names)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise CheckpointError(f"{self.place}: '{names[0]}' is {_short(value)}, not a number")
        if abs(value) > MAX_NUMBER or value != value:
            raise CheckpointError(f"{self.place}: '{names[0]}' is {_short(value)}, which no model has")
        return float(value)

    def positive(self, *names: str, default: float) -> float:
        """A number above 0."""
        value = self.number(*names, default=default)
        if value <= 0:
            raise CheckpointError(f"{self.place}: '{names[0]}' is {_short(value)}, not a number above 0")
        return value

    def optional(self, name: str | None) -> float | None:
        """A number, or None where there is none or it is 0; `outer.inner` reads a nested field."""
        if name is None:
            return None
        outer, _, inner = name.rpartition(".")
        return (self.part(outer) if outer else self).number(inner, default=0.0) or None

    def part(self, name: str, model_type: str | None = None) -> Config:
        """The nested config under `name`, empty where there is none; of that type unless it names its own."""
        nested = self.get(name)
        if nested is not None and not isinstance(nested, dict):
            raise CheckpointError(f"{self.place}: '{name}' is {_short(nested)}, not a nested config")
        inherited = {"model_type": model_type or self.fields.get("model_type")}
        return Config({**inherited, **(nested or {})}, f"{self.place}: '{name}'")


def _short(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "an integer of over 30 digits"
    return text if len(text) <= 60 else text[:57] + "..."


@cache
def defaults() -> dict[str, dict[str, Any]]:
    """Fields and their defaults, by model_type."""
    text = files("headspan.checkpoint").joinpath("config_defaults.json").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, Any]] = json.loads(text)
    return loaded


def with_defaults(config: Config) -> Config:
    """A nested config with its omitted fields filled in."""
    return Config({**defaults().get(config.model_type, {}), **config.fields}, config.place)
