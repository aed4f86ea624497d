"""Scripts and styles of the page, read from `assets/`: plain files, put on the page as they are."""

from __future__ import annotations

from importlib import resources

from headspan.explorer.html import Markup, element


def asset(name: str) -> str:
    """The text of one file of `assets/`."""
    return resources.files("headspan.explorer").joinpath("assets", name).read_text("utf-8")


def style(*names: str) -> Markup:
    """Style sheets as one element."""
    return element("style", *(Markup(asset(name)) for name in names))


def scripts(*names: str) -> list[Markup]:
    """Scripts, each in an element of its own, in the order in which they run."""
    return [element("script", Markup(asset(name))) for name in names]
