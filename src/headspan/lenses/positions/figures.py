"""Positions and tokens, drawn: spectra, capture, overlaps, every layer, sparse directions, sinusoids, layer 0."""

from __future__ import annotations

import plotly.graph_objects as go
import xarray as xr

from headspan.lenses.positions.direction_figures import direction_figure, wave_figure
from headspan.lenses.positions.layer_figures import alignment_figure, logit_figure
from headspan.lenses.positions.overlap_figures import attention_overlaps, mlp_overlaps, table_overlaps
from headspan.lenses.positions.table_figures import capture_figure, cosine_figure, spectrum_figure


def figures(result: xr.Dataset) -> dict[str, go.Figure]:
    """All figures that this result has the numbers for."""
    drawn = {"Spectra of the tables": spectrum_figure(result)}
    if "capture" in result:
        drawn["Capture"] = capture_figure(result)
        drawn["Overlap of the tables"] = table_overlaps(result)
    if "sparsity_gini" in result:
        drawn["Position directions in the stream"] = direction_figure(result)
    if "curve" in result:
        drawn["Position directions over positions"] = wave_figure(result)
    drawn["Attention and the tables"] = attention_overlaps(result)
    if "out" in result["matrix"].values:
        drawn["MLP and the tables"] = mlp_overlaps(result)
    drawn["Layers along the tables"] = alignment_figure(result)
    if "logit_share" in result:
        drawn["Logits of layer 0"] = logit_figure(result)
    drawn["Angles between rows"] = cosine_figure(result)
    return drawn
