"""One pair of heads against all pairs of its model: scores, nulls and ranks from affinity, and the principal angles."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr

from headspan.dims import KV_ROLES, HeadLabel
from headspan.errors import ArgumentError
from headspan.heads import Heads
from headspan.lenses.affinity import affinity
from headspan.lenses.pair.schema import METRICS
from headspan.subspaces import Subspace, grassmann_distance, principal_angles

DERIVED = ("null", "null_sd", "z", "p", "q")


def measure(
    heads: Heads,
    *,
    src: HeadLabel,
    dst: HeadLabel,
    pairings: str | Sequence[str] = "all",
    delta: int = 0,
    tolerance: float | None = None,
    memory: int | str = "4GB",
    dtype: Any = None,
) -> xr.DataTree:
    """`headspan.pair` on heads: a node per pairing."""
    whole, heads = heads, heads.unrolled()
    for label in (src, dst):
        if label.layer not in heads.layers or label.head >= heads.n_heads:
            raise ArgumentError(
                f"{label} does not exist: the model has layers {heads.layers[0]}..{heads.layers[-1]} and heads "
                f"0..{heads.n_heads - 1}"
            )
    settings = {"delta": delta, "tolerance": tolerance, "memory": memory, "dtype": dtype}
    result = affinity(whole, pairings=pairings, draws=1, algorithm="exact", **settings)
    nodes = {
        str(pairing): _pairing_dataset(heads, node.to_dataset(), str(pairing), src, dst, tolerance)
        for pairing, node in result.data.children.items()
    }
    fold = "" if heads.fold == "none" else f" --fold {heads.fold}"
    command = f"headspan pair {shlex.quote(heads.checkpoint.source)} {src} {dst}{fold}"
    command += f" --delta {delta}" if delta else ""
    command += "" if tolerance is None else f" --tolerance {tolerance}"
    attributes = {
        "dtype": result.attrs["dtype"],
        "src": str(src),
        "dst": str(dst),
        "delta": delta,
        "tolerance": result.attrs["tolerance"],
        "command": command,
    }
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attributes), **nodes})


def _pairing_dataset(
    heads: Heads, node: xr.Dataset, pairing: str, src: HeadLabel, dst: HeadLabel, tolerance: float | None
) -> xr.Dataset:
    at = {
        side: str(_side(heads, label, role))
        for side, label, role in zip(("src", "dst"), (src, dst), pairing, strict=True)
    }
    variables: dict[str, Any] = {}
    for metric in METRICS:
        if metric not in node:
            continue
        score, known = float(node[metric].sel(at)), node[metric].values[~np.isnan(node[metric].values)]
        variables[metric] = score
        variables |= {f"{metric}_{part}": ("null", node[f"{metric}_{part}"].sel(at).values) for part in DERIVED}
        variables |= {f"{metric}_rank": int((known > score).sum()) + 1, f"{metric}_n_pairs": int(known.size)}
    theta = _angles(heads, pairing, src, dst, tolerance)
    degrees = torch.rad2deg(theta[~theta.isnan()])
    variables["angle"] = ("number", degrees.cpu().numpy())
    variables["grassmann_distance"] = float(grassmann_distance(theta))
    return xr.Dataset(variables, coords={"null": node["null"].values, "number": np.arange(1, len(degrees) + 1)})


def _side(heads: Heads, label: HeadLabel, role: str) -> HeadLabel:
    """The head, or through K and V of a grouped model the kv head that it reads."""
    group = heads.n_heads // heads.n_kv_heads
    return HeadLabel(label.layer, label.head // group, kv=True) if role in KV_ROLES and group > 1 else label


def _angles(heads: Heads, pairing: str, src: HeadLabel, dst: HeadLabel, tolerance: float | None) -> torch.Tensor:
    """Principal angles of the two subspaces, radians, ascending."""
    spaces: list[Subspace] = []
    for letter, label in zip(pairing, (src, dst), strict=True):
        head, block = _side(heads, label, letter).head, heads.to("float64").layer(label.layer, roles=(letter,))
        (role,) = block.weights
        spaces.append(block.spaces(role, tolerance, slice(head, head + 1))[0, 0])
    return principal_angles(*spaces)
