"""Commands whose help shows no type beside a flag: `--json`, not `--json <bool>`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class _PlainFlags:
    """Takes the type away from every option that is given without a value, typer's own included."""

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in found:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return found


class PlainCommand(_PlainFlags, TyperCommand):
    """One command."""


class PlainGroup(_PlainFlags, TyperGroup):
    """The program, with its commands."""
