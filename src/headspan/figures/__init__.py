"""Results to plotly figures: `headspan.figures.<lens>.figures(result)` for each lens that has one. Draw only."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import plotly.graph_objects as go


def figures_of(lens: str, result: Any) -> dict[str, go.Figure]:
    """The figures of a lens's result by short title, in the order in which they are to be shown."""
    drawn: dict[str, go.Figure] = import_module(_module(lens)).figures(result)
    return drawn


def _module(lens: str) -> str:
    own = {"lab": "headspan.lab", "evolution": "headspan.sweeps.evolution"}
    return f"{own.get(lens, f'headspan.lenses.{lens}')}.figures"


__all__ = ["figures_of"]
