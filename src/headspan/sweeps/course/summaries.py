"""Drift between steps and spectra over time, as tables over steps for figures and sentences."""

from __future__ import annotations

from fnmatch import fnmatchcase

import numpy as np
import xarray as xr

from headspan.dims import ROLES, head_axis
from headspan.lenses.catalog import lenses

MOVEMENTS = ("grassmann", "grassmann_null", "grassmann_unrelated", "relative_change")
SHAPES = ("stable_rank", "effective_rank", "ks", "energy_ratio", "spikes")
LEVEL = 0.05


def tree_with_table(trees: xr.DataTree, name: str, key: str, subjects: int = 1) -> xr.DataTree | None:
    """The results of the lens whose first table has that name and key, if one was swept."""
    for lens, tree in trees.children.items():
        known = lenses().get(lens)
        tables = () if known is None or known.subjects != subjects else known.schema.tables[:1]
        if any((table.name, table.key) == (name, key) for table in tables):
            return tree
    return None


def movement_summary(trees: xr.DataTree, model: str) -> xr.Dataset | None:
    """Medians over heads of how far subspaces moved since the step before, [role, step]; None without such a lens.

    `grassmann` in [0, sqrt(r) pi/2] beside `grassmann_null`, what a random change of the same size does, and
    `grassmann_unrelated`; `relative_change` |dW| / |W|; `moved_share` of heads that turned further than a random change
    would turn them (q <= 0.05), 0 under the null; `previous_step`.
    """
    tree = tree_with_table(trees, "heads", "role", subjects=2)
    if tree is None or not set(ROLES) <= set(tree.children):
        return None
    nodes = {role: tree[role].to_dataset().sel(model=model) for role in ROLES}
    variables = {
        name: (("role", "step"), np.stack([node[name].median(head_axis(role)).values for role, node in nodes.items()]))
        for name in MOVEMENTS
    }
    beyond = [
        ((node["grassmann_q"] <= LEVEL) & (node["grassmann_z"] > 0)).mean(head_axis(role)).values
        for role, node in nodes.items()
    ]
    root = tree.to_dataset().sel(model=model)
    return xr.Dataset(
        {
            **variables,
            "moved_share": (("role", "step"), np.stack(beyond)),
            "previous_step": ("step", root["previous_step"].values),
        },
        coords={"role": list(ROLES), "step": root["step"].values},
    )


def matrix_summary(trees: xr.DataTree, model: str) -> xr.Dataset | None:
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
