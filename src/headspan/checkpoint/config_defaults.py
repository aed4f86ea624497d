"""What a nested config leaves out.

`transformers` writes a config inside another one without the fields that have their default, so that the `text_config`
of a published LLaVA does not even say how many layers it has. The defaults stand in `config_defaults.json`, for the
fields that headspan asks for; a test holds them against `transformers`, and `python -m tests.families.config_defaults`
writes them anew. A config that is a file of its own must say everything itself: what it lacks is an error there.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from headspan.checkpoint.config import Config


@cache
def defaults() -> dict[str, dict[str, Any]]:
    """Fields and their defaults, by model_type."""
    text = files("headspan.checkpoint").joinpath("config_defaults.json").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, Any]] = json.loads(text)
    return loaded


def with_defaults(config: Config) -> Config:
    """A nested config with its omitted fields filled in."""
    return Config({**defaults().get(config.model_type, {}), **config.fields}, config.place)
