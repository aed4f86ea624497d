"""Classes of heads in a wiring diagram: how each is coloured, and its name as plotly is to show it."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from headspan.errors import one_line

CLASS_COLOURS = ("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00")
"""The light palette of Paul Tol: distinct to colour-blind readers and pale enough for dark labels."""
CLASS_SYMBOLS = ("circle", "diamond", "hexagon")


def class_text(name: str) -> str:
    """A class's name as a label. plotly reads tags in labels, and knows no entity for quotes, which stay."""
    return escape(one_line(name), quote=False)


def class_styles(classes: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Colour and symbol of every class, in the order of the classes."""
    return {
        name: (
            CLASS_COLOURS[place % len(CLASS_COLOURS)],
            CLASS_SYMBOLS[place // len(CLASS_COLOURS) % len(CLASS_SYMBOLS)],
        )
        for place, name in enumerate(dict.fromkeys(classes.values()))
    }
