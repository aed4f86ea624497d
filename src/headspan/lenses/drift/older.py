"""Files of version 1: all roles in one dataset, each variable with the role at its end."""

from __future__ import annotations

import numpy as np
import xarray as xr

from headspan.dims import ROLES, Role, head_axis

OLD = {"p_value": "grassmann_p", "q_value": "grassmann_q", "outside_share_p_value": "outside_share_p"}


def upgraded(dataset: xr.Dataset) -> dict[str, xr.Dataset]:
    """The node of each role, as today's schema names its variables."""
    return {role: _role_node(dataset, role) for role in ROLES}


def _role_node(dataset: xr.Dataset, role: Role) -> xr.Dataset:
    ending = f"_{role}"
    names = {str(name): _today(str(name).removesuffix(ending)) for name in dataset if str(name).endswith(ending)}
    other = ({"head", "kv_head"} - {head_axis(role)}) & set(dataset.dims)
    node = dataset.drop_dims(list(other)) if other else dataset
    node = node[list(names)].rename(names)
    angles = node["angles"] * (180 / np.pi)
    return node.assign(smallest_angle=angles.min("angle"), largest_angle=angles.max("angle"))


def _today(name: str) -> str:
    if name.endswith("_chance"):
        return name.removesuffix("_chance") + "_null"
    return OLD.get(name, name.removesuffix("_sd") + "_null_sd" if name.endswith("_sd") else name)
