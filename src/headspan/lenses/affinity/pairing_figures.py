"""How pairings and scores are named, coloured and placed in the figures of the affinity lens."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from headspan.dims import COMPOSING, PAIRINGS
from headspan.lenses.affinity import METRICS, VARIABLES
from headspan.lenses.affinity.edges import pairing_node, pairings_of
from headspan.theme import BLUE, CATEGORIES, GREEN, VERMILION

COLOURS = {"OQ": BLUE, "OK": VERMILION, "OV": GREEN}
ROLE_NAMES = {"Q": "query", "K": "key", "V": "value", "O": "output"}
METRIC_NAMES = {"pk": "projection kernel", "cs": "composition score"}
COLUMNS = 3


def shown_pairings(result: xr.DataTree) -> list[str]:
    """Those of OQ, OK, OV that a result holds; where it holds none of them, all that it holds."""
    held = pairings_of(result)
    return [pairing for pairing in COMPOSING if pairing in held] or held


def shown_metrics(result: xr.DataTree) -> list[str]:
    """The scores that every shown pairing has, projection kernel first."""
    nodes = [pairing_node(result, pairing) for pairing in shown_pairings(result)]
    return [metric for metric in METRICS if all(VARIABLES[metric][0] in node for node in nodes)]


def pairing_name(pairing: str) -> str:
    """`OQ` as "OQ: output to query"."""
    return f"{pairing}: {ROLE_NAMES[pairing[0]]} to {ROLE_NAMES[pairing[1]]}"


def pairing_colour(pairing: str) -> str:
    """The colour a pairing has in every figure."""
    return COLOURS.get(pairing, CATEGORIES[PAIRINGS.index(pairing) % len(CATEGORIES)])


def chance_of(node: xr.Dataset, metric: str) -> tuple[float, float]:
    """Mean and standard deviation of a score between subspaces in general position."""
    here = node.sel(metric=metric)
    return float(here["chance_mean"]), float(here["chance_std"])


def panels(titles: Sequence[str], **options: object) -> tuple[go.Figure, list[tuple[int, int]]]:
    """Panels in rows of three, and the row and column of each."""
    columns = min(COLUMNS, len(titles))
    rows = -(-len(titles) // columns)
    figure = make_subplots(rows, columns, subplot_titles=titles, **options)
    return figure, [(place // columns + 1, place % columns + 1) for place in range(len(titles))]
