"""What affinity's algorithms would cost, and how a result was made, on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from headspan.cli.delivery import print_json

if TYPE_CHECKING:
    import xarray as xr

    from headspan.heads import Heads
    from headspan.lenses.affinity.costs import Cost


def print_plan(
    heads: Heads, pairing: str | None, metrics: Sequence[str], memory: str, sketch: bool, as_json: bool
) -> None:
    """Operations, memory, scratch space and likely time of each algorithm, and which is chosen."""
    from headspan.cli.tables import print_table
    from headspan.dims import COMPOSING, parse_pairings
    from headspan.heads.memory import working_memory
    from headspan.heads.precision import computing_dtype
    from headspan.lenses.affinity.costs import affinity_plan, product_speed

    wanted = COMPOSING if pairing is None else parse_pairings(pairing)
    heads = heads.to(computing_dtype(heads))
    plan = affinity_plan(heads, wanted, len(metrics), working_memory(memory), "sketch" if sketch else "auto")
    speed = product_speed(heads.dtype)
    if as_json:
        document = {"schema": "headspan.affinity-plan/1", "chosen": plan.chosen.algorithm, "reason": plan.reason}
        print_json({**document, "speed": speed, "costs": [_record(cost, speed) for cost in plan.costs]})
        return
    print_table(
        f"{len(wanted)} pairings in {str(heads.dtype).removeprefix('torch.')}, at {speed:.2g} operations a second",
        ("algorithm", "operations", "memory", "scratch file", "about"),
        [_row(cost, speed) for cost in plan.costs],
    )
    typer.echo(f"Chosen: {plan.chosen.algorithm} ({plan.reason}). Reading the weights is not counted.")


def _record(cost: Cost, speed: float) -> dict[str, object]:
    names = ("algorithm", "operations", "memory", "scratch")
    return {**{name: getattr(cost, name) for name in names}, "seconds": cost.seconds(speed)}


def _row(cost: Cost, speed: float) -> tuple[str, ...]:
    scratch = _size(cost.scratch) if cost.scratch else "none"
    return (cost.algorithm, f"{cost.operations:.2g}", _size(cost.memory), scratch, _duration(cost.seconds(speed)))


def print_made(result: xr.DataTree) -> None:
    """How the result was made, where there is more to say than the tables do."""
    made = result.attrs
    if "float32_error" in made:
        typer.echo(
            f"Computed in float32: largest error {made['float32_error']:.1g} on {made['float32_error_pairs']} sampled "
            "pairs, against float64."
        )
    if made.get("algorithm") != "sketch":
        return
    for pairing, node in result.children.items():
        about = node.attrs
        short = "" if about["certified"] >= made["top"] else f" of {made['top']} asked for; the rest are too alike"
        typer.echo(
            f"{pairing}: {about['verified']:,} pairs verified; the top {about['certified']} are exact with confidence "
            f"{made['confidence']:.0%}{short} (sketch of {made['sketch_width']})."
        )


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.1f} MB"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
