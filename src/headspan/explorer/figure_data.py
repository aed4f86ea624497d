"""The tables behind the figures: for each figure that shows heads, layers or matrices, its numbers by name.

Figures that are not listed here (curves, histograms, maps of a prompt) are saved as what they draw, trace by trace; the
browser makes that table out of the figure itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
import xarray as xr

from headspan.explorer.figure_block import figure_id
from headspan.explorer.grid_table import grid_table
from headspan.explorer.pair_table import carried_pairings
from headspan.explorer.tables import PageTable
from headspan.lenses.affinity.hubs import hub_scores, ranked_hubs

Result = xr.Dataset | xr.DataTree
PAIRS = ("Wiring diagram", "Wiring around an ellipse", "Kernel against composition score", "All pairs")
MASSES = ("self_mass", "previous_mass", "first_mass", "sink_mass")


def _beside_chance(*names: str) -> tuple[str, ...]:
    return tuple(name + part for name in names for part in ("", "_chance"))


GRIDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "similarity": {
        "Principal angles": _beside_chance("angle_count"),
        "Distances within layers": (*_beside_chance("layer_distance"), "layer_distance_z"),
        "Map of heads": ("mds", "tsne"),
        "Sampled directions": _beside_chance("sample_tsne"),
    },
    "positions": {
        "Spectra of the tables": _beside_chance("singular_value"),
        "Attention and the tables": ("overlap", "overlap_chance", "overlap_z"),
        "MLP and the tables": ("overlap", "overlap_chance", "overlap_z"),
        "Layers along the tables": tuple(
            f"{name}{part}" for name in ("alignment", "energy_alignment") for part in ("", "_chance", "_z", "_log_p")
        ),
        "Angles between rows": _beside_chance("cosine_density"),
    },
    "spectra": {
        "Base alignment": (
            "alignment:trace",
            "trace_chance",
            "trace_sd",
            "trace_z",
            "p_value",
            "q_value",
            "trace_share",
            "trace_z_product",
        ),
        "Symmetric part of W_QK": ("alignment:symmetric_share", *_beside_chance("positive_mass"), "positive_mass_sd"),
    },
    "attention": {
        "Entropy by layer": _beside_chance("relative_entropy"),
        "Where heads look": _beside_chance(*MASSES),
        "States by layer": ("mean_cosine", "effective_rank", "mean_map_rank"),
    },
    "detect": {
        "Detector scores": ("score", "standard_error", "chance", "label"),
        "Identity from the weights": (*_beside_chance("identity_weights"), "identity_weights_sd"),
    },
    "gaussian": {
        "Spread of logits": ("logit_sd", "logit_sd_measured"),
        "Entropy of attention": ("entropy", "entropy_measured", "entropy_uniform"),
        "Information between tokens": _beside_chance("information"),
    },
    "intervene": {
        "Entropy by layer": ("relative_entropy", "averaged_relative_entropy"),
    },
}
"""Variables by lens and figure; `node:variable` where the result is a tree."""


def figure_tables(
    results: Mapping[str, Result], figures: Mapping[str, Mapping[str, go.Figure]], grouped: bool
) -> tuple[list[PageTable], dict[str, dict[str, str]]]:
    """The tables, and by lens and figure the name of its table.

    Parameters
    ----------
    results, figures
        By lens; figures also by name.
    grouped
        Whether kv heads have labels of their own.
    """
    tables, behind = [], {lens: dict.fromkeys(PAIRS, "pairs") if lens == "affinity" else {} for lens in figures}
    for lens, drawn in figures.items():
        for name in drawn:
            table = _table(lens, name, results[lens], grouped)
            if table is not None:
                tables.append(table)
                behind[lens][name] = table.name
    return tables, behind


def _table(lens: str, figure: str, result: Result, grouped: bool) -> PageTable | None:
    """The table of one figure; None where it has none of its own."""
    identifier = figure_id(lens, figure)
    if (lens, figure) == ("affinity", "Hubs") and isinstance(result, xr.DataTree) and carried_pairings(result):
        return PageTable(identifier, "Hubs, strongest first", ranked_hubs(hub_scores(result)))
    names = GRIDS.get(lens, {}).get(figure, ())
    node, _, first = names[0].rpartition(":") if names else ("", "", "")
    there = result[node].to_dataset() if isinstance(result, xr.DataTree) and node in result.children else result
    if not isinstance(there, xr.Dataset):
        return None
    known = [name for name in (first, *names[1:]) if name in there]
    return PageTable(identifier, figure, grid_table(there, known, grouped)) if known else None
