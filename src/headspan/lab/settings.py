"""Settings of a run, checked when they are made, and read from texts such as `layers=1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headspan.errors import ArgumentError


def check_settings(settings: object, **rules: tuple[bool, str]) -> None:
    """Refuse the first setting that breaks its rule: by name, whether it holds, and what the value needs to be."""
    for name, (holds, needed) in rules.items():
        if not holds:
            raise ArgumentError(f"{name} needs to be {needed}, found {getattr(settings, name)!r}")


def one_of(known: Sequence[str]) -> str:
    """What a name that is chosen among several needs to be."""
    return f"one of {', '.join(known)}"


def parse_settings(pairs: Sequence[str], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Settings from `name=value` texts, each value in the type that `kinds` has for its name, or text."""
    found = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip().replace("-", "_")
        kind = kinds.get(name, "str")
        if not equals or kind not in READERS or name == "kind":
            raise ArgumentError(f"settings are written name=value, such as layers=1; found {pair!r}")
        try:
            found[name] = READERS[kind](text.strip())
        except (ValueError, KeyError) as problem:
            raise ArgumentError(f"{name} needs a value of type {kind}, found {text!r}") from problem
    return found


TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
READERS: Mapping[str, Any] = {
    "bool": lambda text: TRUTH[text.lower()],
    "int": int,
    "float": float,
    "str": str,
    "str | None": str,
}
