"""Drift between steps and spectra over time, as tables over steps for figures and sentences."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

import numpy as np
import xarray as xr

from headspan.dims import ROLES, head_axis
from headspan.lenses.catalog import lenses
from headspan.result import Lens

TURN, CHANGE = "grassmann", "relative_change"
SHAPES = ("stable_rank", "effective_rank", "ks", "energy_ratio", "spikes")
LEVEL = 0.05


def tree_with_table(trees: xr.DataTree, name: str, key: str) -> xr.DataTree | None:
    """The results of the lens whose first table has that name and key, if it was swept."""
    return _tree_of(trees, lambda lens: any((one.name, one.key) == (name, key) for one in lens.schema.tables[:1]))


def _tree_of(trees: xr.DataTree, fits: Callable[[Lens], bool]) -> xr.DataTree | None:
    known = lenses()
    return next((tree for name, tree in trees.children.items() if name in known and fits(known[name])), None)


def drift_summary(trees: xr.DataTree, model: str) -> xr.Dataset | None:
    """Medians over heads of how far subspaces moved since the step before, [role, step]; None without such a lens.

    `grassmann` in [0, sqrt(r) pi/2] beside `grassmann_null`, what a random change of the same size does;
    `relative_change` |dW| / |W|; `moved_share` of heads that turned further than a random change would turn them
    (q <= 0.05), 0 under the null; `previous_step`.
    """
    tree = _tree_of(trees, lambda lens: lens.subjects == 2 and f"{TURN}_{ROLES[0]}" in lens.schema.declared(""))
    if tree is None:
        return None
    node = tree.to_dataset().sel(model=model)

    def over_heads(name: str) -> tuple[tuple[str, str], np.ndarray]:
        rows = [node[name.format(role)].median(head_axis(role)).values for role in ROLES]
        return ("role", "step"), np.stack(rows)

    beyond = [
        ((node[f"{TURN}_{role}_q"] <= LEVEL) & (node[f"{TURN}_{role}_z"] > 0)).mean(head_axis(role)).values
        for role in ROLES
    ]
    return xr.Dataset(
        {
            TURN: over_heads(f"{TURN}_{{}}"),
            f"{TURN}_null": over_heads(f"{TURN}_{{}}_null"),
            CHANGE: over_heads(f"{CHANGE}_{{}}"),
            "moved_share": (("role", "step"), np.stack(beyond)),
            "previous_step": ("step", node["previous_step"].values),
        },
        coords={"role": list(ROLES), "step": node["step"].values},
    )


def spectra_summary(trees: xr.DataTree, model: str) -> xr.Dataset | None:
    """What sums up spectra, means over layers and heads with their nulls, [kind, step]; None without such a lens."""
    tree = tree_with_table(trees, "matrices", "matrix")
    if tree is None:
        return None
    schema = lenses()[tree.name or ""].schema
    pattern = schema.tables[0].nodes
    kinds = [kind for kind in schema.nodes if kind in tree.children and fnmatchcase(kind, pattern)]
    if not kinds:
        return None
    nodes = [tree[kind].to_dataset().sel(model=model) for kind in kinds]
    variables = {}
    for name in (*SHAPES, *(f"{name}_null" for name in SHAPES)):
        if all(name in node for node in nodes):
            rows = [node[name].mean([dim for dim in node[name].dims if dim != "step"]).values for node in nodes]
            variables[name] = (("kind", "step"), np.stack(rows))
    return xr.Dataset(variables, coords={"kind": kinds, "step": nodes[0]["step"].values})
