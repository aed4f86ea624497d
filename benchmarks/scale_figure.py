"""Time against operations, measured and predicted, as a drawing for the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

import headspan
from headspan.lenses.affinity.costs import affinity_plan
from headspan.theme import BLUE, ORANGE, PURPLE, styled

if TYPE_CHECKING:
    from benchmarks.scale import Fit

COLORS = {"gram": ORANGE, "projector": BLUE, "sketch": PURPLE}
LARGER = ("gpt2", "mistral-7b", "llama-70b")


def predictions(fits: Sequence[Fit]) -> list[tuple[str, str, float, float]]:
    """Model, algorithm, operations and predicted CPU seconds."""
    rows = []
    for shape in LARGER:
        heads = headspan.synthetic(shape).heads().to("float32")
        costs = {cost.algorithm: cost for cost in affinity_plan(heads, ("OQ", "OK", "OV"), 1, 4 * 10**9).costs}
        rows += [
            (shape, fit.algorithm, costs[fit.algorithm].weighed, fit.slope * costs[fit.algorithm].weighed)
            for fit in fits
        ]
    return rows


def write_figure(fits: Sequence[Fit], folder: str) -> None:
    """Draw `scale.svg` and print the predictions as rows of a table."""
    rows, figure = predictions(fits), go.Figure()
    for fit in fits:
        colour = COLORS[fit.algorithm]
        own = [
            (name, operations, seconds) for name, algorithm, operations, seconds in rows if algorithm == fit.algorithm
        ]
        reach = np.geomspace(min(fit.operations), max(operations for _, operations, _ in own), 50)
        line = {"color": colour, "width": 1.5}
        figure.add_trace(go.Scatter(x=reach, y=fit.slope * reach, mode="lines", line=line, showlegend=False))
        marks = {"color": colour, "size": 8}
        name = f"{fit.algorithm}, measured (R² {fit.r_squared:.3f})"
        figure.add_trace(go.Scatter(x=fit.operations, y=fit.seconds, mode="markers", marker=marks, name=name))
        figure.add_trace(
            go.Scatter(
                x=[operations for _, operations, _ in own],
                y=[seconds for _, _, seconds in own],
                text=[f"{shape} " for shape, _, _ in own],
                mode="markers+text",
                textposition="middle left",
                marker={"color": colour, "size": 9, "symbol": "circle-open"},
                name=f"{fit.algorithm}, predicted",
            )
        )
    figure.update_xaxes(
        type="log",
        title_text="operations counted for OQ, OK and OV, those of small products double",
        exponentformat="power",
    )
    figure.update_yaxes(type="log", title_text="CPU seconds", exponentformat="power")
    styled(figure, "Affinity: time follows the operations that are counted", 520)
    figure.update_layout(width=900, legend={"y": -0.25}, margin={"b": 140})
    figure.write_image(Path(folder) / "scale.svg")
    for row in rows:
        print("| {} | {} | {:.2g} | {:.2g} |".format(*row))
