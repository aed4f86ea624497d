"""The result as rows, one per head and role, and as a view of one role. For tables, JSON, figures and findings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import KV_HEAD, LAYER, ROLES, HeadLabel, Role, head_axis
from headspan.storage import without_nan

SCHEMA = "headspan.drift/1"
COLUMNS = (
    "grassmann",
    "grassmann_chance",
    "grassmann_sd",
    "grassmann_z",
    "p_value",
    "q_value",
    "grassmann_unrelated",
    "chordal",
    "chordal_chance",
    "chordal_expected",
    "projection_kernel",
    "projection_kernel_chance",
    "relative_change",
    "outside_share",
    "outside_share_chance",
    "outside_share_p_value",
    "spectrum_ks",
    "spectrum_ks_chance",
    "rank_before",
    "rank_after",
    "unchanged",
    "deficient",
)


def role_view(result: xr.Dataset, role: Role) -> xr.Dataset:
    """The variables of one role under their plain names."""
    ending = f"_{role}"
    names = {str(name): str(name).removesuffix(ending) for name in result.data_vars if str(name).endswith(ending)}
    return result[list(names)].rename(names)


def table(result: xr.Dataset) -> pd.DataFrame:
    """One row per head and role: how far it moved, with chance; angles in degrees."""
    return pd.concat([_role_table(result, role) for role in ROLES], ignore_index=True)


def _role_table(result: xr.Dataset, role: Role) -> pd.DataFrame:
    view, axis = role_view(result, role), head_axis(role)
    grouped = axis == KV_HEAD and result.attrs["n_kv_heads"] < result.attrs["n_heads"]
    layers, heads = np.meshgrid(result[LAYER].values, result[axis].values, indexing="ij")
    labels = [str(HeadLabel(int(i), int(j), kv=grouped)) for i, j in zip(layers.flat, heads.flat, strict=True)]
    columns: dict[str, Any] = {"label": labels, "role": role, "layer": layers.ravel(), "head": heads.ravel()}
    columns |= {name: view[name].values.ravel() for name in COLUMNS}
    angles = np.degrees(view["angles"].values).reshape(len(labels), -1)
    # fmax and fmin pass over NaN without a warning.
    columns["smallest_angle"], columns["largest_angle"] = np.fmin.reduce(angles, axis=1), np.fmax.reduce(angles, axis=1)
    return pd.DataFrame(columns)


def as_json(result: xr.Dataset) -> dict[str, Any]:
    """Heads as plain values, NaN as None."""
    plain: dict[str, Any] = without_nan(
        {"schema": SCHEMA, "provenance": dict(result.attrs), "heads": table(result).to_dict(orient="records")}
    )
    return plain
