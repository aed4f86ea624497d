"""Words and their clues, read from a file of two columns, and which of them are shown and which held out."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headspan.errors import HeadspanError, ShapeError

COLUMNS = ["word", "clue"]
MAX_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Pair:
    """A word and what is said of it."""

    word: str
    clue: str


@dataclass(frozen=True)
class Split:
    """Pairs to show, in order, and pairs to ask for."""

    shots: tuple[Pair, ...]
    held_out: tuple[Pair, ...]


def read_pairs(path: Path) -> tuple[Pair, ...]:
    """The pairs of a CSV file with the header `word;clue`, in UTF-8."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise HeadspanError(f"'{path}' is larger than {MAX_BYTES:,} bytes; a file of pairs is not")
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise HeadspanError(f"'{path}' is not in UTF-8 ({problem.reason}); save it in that encoding") from problem
    except OSError as problem:
        raise HeadspanError(f"'{path}' cannot be read: {problem.strerror}") from problem
    try:
        rows = list(csv.reader(text.splitlines(), delimiter=";"))
    except csv.Error as problem:
        raise HeadspanError(f"'{path}' is not a table separated by semicolons: {problem}") from problem
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    if header != COLUMNS:
        raise HeadspanError(f"'{path}' needs the columns word;clue in its first line, found {';'.join(header)!r:.60}")
    pairs = []
    for number, row in enumerate(rows[1:], start=2):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) != 2 or not all(cells):
            raise HeadspanError(f"line {number} of '{path}' needs a word and a clue, found {';'.join(row)!r:.60}")
        pairs.append(Pair(*cells))
    return tuple(pairs)


def split_pairs(pairs: Sequence[Pair], shots: int, seed: int, targets: Sequence[str] = ()) -> Split:
    """Choose `shots` pairs at random to show; the rest, or the `targets` among all pairs, are held out.

    A target word never is a shot; one that has no pair is asked for all the same, without a clue to hold against.
    """
    wanted = {word.strip().casefold() for word in targets}
    free = [pair for pair in pairs if pair.word.casefold() not in wanted]
    if shots < 1 or len(free) < shots or (not wanted and len(free) == shots):
        need = shots if wanted else shots + 1
        raise ShapeError(
            f"{shots} shots need at least {max(need, 2)} pairs (targets not counted), found {len(free)}; "
            "give more pairs or ask for fewer shots, at least 1"
        )
    order = np.random.default_rng(seed).permutation(len(free))
    shown = tuple(free[place] for place in order[:shots])
    known = {pair.word.casefold(): pair for pair in pairs}
    asked = tuple(known.get(word.strip().casefold(), Pair(word.strip(), "")) for word in targets)
    return Split(shown, asked if wanted else tuple(free[place] for place in order[shots:]))
