"""The defaults of every family's config that headspan asks for, from `transformers`; run to write them to the package.

python -m tests.families.config_defaults
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import transformers

from headspan.checkpoint.config import Config
from headspan.checkpoint.families import FAMILIES, OWN

PLACE = Path(__file__).parents[2] / "src" / "headspan" / "checkpoint" / "config_defaults.json"


@dataclass(frozen=True)
class Listening(Config):
    """A config that remembers what it was asked for."""

    asked: set[str] = field(default_factory=set)

    def get(self, *names: str) -> Any:
        self.asked.update(names)
        return super().get(*names)


def current_defaults() -> dict[str, dict[str, Any]]:
    """By model_type, the fields our description reads that have a plain default."""
    found = {}
    for model_type in sorted(set(FAMILIES) - set(OWN)):
        fields = transformers.AutoConfig.for_model(model_type).to_dict()
        config = Listening(fields)
        FAMILIES[model_type](config)
        # A default that is worked out from other fields (kv heads from heads) is None in the class, and left out.
        plain = {name: getattr(transformers.CONFIG_MAPPING[model_type], name, None) for name in sorted(config.asked)}
        found[model_type] = {
            name: value
            for name, value in plain.items()
            if isinstance(value, int | float | str) and name != "model_type"
        }
    return found


if __name__ == "__main__":
    PLACE.write_text(json.dumps(current_defaults(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
