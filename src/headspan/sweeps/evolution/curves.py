"""Every lens over steps: each quantity of a lens's result, averaged over layers and heads, as one curve.

A quantity is a variable of floats that is neither a chance value, a spread, a p-value nor a place on a map of heads,
whose mean says nothing. Its chance value, where the lens has one, becomes a second curve beside it. Quantities that
never change are left out, and of equal ones all but one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headspan.sweeps.evolution.words import ROLE_END, all_in_words

NOT_A_QUANTITY = re.compile(
    r"(chance|_sd(_|$)|_z(_|$)|p_value|q_value|log_p|expected|unrelated|typical|density|histogram|_low$|_high$|"
    r"^n_pairs|^anticausal|identical_to|previous_step|_before|_after|^std$|^edge|^sigma|^direction_|"
    r"cluster$|^linkage$|^mds$|tsne|^random_change$)"
)

AT_ONCE = 64_000_000
"""Bytes of a variable that are read at a time."""


@dataclass(frozen=True)
class Curve:
    """One quantity over steps; `chance` is NaN where the lens has no chance value for it."""

    lens: str
    name: str
    steps: np.ndarray
    values: np.ndarray
    chance: np.ndarray


def curves(lenses: xr.DataTree, model: str) -> Iterator[Curve]:
    """The curves of all lenses of one model in a store."""
    for lens, tree in lenses.children.items():
        for node in tree.subtree:
            dataset = node.to_dataset()
            if "step" not in dataset.dims or dataset.sizes["step"] < 2:
                continue
            path = node.path.removeprefix(tree.path).strip("/")
            yield from _distinct(list(_of_node(lens, path, dataset.sel(model=model))))


def _distinct(found: list[Curve]) -> list[Curve]:
    """Each curve once: a lens may hold a table and its mean. The one with a chance value stays, else the first."""
    kept: dict[int, Curve] = {}
    for place in sorted(range(len(found)), key=lambda place: bool(np.isnan(found[place].chance).all())):
        values = found[place].values
        if not any(np.allclose(values, other.values, rtol=1e-9, atol=0, equal_nan=True) for other in kept.values()):
            kept[place] = found[place]
    return [kept[place] for place in sorted(kept)]


def _of_node(lens: str, path: str, node: xr.Dataset) -> Iterator[Curve]:
    steps = node["step"].values
    for name, variable in node.data_vars.items():
        key = str(name)
        if variable.dtype.kind != "f" or "step" not in variable.dims or NOT_A_QUANTITY.search(key):
            continue
        for label, part in _by_metric(variable):
            values = _mean(part)
            if np.isfinite(values).sum() < 2 or np.nanmax(values) == np.nanmin(values):
                continue
            chance = _chance(node, key, label)
            yield Curve(lens, " ".join(filter(None, (path, key, label))), steps, values, chance)


def _by_metric(variable: xr.DataArray) -> Iterator[tuple[str, xr.DataArray]]:
    """Scores on different scales are not averaged with one another."""
    if "metric" not in variable.dims:
        yield "", variable
        return
    for metric in variable["metric"].values:
        yield str(metric), variable.sel(metric=metric)


def _mean(variable: xr.DataArray) -> np.ndarray:
    """The mean over everything but steps, of what is defined; some steps at a time, since series may be long."""
    n_steps = variable.sizes["step"]
    together = max(1, AT_ONCE * n_steps // max(1, variable.nbytes))
    blocks = [variable.isel(step=slice(start, start + together)) for start in range(0, n_steps, together)]
    return np.concatenate([_mean_of_block(block) for block in blocks])


def _mean_of_block(variable: xr.DataArray) -> np.ndarray:
    rows = variable.transpose("step", ...).values.reshape(variable.sizes["step"], -1)
    known = np.isfinite(rows)
    total, count = np.where(known, rows, 0.0).sum(1), known.sum(1)
    mean: np.ndarray = np.divide(total, count, out=np.full(len(rows), np.nan), where=count > 0)
    return mean


def _chance(node: xr.Dataset, name: str, metric: str) -> np.ndarray:
    role = ROLE_END.match(name)
    candidates = [f"{name}_chance", *([f"{role['name']}_chance_{role['role']}"] if role else [])]
    candidates += ["chance_mean"] if name == "mean" else []
    for candidate in candidates:
        if candidate in node and "step" in node[candidate].dims:
            found = node[candidate]
            return _mean(found.sel(metric=metric) if metric and "metric" in found.dims else found)
    return np.full(node.sizes["step"], np.nan)


def curve_dataset(found: list[Curve], steps: np.ndarray) -> xr.Dataset:
    """All curves on one axis of steps, NaN where a curve has none: `value` and `chance`, [quantity, step]."""
    places = {int(step): place for place, step in enumerate(steps)}
    values = np.full((2, len(found), len(steps)), np.nan)
    for row, curve in enumerate(found):
        at = [places[int(step)] for step in curve.steps]
        values[0, row, at], values[1, row, at] = curve.values, curve.chance
    return xr.Dataset(
        {"value": (("quantity", "step"), values[0]), "chance": (("quantity", "step"), values[1])},
        coords={
            "quantity": [f"{curve.lens} {curve.name}" for curve in found],
            "lens": ("quantity", [curve.lens for curve in found]),
            "words": ("quantity", all_in_words([(curve.lens, curve.name) for curve in found])),
            "step": np.asarray(steps),
        },
    )
