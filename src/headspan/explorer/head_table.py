"""One row per head with what every lens says about it: the numbers of the side panel, and a file to save."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import KV_ROLES, ROLES, HeadLabel
from headspan.explorer.grid_table import grid_table
from headspan.explorer.head_grid import HeadGrid
from headspan.explorer.pair_table import carried_pairings
from headspan.lenses.affinity.hubs import hub_scores, ranked_hubs
from headspan.lenses.attention import maps_of

Result = xr.Dataset | xr.DataTree
Results = Mapping[str, Result]


@dataclass(frozen=True)
class Fact:
    """A number of the table as the side panel shows it: what it is, and the columns beside it."""

    title: str
    column: str
    chance: str = ""
    p: str = ""
    of: str = ""


FACTS = (
    Fact("Hub rank", "hub_rank", of="n_ranked"),
    Fact("Inlet, above chance", "inlet"),
    Fact("Outlet, above chance", "outlet"),
    *(Fact(f"Rank of W_{role}", f"rank_{role}", of=f"full_rank_{role}") for role in ROLES),
    Fact("Query and key spaces share", "qk_kernel", "qk_kernel_chance", "qk_p_value"),
    Fact("z of the trace of W_QK", "trace_z", p="trace_p_value"),
    Fact("Positive share of symmetric part", "positive_mass"),
    Fact("Relative entropy of attention", "relative_entropy", "relative_entropy_chance"),
    Fact("Attention to itself", "self_mass", "self_mass_chance"),
    Fact("to the position before", "previous_mass", "previous_mass_chance"),
    Fact("to the first position", "first_mass", "first_mass_chance"),
    Fact("Previous-token score", "previous_token", "previous_token_chance"),
    Fact("Duplicate-token score", "duplicate_token", "duplicate_token_chance"),
    Fact("Induction score", "induction", "induction_chance"),
    Fact("Identity from the weights", "identity_weights", "identity_weights_chance"),
    Fact("Entropy predicted as Gaussian", "entropy_predicted"),
    Fact("Entropy measured", "entropy_measured"),
)


def head_table(grid: HeadGrid, results: Results) -> pd.DataFrame:
    """Every head of a model, kv heads after the others where they are fewer; what a lens does not say is NaN."""
    kinds = [(grid.n_heads, False)] + ([(grid.n_kv_heads, True)] if grid.grouped else [])
    heads = [HeadLabel(layer, head, kv) for count, kv in kinds for layer in grid.layers for head in range(count)]
    table = pd.DataFrame(
        {
            "label": [str(head) for head in heads],
            "layer": [head.layer for head in heads],
            "head": [head.head for head in heads],
            "kv": [head.kv for head in heads],
        }
    )
    for name, part in PARTS.items():
        if name in results:
            for found in part(results[name], grid.grouped):
                table = table.merge(found, on="label", how="left")
    return table


def _ranks(result: Result, grouped: bool) -> list[pd.DataFrame]:
    if not isinstance(result, xr.Dataset):
        return []
    tables = []
    for roles in ([role for role in ROLES if role not in KV_ROLES], KV_ROLES):
        names = [f"{part}_{role}" for role in roles for part in ("rank", "full_rank")]
        tables.append(grid_table(result, names, grouped)[["label", *names]])
    return tables


def _hubs(result: Result, grouped: bool) -> list[pd.DataFrame]:
    if not isinstance(result, xr.DataTree) or not carried_pairings(result):
        return []
    hubs = ranked_hubs(hub_scores(result)).rename(columns={"head": "label", "score": "hub_score"})
    known = hubs["hub_score"].notna()
    ranks = np.where(known, np.arange(1, len(hubs) + 1), np.nan)
    return [hubs.assign(hub_rank=ranks, n_ranked=np.where(known, known.sum(), np.nan))]


def _chosen(names: Mapping[str, str]) -> Callable[[Result, bool], list[pd.DataFrame]]:
    """Variables [layer, head] of a dataset under other names."""

    def part(result: Result, grouped: bool) -> list[pd.DataFrame]:
        dataset = maps_of(result)
        there = [name for name in names if name in dataset]
        axes = dataset[["layer", "head"]] if {"layer", "head"} <= set(dataset.coords) else dataset
        found = grid_table(dataset[there].assign_coords(axes.coords), there) if there else pd.DataFrame({"label": []})
        return [found[["label", *there]].rename(columns=dict(names))]

    return part


def _alignment(result: Result, grouped: bool) -> list[pd.DataFrame]:
    if "alignment" not in getattr(result, "children", ()):
        return []
    names = {"trace_z": "trace_z", "p_value": "trace_p_value", "positive_mass": "positive_mass"}
    node = result["alignment"].to_dataset()
    return [grid_table(node, list(names))[["label", *names]].rename(columns=names)]


def _detected(result: Result, grouped: bool) -> list[pd.DataFrame]:
    if not isinstance(result, xr.Dataset):
        return []
    columns = {"identity_weights": result["identity_weights"]}
    columns["identity_weights_chance"] = xr.full_like(result["identity_weights"], 0.0)
    if "score" in result:
        first = result.isel(prompt=0)
        for name in first["detector"].values:
            columns[str(name)] = first["score"].sel(detector=name, drop=True)
            columns[f"{name}_chance"] = xr.full_like(columns[str(name)], float(first["chance"].sel(detector=name)))
    dataset = xr.Dataset({name: values.drop_vars("prompt", errors="ignore") for name, values in columns.items()})
    return [grid_table(dataset, list(columns))[["label", *columns]]]


ATTENDED = ("relative_entropy", "self_mass", "previous_mass", "first_mass")
PARTS: Mapping[str, Callable[[Result, bool], list[pd.DataFrame]]] = {
    "ranks": _ranks,
    "affinity": _hubs,
    "similarity": _chosen(
        {"projection_kernel": "qk_kernel", "projection_kernel_chance": "qk_kernel_chance", "p_value": "qk_p_value"}
    ),
    "spectra": _alignment,
    "attention": _chosen({name + part: name + part for name in ATTENDED for part in ("", "_chance")}),
    "detect": _detected,
    "gaussian": _chosen({"entropy": "entropy_predicted", "entropy_measured": "entropy_measured"}),
}
