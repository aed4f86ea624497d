"""The order in which a report is read, and which lens belongs where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Chapter:
    """A part of the page: its identifier, its title, and the lenses whose results it holds."""

    name: str
    title: str
    lenses: tuple[str, ...]


CHAPTERS = (
    Chapter("wiring", "Wiring", ("ranks", "affinity")),
    Chapter("likeness", "Head similarity", ("similarity",)),
    Chapter("tables", "Positions and tokens", ("positions",)),
    Chapter("weights", "Spectra", ("spectra",)),
    Chapter("behaviour", "Behaviour", ("attention", "detect", "gaussian", "intervene", "validate")),
)


def chapters_of(lenses: Iterable[str]) -> list[Chapter]:
    """The chapters that these lenses fill, in reading order; a lens that has no place yet stands in one of its own."""
    there = list(lenses)
    placed = {name for chapter in CHAPTERS for name in chapter.lenses}
    found = [
        Chapter(chapter.name, chapter.title, tuple(name for name in chapter.lenses if name in there))
        for chapter in CHAPTERS
    ]
    others = tuple(name for name in there if name not in placed)
    return [chapter for chapter in (*found, Chapter("further", "Further analyses", others)) if chapter.lenses]
