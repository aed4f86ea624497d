"""`headspan compare`: what changed between two checkpoints of one shape."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headspan.command import COMPARE, Command, Facts, Form, Option, Printed, Rows
from headspan.finding import percent

if TYPE_CHECKING:
    from headspan.result import Result

SHOWN = 10
COMMAND = Command(
    "Compare two checkpoints: how far every head moved, edges gained and lost, spectra; against a random change.",
    COMPARE,
    options={
        "null": Option("Null under which a pair is an edge: two-way, reverse or haar."),
        "level": Option("A pair is an edge if its q-value is below this.", float),
        "draws": Option("Random changes per head.", int),
        "noise": Option(
            "The random change to compare with: gaussian, or rounding (the default where AFTER is quantized).", str
        ),
        "similarity": Option("A leading direction is new if no direction before has a larger cosine with it.", float),
        "run": Option("Also run both models on the same tokens.", bool),
        "text": Option("A text file to run them on; by default what BEFORE writes.", Path, metavar="FILE"),
        "sequences": Option("How many sequences to run them on.", int),
        "length": Option("Tokens per sequence.", int),
    },
)
PAGE = "headspan.explorer.compare_page:write_compare_page"
COLUMNS: dict[str, tuple[str, Form]] = {
    "label": ("head", "{}"),
    "role": ("role", "{}"),
    "grassmann": ("moved", "{:.3f}"),
    "grassmann_null": ("random change", "{:.3f}"),
    "grassmann_z": ("z", "{:+.1f}"),
    "grassmann_q": ("q", "{:.1g}"),
    "grassmann_unrelated": ("unrelated", "{:.2f}"),
    "largest_angle": ("largest angle", "{:.1f}°"),
    "relative_change": ("|dW|/|W|", "{:.3g}"),
    "outside_share": ("outside", percent),
}


def prepare(options: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The text of the file."""
    from headspan.input_files import file_text

    return {**options, "text": None if given["text"] is None else file_text(given["text"])}


def show(result: Result) -> Printed:
    """What stands out, the heads that moved furthest, and the edges that were gained and lost."""
    yield Facts([("", finding.statement) for finding in result.findings], "What changed")
    if "behavior_left_out" in result.attrs:
        yield f"Not run: {result.attrs['behavior_left_out']}"
    rows = result.table("heads")
    rows = rows.assign(label=rows["head"].where(rows["head"].notna(), rows["kv_head"]))
    rows = rows[~rows["unchanged"].astype(bool) & rows["grassmann"].notna()]
    if rows.empty:
        return
    shown = rows.sort_values("grassmann", ascending=False, kind="stable")[:SHOWN]
    title = f"Heads that moved furthest (Grassmann distance), {len(shown)} of {len(rows)}"
    yield Rows.of_columns(title, COLUMNS, shown.to_dict("records"))
    counts = result.table("pairings").rename(columns=lambda name: name.removeprefix("n_"))
    if len(counts):
        yield Rows.of_records("Edges", counts.to_dict("records"))
