"""The result as rows: one per matrix, one per head with its alignment, one per layer. For tables, JSON and findings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import HEAD, KV_HEAD, LAYER, HeadLabel
from headspan.lenses.spectra.kinds import KINDS, MLP, WHOLE
from headspan.storage import without_nan

SCHEMA = "headspan.spectra/1"
NAMES = ("matrix", "kind")
PLAIN = ("energy", "rms", "sigma", "largest", "edge", "smallest", "numerical_rank")
COMPARED = (
    "energy_ratio",
    "largest_share",
    "stable_rank",
    "effective_rank",
    "entropy",
    "log_condition",
    "ks",
    "ks_init",
    "above",
    "above_init",
    "spikes",
)
OF_ALL = ("sigma_init", "edge_init", "rows", "columns")
OPTIONAL = (
    "energy_given_factors",
    "power_law_alpha",
    "power_law_xmin",
    "power_law_ks",
    "power_law_values",
    "power_law_over_lognormal",
)
ALIGNMENT = (
    "trace",
    "trace_sd",
    "trace_z",
    "p_value",
    "q_value",
    "trace_sd_product",
    "trace_z_product",
    "nuclear_norm",
    "trace_share",
    "trace_share_sd",
    "symmetric_share",
    "skew_share",
    "positive_mass",
    "positive_mass_sd",
)
IN_LAYERS = ("energy_ratio", "stable_rank", "effective_rank", "ks", "spikes")


def kinds_in(result: xr.DataTree) -> list[str]:
    """The kinds of matrices that a result holds."""
    return [name for name in KINDS if name in result.children]


def table(result: xr.DataTree) -> pd.DataFrame:
    """One row per matrix: where it is, its shape, what sums up its spectrum, and chance beside each."""
    grouped = int(result.attrs["n_kv_heads"]) < int(result.attrs["n_heads"])
    parts = [_kind_table(result[name].to_dataset(), name, grouped) for name in kinds_in(result)]
    found = pd.concat(parts, ignore_index=True)
    places = [name for name in ("step", LAYER, HEAD) if name in found]
    order = [*NAMES, *places, *(name for name in found if name not in places and name not in NAMES)]
    # A table has no layer and a whole matrix no head: whole numbers that may be absent.
    return found[order].astype(dict.fromkeys(places, "Int64"))


def _kind_table(node: xr.Dataset, name: str, grouped: bool) -> pd.DataFrame:
    values = node["singular_value"]
    axes = [str(axis) for axis in values.dims if axis != "rank"]
    shape = tuple(values.sizes[axis] for axis in axes)
    grid = dict(zip(axes, np.meshgrid(*(node[axis].values for axis in axes), indexing="ij"), strict=True))
    columns: dict[str, Any] = {"kind": np.full(int(np.prod(shape)), name)}
    columns |= {axis: array.ravel() for axis, array in grid.items() if axis != KV_HEAD}
    if KV_HEAD in grid:
        columns["head"] = grid[KV_HEAD].ravel()
    columns |= {f: _column(node, f, axes) for f in (*OF_ALL, *PLAIN)}
    for field in COMPARED:
        value, chance, sd = (_column(node, f"{field}{part}", axes) for part in ("", "_chance", "_sd"))
        columns |= {field: value, f"{field}_chance": chance, f"{field}_z": _z(value, chance, sd)}
    columns["p_value"] = _column(node.isel(leading=0), "p_value", axes)
    for field in OPTIONAL:
        if field in node:
            columns |= {field: _column(node, field, axes), f"{field}_chance": _column(node, f"{field}_chance", axes)}
    found = pd.DataFrame(columns)
    kv = grouped and KV_HEAD in grid
    found.insert(0, "matrix", [_label(row, name, kv) for row in found.to_dict("records")])
    return found


def _column(node: xr.Dataset, field: str, axes: list[str]) -> np.ndarray:
    """A variable of a node along all axes of its matrices, flat."""
    # A plain variable: labels are the same throughout, and aligning them again would take longer than the spectra.
    variable = node.variables[field]
    missing = [axis for axis in axes if axis not in variable.dims]
    order = [[*missing, *(str(axis) for axis in variable.dims)].index(axis) for axis in axes]
    wide = np.broadcast_to(variable.values, [node.sizes[axis] for axis in missing] + list(variable.shape))
    return wide.transpose(order).ravel()


def _z(value: np.ndarray, chance: np.ndarray, sd: np.ndarray) -> np.ndarray:
    return np.where(sd > 0, (value - chance) / np.where(sd > 0, sd, 1.0), np.nan)


def _label(row: dict[str, Any], name: str, kv: bool) -> str:
    if "head" in row:
        return f"{HeadLabel(int(row['layer']), int(row['head']), kv=kv)} {name}"
    return f"L{int(row['layer'])} {name}" if "layer" in row else name


def alignment_table(result: xr.DataTree) -> pd.DataFrame:
    """One row per head: trace and symmetric part of its W_QK, with both nulls. Empty where W_QK was not asked for."""
    if "alignment" not in result.children:
        return pd.DataFrame()
    node = result["alignment"].to_dataset()
    axes = [str(axis) for axis in node["trace"].dims]
    grid = np.meshgrid(*(node[axis].values for axis in axes), indexing="ij")
    columns: dict[str, Any] = {axis: array.ravel() for axis, array in zip(axes, grid, strict=True)}
    columns |= {name: node[name].transpose(*axes).values.ravel() for name in ALIGNMENT}
    columns["symmetric_share_chance"] = float(node["symmetric_share_chance"].values.flat[0])
    found = pd.DataFrame(columns)
    labels = [str(HeadLabel(int(row["layer"]), int(row["head"]))) for row in found.to_dict("records")]
    found.insert(0, "label", labels)
    return found


def layer_table(result: xr.DataTree) -> pd.DataFrame:
    """One row per layer: its whole matrices and its base alignment side by side."""
    parts = []
    for name in (*WHOLE, *MLP):
        if name in result.children:
            node = result[name].to_dataset()
            keys = ["step", LAYER] if "step" in node.dims else [LAYER]
            fields = [field for field in IN_LAYERS if field in node]
            parts.append(node[fields].to_dataframe()[fields].add_prefix(f"{name}_"))
    if "layer" in result.children:
        node = result["layer"].to_dataset()
        keys = ["step", LAYER] if "step" in node.dims else [LAYER]
        parts.append(node[["trace", "trace_sd", "trace_z", "p_value"]].to_dataframe())
    if not parts:
        return pd.DataFrame()
    joined = pd.concat([part.reorder_levels(keys) if len(keys) > 1 else part for part in parts], axis=1)
    return joined.reset_index()


def kind_means(result: xr.DataTree) -> list[dict[str, Any]]:
    """One row per kind: how many matrices it has, their shape, and the means of what sums them up."""
    means = []
    for kind, rows in table(result).groupby("kind", sort=False):
        shape = f"{int(rows['rows'].iloc[0])}x{int(rows['columns'].iloc[0])}"
        fields = [field + part for field in COMPARED for part in ("", "_chance")]
        means.append({"kind": kind, "n": len(rows), "shape": shape} | rows[fields].mean().to_dict())
    return means


def as_json(result: xr.DataTree) -> dict[str, Any]:
    """Matrices, heads and layers as plain values, NaN as None."""
    document = {
        "schema": SCHEMA,
        "provenance": dict(result.attrs),
        "matrices": _plain(table(result)),
        "heads": alignment_table(result).to_dict(orient="records"),
        "layers": layer_table(result).to_dict(orient="records"),
    }
    plain: dict[str, Any] = without_nan(document)
    return plain


def _plain(rows: pd.DataFrame) -> list[dict[Any, Any]]:
    """Records in which a whole number that is absent is None."""
    records: list[dict[Any, Any]] = rows.astype(object).where(rows.notna(), None).to_dict(orient="records")
    return records
