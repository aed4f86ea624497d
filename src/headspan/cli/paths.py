"""`headspan paths`: the divergence of softmax along great circles, with the parameters that the thesis fixes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from headspan.atomic import check_writable, refuse_existing, written_whole
from headspan.cli import options as shared
from headspan.errors import ArgumentError
from headspan.finding import percent

MOST = 9
"""Radii in one call, and so panels in one figure."""


def paths(
    size: Annotated[int, typer.Option("--size", min=2, help="Entries of a vector.")] = 100,
    radius: Annotated[list[float] | None, typer.Option(help="Radius of the sphere; repeatable (default 1).")] = None,
    angle: Annotated[float, typer.Option(help="Angle between the two ends, in degrees.")] = 90.0,
    pairs: Annotated[int, typer.Option(min=4, help="Random pairs of ends to average over.")] = 1000,
    steps: Annotated[int, typer.Option(min=5, help="Points along a path.")] = 41,
    seed: shared.Seed = 0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the figure, as .html.")] = None,
    force: shared.Force = False,
) -> None:
    """KL from the end of a great circle, over random pairs: is its average a cosine of the angle?"""
    radii = radius or [1.0]
    if not 0 < angle < 180 or any(not 0 < each < math.inf for each in radii) or len(radii) > MOST:
        raise ArgumentError(f"an angle lies between 0 and 180 degrees, and there are 1 to {MOST} radii above 0")
    if output is not None:
        check_writable(output, (".html",))
        refuse_existing(output, force)
    from headspan.cli.delivery import print_table
    from headspan.dims import check_seed
    from headspan.distributions import path_study

    check_seed(seed)
    studies = [path_study(size, each, math.radians(angle), pairs, steps=steps, seed=seed) for each in radii]
    rows = []
    for one in studies:
        gap = float((one.mean - one.law).abs().max() / one.law.abs().max())
        half = float(one.mean[len(one.t) // 2] / one.mean[0])
        shares = (percent(share, 2) for share in (half, gap, one.residual))
        rows.append([f"{one.radius:g}", f"{float(one.mean[0]):.4g}", *shares])
    columns = ("radius", "KL at the start, nats", "left half-way", "average off c (1 - cos)", "a pair off a cosine")
    print_table(f"KL along great circles, {pairs} pairs of {size} entries at {angle:g} degrees", columns, rows)
    if output is not None:
        from headspan.explorer.claims_page import paths_page

        with written_whole(output) as temporary:
            temporary.write_text(paths_page(studies), encoding="utf-8")
        typer.echo(f"Written to {output}", err=True)
