"""Curves that the side panel draws for a head: its principal angles and the singular values of its matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from headspan.dims import HEAD, KV_HEAD, LAYER, ROLES, head_axis
from headspan.explorer.store import Store
from headspan.theme import BLUE, CHANCE, GREEN, ORANGE, VERMILION

COLOURS = {"Q": BLUE, "K": VERMILION, "V": GREEN, "O": ORANGE}
"""Roles have the colours of the pairings that end in them."""
MOST_POINTS = 16
"""Of a large model a curve has so many points, evenly chosen, first and last among them."""


def profiles(results: Mapping[str, xr.Dataset | xr.DataTree], store: Store, thin: bool) -> list[dict[str, Any]]:
    """What the panel draws, as far as there are results for it.

    Parameters
    ----------
    results
        By name of the lens.
    store
        Where the curves are kept, as [head, point] in the order of the labels.
    thin
        Keep `MOST_POINTS` points of each curve.
    """
    found = []
    if "similarity" in results:
        found.append(_angles(results["similarity"], store, thin))
    if "spectra" in results:
        lines = _spectra(results["spectra"], store, thin)
        found += [{"title": "Singular values", "across": "number", "lines": lines}] if lines else []
    return found


def _angles(result: xr.Dataset | xr.DataTree, store: Store, thin: bool) -> dict[str, Any]:
    shown = (("angles_RQ_RK", "this head", BLUE, False), ("angles_chance", "by chance", CHANCE, True))
    lines = []
    for variable, name, colour, dashed in shown:
        values = np.degrees(result[variable].transpose(LAYER, HEAD, "angle").values)
        lines.append({"name": name, "colour": colour, "dashed": dashed, "values": _kept(values, store, thin)})
    return {
        "title": "Principal angles of query and key space",
        "unit": "°",
        "top": 90,
        "across": "number",
        "lines": lines,
    }


def _spectra(result: xr.Dataset | xr.DataTree, store: Store, thin: bool) -> list[dict[str, Any]]:
    lines = []
    for role in ROLES:
        node = f"W_{role}_head"
        if node in getattr(result, "children", ()):
            values = result[node].to_dataset()["singular_value"]
            axis = KV_HEAD if KV_HEAD in values.dims else HEAD
            kept = _kept(values.transpose(LAYER, axis, "rank").values, store, thin)
            kv = head_axis(role) == KV_HEAD
            lines.append({"name": f"W_{role}", "colour": COLOURS[role], "kv": kv, "values": kept})
    return lines


def _kept(values: np.ndarray, store: Store, thin: bool) -> dict[str, str]:
    """[head, point] in single precision: these are drawn, not saved."""
    flat = values.reshape(-1, values.shape[-1])
    if thin and flat.shape[1] > MOST_POINTS:
        flat = flat[:, np.linspace(0, flat.shape[1] - 1, MOST_POINTS).round().astype(int)]
    return store.array(flat.astype(np.float32))
