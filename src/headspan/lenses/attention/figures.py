"""Attention on a prompt, drawn: maps, statistics of heads and states by layer; shots of a few-shot prompt."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.dims import HeadLabel
from headspan.lenses.map_panels import axis_texts, draw_boundaries, label_axes, map_colors, map_panel, square_panel
from headspan.result import Result
from headspan.theme import BLUE, CHANCE, DIVERGING, LINE, ORANGE, SEQUENTIAL, around_chance, styled

COLUMNS = {"attention": 3, "shots": 4}
DEEP = 12
"""Layers beyond which maps are drawn half as large."""
MASSES = {
    "self_mass": "to itself",
    "previous_mass": "to the position before",
    "first_mass": "to the first position",
    "sink_mass": "to the position that receives most",
}
BEHIND = {
    "Entropy by layer": ("relative_entropy",),
    "Where heads attend": tuple(MASSES),
    "States by layer": ("mean_cosine", "effective_rank", "mean_map_rank"),
}
"""Variables behind figures, for who saves their data; what is expected under the null goes with them."""


def figures(result: Result) -> dict[str, go.Figure]:
    """All figures that this result has the numbers for."""
    maps = result.grid()
    drawn = {"Attention map": attention_map(maps)}
    if maps.sizes["layer"] > 1:
        drawn["Attention in every layer"] = layer_grid(maps)
    if maps.attrs["n_tokens"] > 1:
        drawn["Entropy by layer"] = entropy_by_layer(maps)
        drawn["Where heads attend"] = mass_maps(maps)
        drawn["States by layer"] = states_by_layer(maps)
        drawn["Attention beside cosines"] = attention_beside_cosines(maps)
        if "state_cosine" in maps:
            drawn["Cosines and attention by layer"] = cosines_by_layer(maps)
    if "within" in maps:
        drawn |= {"Attention between shots": shot_grid(maps), "Within shots": within_scatter(maps)}
        if np.isfinite(maps["log_likelihood"].values).all():
            drawn["Held-out clues"] = likelihood_curve(maps)
    return drawn


def _layer_panels(maps: xr.Dataset, most: int, vertical: float) -> tuple[go.Figure, int, list[tuple[int, int]]]:
    """A grid of empty panels, one per layer; how many rows it has, and the place of every layer."""
    layers = maps["layer"].values
    columns = min(most, len(layers))
    rows = -(-len(layers) // columns)
    titles = [f"Layer {layer}" for layer in layers]
    figure = make_subplots(
        rows,
        columns,
        subplot_titles=titles,
        horizontal_spacing=0.12 / columns,
        vertical_spacing=vertical / rows,
        shared_yaxes=True,
    )
    return figure, rows, [(place // columns + 1, place % columns + 1) for place in range(len(layers))]


def attention_map(maps: xr.Dataset) -> go.Figure:
    """The head average of one layer, with a choice of layers and of how heads are weighted."""
    places, texts = axis_texts(maps)
    figure = go.Figure()
    buttons = []
    choices = [(kind, layer) for layer in range(maps.sizes["layer"]) for kind in ("mean_map", "write_map")]
    for number, (kind, layer) in enumerate(choices):
        figure.add_trace(map_panel(maps, maps[kind].values[layer], texts).update(visible=number == 0))
        words = "mean over heads" if kind == "mean_map" else "weighted by what heads write"
        shown = [other == number for other in range(len(choices))]
        buttons.append({"label": f"Layer {layer}, {words}", "method": "restyle", "args": ["visible", shown]})
    size = 11 if len(places) <= 40 else 8
    tick = {"tickmode": "array", "tickvals": places, "ticktext": texts, "showgrid": False, "ticks": ""}
    tick |= {"zeroline": False, "tickfont": {"size": size}}
    figure.update_xaxes(**tick, tickangle=-90, title_text="attended to")
    figure.update_yaxes(**tick, autorange="reversed", title_text="attending")
    figure.update_layout(
        coloraxis=map_colors(maps["mean_map"].values, maps["write_map"].values),
        updatemenus=[{"buttons": buttons, "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "pad": {"b": 6}}],
        margin={"t": 104},
    )
    draw_boundaries(figure, maps, len(places))
    whole = maps.sizes["query"]
    cut = f", first {len(places)} of {whole} {maps.attrs['level']}s" if len(places) < whole else ""
    return styled(figure, f"Attention map{cut}", 240 + min(720, 17 * max(14, len(places))))


def layer_grid(maps: xr.Dataset) -> go.Figure:
    """The head average of every layer, one panel each, on one color scale."""
    places, texts = axis_texts(maps)
    most = COLUMNS["attention"] if maps.sizes["layer"] <= DEEP else 2 * COLUMNS["attention"]
    figure, rows, panels = _layer_panels(maps, most, 0.16)
    for place, panel in enumerate(panels):
        figure.add_trace(map_panel(maps, maps["mean_map"].values[place], texts), *panel)
    figure.update_xaxes(showgrid=False, showticklabels=False, ticks="", zeroline=False)
    figure.update_yaxes(showgrid=False, showticklabels=False, ticks="", zeroline=False, autorange="reversed")
    draw_boundaries(figure, maps, len(places))
    figure.update_layout(coloraxis=map_colors(maps["mean_map"].values))
    figure.update_coloraxes(colorbar={"lenmode": "pixels", "len": 260, "y": 1, "yanchor": "top"})
    return styled(figure, "Mean over heads, layer by layer", 90 + 290 * COLUMNS["attention"] * rows // most)


def _head_names(maps: xr.Dataset) -> list[str]:
    return [str(HeadLabel(int(layer), int(head))) for layer in maps["layer"].values for head in maps["head"].values]


def entropy_by_layer(maps: xr.Dataset) -> go.Figure:
    """Relative entropy of every head, of the head average, and of uniform attention."""
    values, layers = maps["relative_entropy"].values, maps["layer"].values
    heads = go.Scatter(x=np.repeat(layers, values.shape[1]), y=values.ravel(), mode="markers", text=_head_names(maps))
    heads.update(name="single heads", marker={"color": BLUE, "size": 8, "opacity": 0.6})
    heads.update(hovertemplate="%{text}: %{y:.2f}<extra></extra>")
    average = go.Scatter(x=layers, y=maps["mean_map_relative_entropy"].values, name="mean over heads, then entropy")
    average.update(mode="lines+markers", line={"color": ORANGE}, hovertemplate="layer %{x}: %{y:.2f}<extra></extra>")
    ends = [float(layers.min()) - 0.3, float(layers.max()) + 0.3]
    uniform = go.Scatter(
        x=ends, y=[1, 1], mode="lines", name="uniform attention", line={"color": CHANCE, "dash": "dash"}
    )
    figure = go.Figure([heads, average, uniform.update(hoverinfo="skip")])
    figure.update_layout(legend_y=-0.22)
    figure.update_xaxes(title_text="layer", dtick=1 if len(layers) < 16 else None)
    figure.update_yaxes(title_text="entropy / entropy of uniform", range=[0, 1.06])
    return styled(figure, "How narrowly heads attend", 420)


def mass_maps(maps: xr.Dataset) -> go.Figure:
    """Layer by head: attention to itself, to the position before, to the first, to the position that receives most."""
    figure = make_subplots(2, 2, subplot_titles=list(MASSES.values()), horizontal_spacing=0.2, vertical_spacing=0.16)
    for number, name in enumerate(MASSES):
        row, column = number // 2 + 1, number % 2 + 1
        values, uniform = maps[name].values, float(maps[f"{name}_null"])
        axis = f"coloraxis{number + 1 if number else ''}"
        panel = go.Heatmap(z=values, x=maps["head"].values, y=maps["layer"].values, coloraxis=axis, xgap=1, ygap=1)
        panel.update(
            hovertemplate=f"L%{{y}}H%{{x}}: %{{z:.3f}}, uniform {uniform:.3f}<extra></extra>", hoverongaps=False
        )
        figure.add_trace(panel, row, column)
        scale = around_chance(float(np.nanmin(values)), uniform, float(np.nanmax(values)))
        bar: dict[str, object] = {
            "len": 0.42,
            "thickness": 12,
            "x": 0.405 if column == 1 else 1.005,
            "y": 0.79 if row == 1 else 0.21,
        }
        named = scale.pop("colorbar")
        values_shown = named["tickvals"] if isinstance(named, dict) else []
        bar |= {"tickvals": values_shown, "ticktext": [f"{each:.2g}" for each in values_shown], "outlinewidth": 0}
        figure.update_layout({axis: {**scale, "colorbar": bar}})
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="", dtick=1, title_text="layer")
    figure.update_xaxes(showgrid=False, ticks="", dtick=1)
    figure.update_xaxes(title_text="head", row=2)
    height = 200 + 2 * max(140, 24 * maps.sizes["layer"])
    return styled(figure, "Mean attention of every head; pale: as uniform attention", height)


def states_by_layer(maps: xr.Dataset) -> go.Figure:
    """Mean cosine and effective rank of the states entering each layer, and the rank of the mean map."""
    layers, n = maps["layer"].values, int(maps.attrs["n_tokens"])
    panels = {
        "Mean cosine between states": ("mean_cosine", 0.0),
        "Effective rank of states": ("effective_rank", float(maps["effective_rank_null"])),
        "Numerical rank of the mean map": ("mean_map_rank", float(maps["map_rank_null"])),
    }
    figure = make_subplots(1, 3, subplot_titles=list(panels), horizontal_spacing=0.09)
    for column, (name, expected) in enumerate(panels.values(), start=1):
        line = go.Scatter(x=layers, y=maps[name].values, mode="lines+markers", line={"color": BLUE}, showlegend=False)
        figure.add_trace(line.update(hovertemplate="layer %{x}: %{y:.3g}<extra></extra>"), 1, column)
        label = "random states" if name != "mean_map_rank" else "uniform attention"
        reference = go.Scatter(
            x=layers, y=np.full(len(layers), expected), mode="lines", name=label, showlegend=column > 1
        )
        reference.update(line={"color": CHANCE, "dash": "dash" if column < 3 else "dot"}, hoverinfo="skip")
        figure.add_trace(reference, 1, column)
    figure.update_xaxes(title_text="entering layer", dtick=1 if len(layers) < 16 else None)
    figure.update_yaxes(rangemode="tozero", gridcolor=LINE)
    figure.update_layout(legend_y=-0.28)
    return styled(figure, f"Similarity of the states of {n} positions", 360)


def attention_beside_cosines(maps: xr.Dataset) -> go.Figure:
    """The head average over all layers, and the cosine of every pair of embeddings, on one pair of axes."""
    texts, top = axis_texts(maps)[1], map_colors(maps["mean_map"].values)["cmax"]
    n = len(texts)
    attention = maps["mean_map"].mean("layer").values[:n, :n]
    cosine = maps["embedding_cosine"].values[:n, :n].copy()
    np.fill_diagonal(cosine, np.nan)
    if maps.attrs["causal"]:
        attention = np.where(np.tril(np.ones((n, n), dtype=bool)), attention, np.nan)
    titles = ("Attention, mean over heads and layers", "Cosine of embeddings")
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.16)
    for column, (values, axis) in enumerate(((attention, "coloraxis"), (cosine, "coloraxis2")), start=1):
        figure.add_trace(square_panel(values, texts, "and", axis), 1, column)
    plain = {"showgrid": False, "zeroline": False, "ticks": "", "showticklabels": False}
    figure.update_xaxes(**plain)
    figure.update_yaxes(**plain, autorange="reversed")
    figure.update_xaxes(title_text="attended to", col=1).update_yaxes(title_text="attending", col=1)
    bar = {"outlinewidth": 0, "thickness": 12, "len": 0.9}
    figure.update_layout(
        coloraxis={"colorscale": SEQUENTIAL, "cmin": 0, "cmax": top, "colorbar": {**bar, "x": 0.43}},
        coloraxis2={"colorscale": DIVERGING, "cmin": -1, "cmax": 1, "colorbar": {**bar, "x": 1.01}},
    )
    return styled(figure, "Attention beside the similarity of the embedded tokens", 440)


def cosines_by_layer(maps: xr.Dataset, most: int = 4) -> go.Figure:
    """Cosines of the states that enter a layer above its attention, for layers from the first to the last."""
    places = np.unique(np.linspace(0, maps.sizes["layer"] - 1, most).round().astype(int))
    names = [f"Layer {maps['layer'].values[place]}" for place in places]
    titles = [f"{name}: {what}" for what in ("cosine of states", "attention") for name in names]
    figure = make_subplots(2, len(places), subplot_titles=titles, horizontal_spacing=0.03, vertical_spacing=0.09)
    ticks, texts = axis_texts(maps)
    n = len(texts)
    for column, place in enumerate(places, start=1):
        cosine = maps["state_cosine"].values[place][:n, :n].astype(float)
        np.fill_diagonal(cosine, np.nan)
        if maps.attrs["causal"]:
            cosine = np.where(np.tri(n, dtype=bool), cosine, np.nan)
        figure.add_trace(square_panel(cosine, texts, "and", "coloraxis2"), 1, column)
        figure.add_trace(map_panel(maps, maps["mean_map"].values[place], texts), 2, column)
    label_axes(figure, 2, ticks, texts)
    draw_boundaries(figure, maps, n)
    bar = {"outlinewidth": 0, "thickness": 12, "len": 0.45}
    scale = map_colors(maps["mean_map"].values[places])
    figure.update_layout(
        coloraxis={**scale, "colorbar": {**bar, **scale["colorbar"], "y": 0.2}},
        coloraxis2={"colorscale": DIVERGING, "cmin": -1, "cmax": 1, "colorbar": {**bar, "y": 0.78}},
    )
    return styled(figure, "Cosines of states and attention, mean over heads", 780)


def shot_grid(maps: xr.Dataset) -> go.Figure:
    """Attention between shots, one panel per layer; the last shot is the one asked for."""
    figure, rows, panels = _layer_panels(maps, COLUMNS["shots"], 0.3)
    names = [*(str(number) for number in range(1, maps.sizes["query_shot"])), "asked"]
    for values, place in zip(maps["shot_map"].values, panels, strict=True):
        seen = np.where(values > 0, values, np.nan)
        panel = go.Heatmap(z=seen, x=names, y=names, coloraxis="coloraxis", xgap=1, ygap=1, hoverongaps=False)
        figure.add_trace(panel.update(hovertemplate="shot %{y} → shot %{x}: %{z:.3f}<extra></extra>"), *place)
    figure.update_xaxes(type="category", showgrid=False, ticks="")
    figure.update_yaxes(type="category", showgrid=False, ticks="", autorange="reversed")
    figure.update_layout(coloraxis={"colorscale": SEQUENTIAL, "cmin": 0, "cmax": 1})
    return styled(figure, "Attention between shots, mean over heads", 110 + 210 * rows)


def within_scatter(maps: xr.Dataset) -> go.Figure:
    """Every head: what stays within shots, against what stays within pieces cut elsewhere."""
    within, moved, sd, p = (maps[f"within{part}"].values.ravel() for part in ("", "_null", "_null_sd", "_p"))
    points = go.Scatter(x=moved, y=within, mode="markers", text=_head_names(maps), customdata=p, name="heads")
    points.update(error_x={"array": 2 * sd, "color": CHANCE, "thickness": 1}, marker={"color": BLUE, "size": 8})
    points.update(hovertemplate="%{text}: %{y:.2f} within, %{x:.2f} moved, p = %{customdata:.2g}<extra></extra>")
    low, high = float(np.nanmin([within, moved])), float(np.nanmax([within, moved]))
    same = go.Scatter(x=[low, high], y=[low, high], mode="lines", name="no difference", hoverinfo="skip")
    figure = go.Figure([same.update(line={"color": CHANCE, "dash": "dash"}), points])
    figure.update_xaxes(title_text="within shots with moved boundaries (± 2 sd)")
    figure.update_yaxes(title_text="within shots")
    figure.update_layout(legend_y=-0.2)
    return styled(figure, "Attention within shots", 460)


def likelihood_curve(maps: xr.Dataset) -> go.Figure:
    """Log-likelihood of the held-out clues against the number of shots."""
    line = go.Scatter(x=maps["shots"].values, y=maps["log_likelihood"].values, mode="lines+markers")
    line.update(error_y={"array": maps["log_likelihood_se"].values, "color": CHANCE}, line={"color": ORANGE})
    figure = go.Figure(line.update(hovertemplate="%{x} shots: %{y:.3f}<extra></extra>"))
    figure.update_xaxes(title_text="shots", dtick=1)
    figure.update_yaxes(title_text="log-likelihood per token, nats")
    return styled(figure, "Likelihood of held-out clues (± standard error over words)", 380)
