"""Drift between steps and spectra over time, as tables over steps for figures and sentences."""

from __future__ import annotations

import numpy as np
import xarray as xr

from headspan.dims import ROLES, head_axis
from headspan.lenses.spectra.kinds import KINDS

MOVEMENTS = ("grassmann", "grassmann_chance", "grassmann_unrelated", "relative_change")
SHAPES = ("stable_rank", "effective_rank", "ks", "energy_ratio", "spikes")


def drift_summary(lenses: xr.DataTree, model: str) -> xr.Dataset | None:
    """Medians over heads of how far subspaces moved since the step before, [role, step]; None without `drift`.

    `grassmann` in [0, sqrt(r) pi/2] beside `grassmann_chance`, what a random change of the same size does, and
    `grassmann_unrelated`; `relative_change` |dW| / |W|; `moved_share` of heads that turned further than a random change
    would turn them (q <= 0.05), 0 by chance; `previous_step`.
    """
    if "drift" not in lenses.children:
        return None
    node = lenses["drift"].to_dataset().sel(model=model)
    variables = {
        name: (
            ("role", "step"),
            np.stack([node[f"{name}_{role}"].median(["layer", head_axis(role)]).values for role in ROLES]),
        )
        for name in MOVEMENTS
    }
    beyond = [
        ((node[f"q_value_{role}"] <= 0.05) & (node[f"grassmann_z_{role}"] > 0)).mean(["layer", head_axis(role)]).values
        for role in ROLES
    ]
    return xr.Dataset(
        {
            **variables,
            "moved_share": (("role", "step"), np.stack(beyond)),
            "previous_step": ("step", node["previous_step"].values),
        },
        coords={"role": list(ROLES), "step": node["step"].values},
    )


def spectra_summary(lenses: xr.DataTree, model: str) -> xr.Dataset | None:
    """What sums up spectra, means over layers and heads with their chance values, [kind, step]; None without them."""
    if "spectra" not in lenses.children:
        return None
    tree = lenses["spectra"]
    kinds = [kind for kind in KINDS if kind in tree.children]
    if not kinds:
        return None
    nodes = [tree[kind].to_dataset().sel(model=model) for kind in kinds]
    variables = {}
    for name in (*SHAPES, *(f"{name}_chance" for name in SHAPES)):
        if all(name in node for node in nodes):
            rows = [node[name].mean([dim for dim in node[name].dims if dim != "step"]).values for node in nodes]
            variables[name] = (("kind", "step"), np.stack(rows))
    return xr.Dataset(variables, coords={"kind": kinds, "step": nodes[0]["step"].values})
