"""Attention beside the cosines of what the tokens are embedded as: does a head look where vectors point alike?"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.theme import DIVERGING, SEQUENTIAL, styled


def attention_beside_cosines(maps: xr.Dataset, texts: list[str], top: float) -> go.Figure:
    """The head average over all layers, and the cosine of every pair of embeddings, on one pair of axes.

    Parameters
    ----------
    maps
        A result of the attention lens.
    texts
        How positions read, as many as are to be drawn.
    top
        Attention at the end of the colour scale.
    """
    n = len(texts)
    attention = maps["mean_map"].mean("layer").values[:n, :n]
    cosine = maps["embedding_cosine"].values[:n, :n].copy()
    np.fill_diagonal(cosine, np.nan)
    if maps.attrs["causal"]:
        attention = np.where(np.tril(np.ones((n, n), dtype=bool)), attention, np.nan)
    words = np.array(texts, dtype=object)
    names = np.stack(np.broadcast_arrays(words[:, None], words[None, :]), axis=-1)
    titles = ("Attention, mean over heads and layers", "Cosine of embeddings")
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.16)
    for column, (values, axis) in enumerate(((attention, "coloraxis"), (cosine, "coloraxis2")), start=1):
        panel = go.Heatmap(z=values, customdata=names, coloraxis=axis, hoverongaps=False)
        panel.update(hovertemplate="%{customdata[0]} and %{customdata[1]}: %{z:.3f}<extra></extra>")
        figure.add_trace(panel, 1, column)
    plain = {"showgrid": False, "zeroline": False, "ticks": "", "showticklabels": False}
    figure.update_xaxes(**plain)
    figure.update_yaxes(**plain, autorange="reversed")
    figure.update_xaxes(title_text="attended to", col=1).update_yaxes(title_text="attending", col=1)
    bar = {"outlinewidth": 0, "thickness": 12, "len": 0.9}
    figure.update_layout(
        coloraxis={"colorscale": SEQUENTIAL, "cmin": 0, "cmax": top, "colorbar": {**bar, "x": 0.43}},
        coloraxis2={"colorscale": DIVERGING, "cmin": -1, "cmax": 1, "colorbar": {**bar, "x": 1.01}},
    )
    return styled(figure, "Where attention goes, beside how alike the embedded tokens are", 440)
