"""Writes docs/mathematics/calibration.md: the false-positive rate of every p-value. `make calibration` runs it.

`python -m docs.make_calibration channels drift` draws only these topics anew and keeps the rest of the page.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from itertools import groupby
from pathlib import Path

import torch

from docs.calibration.rows import Row

PAGE = Path(__file__).parent / "mathematics" / "calibration.md"
DRAWS = {
    "two_way": 80,
    "wiring": 80,
    "composition_score": 400000,
    "direction": 3000,
    "spikes": 30000,
    "positions": 25,
    "traces": 20,
    "similarity": 30,
    "vocabulary": 12,
    "channels": 15,
    "changes": 6,
    "behavior": 40,
    "attention_cosines": 400,
    "tables": 120,
    "validation": 300,
    "matched": 2000,
    "change_points": 4000,
    "relations": 250,
    "channel_changes": 24,
    "gains": 4000,
}
"""Topics in the order of the page, and how much is drawn for each. Changes and behavior draw few models: their
intervals are wide."""
LEVELS = (0.05, 0.01, 0.001, 0.0001)
INTRODUCTION = """# Calibration

How often does a p-value of headspan fall at or below .05, .01 and .001 where there is nothing to find? A
calibrated test shows these rates or smaller ones. Each test is tried under its **own null**, what its p-value
assumes, and under stress: weights that are anisotropic or have decaying spectra and are still unrelated. Under stress a
rate far above its level does not mean that the arithmetic is wrong; it means that the null is not what unrelated
trained heads look like, and that a small p-value says "not random" rather than "related". For pairs of heads that is
why the [two-way null](two-way-null.md) is the default.

In brackets: the 95 % interval (Wilson). Tests of one model are often not independent, and intervals are then too
narrow. **Bold**: the interval lies above the level. Written by `make calibration` (seed 0); a slow test repeats it with
another seed and holds what an own null gives to its level. A test also holds that every p-value of every lens has its
rows here.
"""
HEADER = """| test | null | n | at .05 | at .01 | at .001 | at .0001 |
|---|---|---|---|---|---|---|"""


def table_rows(found: list[Row]) -> list[str]:
    """A line of the page for every test and null."""
    lines = []
    for (test, null), group in groupby(found, key=lambda row: (row["test"], row["null"])):
        cells = {row["level"]: row for row in group}
        numbers = " | ".join(_cell(cells[level]) if level in cells else "" for level in LEVELS)
        lines.append(f"| {test} | {null} | {next(iter(cells.values()))['n']:,} | {numbers} |")
    return lines


def _cell(row: Row) -> str:
    text = f"{row['rate']:.3g} [{round(row['low'], 7):.2g}, {row['high']:.2g}]"
    return f"**{text}**" if row["low"] > row["level"] else text


def sections(page: str) -> dict[str, str]:
    """The part of every topic of a page, by its name."""
    parts = page.split("\n## ")[1:]
    return {part.partition("\n")[0].replace(" ", "_").lower(): part.partition("\n")[2].strip() for part in parts}


def main(named: list[str]) -> None:
    """The named topics, or all, in order; what each costs is said on the way."""
    torch.set_num_threads(1)
    unknown = sorted(set(named) - set(DRAWS))
    if unknown:
        sys.exit(f"no topic {', '.join(unknown)}; topics are {', '.join(DRAWS)}")
    found = sections(PAGE.read_text(encoding="utf-8"))
    for topic in named or DRAWS:
        start = time.process_time()
        lines = table_rows(import_module(f"docs.calibration.{topic}").rates(0, DRAWS[topic]))
        found[topic] = "\n".join((HEADER, *lines))
        sys.stderr.write(f"{topic}: {time.process_time() - start:.0f} s\n")
        write_page(found)


def write_page(found: dict[str, str]) -> None:
    """The introduction, then every topic that there is, in the order of the page."""
    parts = [f"## {topic.replace('_', ' ').capitalize()}\n\n{found[topic]}\n" for topic in DRAWS if topic in found]
    PAGE.write_text("\n".join((INTRODUCTION, *parts)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
