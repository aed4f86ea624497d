"""Attention maps as heat maps: panels, their one color scale, labels of axes, and lines between shots."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from headspan.errors import one_line
from headspan.theme import ORANGE, SEQUENTIAL

MOST = 96
"""More positions than this cannot be read in one map; the first ones are drawn and the title says so."""


def axis_texts(maps: xr.Dataset) -> tuple[list[int], list[str]]:
    places = list(range(min(MOST, maps.sizes["query"])))
    # plotly reads tags in labels: the token <s> would strike out what follows.
    return places, [escape(one_line(text)[:14], quote=False) for text in maps["key_text"].values[: len(places)]]


def map_panel(maps: xr.Dataset, values: np.ndarray, texts: list[str], named: bool = True) -> go.Heatmap:
    n = len(texts)
    seen = np.where(values[:n, :n] > 0, values[:n, :n], np.nan) if maps.attrs["causal"] else values[:n, :n]
    if named:
        return square_panel(seen, texts, "→", "coloraxis")
    # Many panels: words along the axes only, or the page would hold them once for every entry.
    panel = go.Heatmap(z=seen.astype(np.float32), coloraxis="coloraxis", hoverongaps=False)
    return panel.update(hovertemplate="word %{y} → word %{x}: %{z:.3f}<extra></extra>")


def square_panel(values: np.ndarray, texts: list[str], between: str, coloraxis: str) -> go.Heatmap:
    words = np.array(texts, dtype=object)
    names = np.stack(np.broadcast_arrays(words[:, None], words[None, :]), axis=-1)
    panel = go.Heatmap(z=values, customdata=names, coloraxis=coloraxis, hoverongaps=False)
    return panel.update(hovertemplate=f"%{{customdata[0]}} {between} %{{customdata[1]}}: %{{z:.3f}}<extra></extra>")


def map_colors(*maps: np.ndarray) -> dict[str, Any]:
    """One scale for all maps. The first row of a causal map is always 1, which would leave the others dark."""
    later = np.concatenate([each[..., 1:, :].ravel() for each in maps])
    seen = later[later > 0]
    top = float(np.quantile(seen, 0.99)) if len(seen) else 1.0
    return {"colorscale": SEQUENTIAL, "cmin": 0, "cmax": top, "colorbar": {"title": {"text": "mean attention"}}}


def label_axes(figure: go.Figure, rows: int, places: list[int], texts: list[str]) -> None:
    """Words on the left of the first column and below the last row of panels, the others bare."""
    size = 9 if len(places) <= 40 else 7
    tick: dict[str, Any] = {
        "tickmode": "array",
        "tickvals": places,
        "ticktext": texts,
        "ticks": "",
        "tickfont": {"size": size},
    }
    plain = {"showgrid": False, "zeroline": False, "showticklabels": False}
    figure.update_xaxes(**tick, **plain, tickangle=-90)
    figure.update_yaxes(**tick, **plain, autorange="reversed")
    figure.update_xaxes(showticklabels=True, row=rows)
    figure.update_yaxes(showticklabels=True, col=1)


def draw_boundaries(figure: go.Figure, maps: xr.Dataset, n: int) -> None:
    """Lines between shots, where the prompt has any."""
    for boundary in np.atleast_1d(maps.attrs.get("boundaries", [])):
        if 0 < boundary < n:
            for axis in (figure.add_vline, figure.add_hline):
                axis(float(boundary) - 0.5, line={"color": ORANGE, "width": 1})
