"""Everything about one pair of heads: every score, angle, null and rank, and the command that reproduces it."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import torch
import xarray as xr

from headspan.dims import PAIR_DIMS, HeadLabel
from headspan.errors import ShapeError
from headspan.heads import Heads
from headspan.lenses.affinity import lens as affinity
from headspan.lenses.affinity.edges import pairing_node, pairings_of
from headspan.lenses.affinity.lens import METRICS, NULLS, VARIABLES
from headspan.lenses.affinity.pair_tables import roles_of
from headspan.subspaces import Subspace, grassmann_distance, orthonormal_basis, principal_angles


def pair_report(heads: Heads, src: str, dst: str, pairings: str = "all", delta: int = 0) -> dict[str, Any]:
    """One pair against all pairs of its model.

    Parameters
    ----------
    heads
        The heads; the source's layer must come before the destination's.
    src, dst
        Labels such as L4H11 and L5H1; through K and V of a grouped model, the destination's kv head is meant.
    pairings
        Which pairings, all 16 by default.
    delta
        As for `affinity.compute`.
    """
    source, destination = _checked(heads, src), _checked(heads, dst)
    if source.layer >= destination.layer:
        raise ShapeError(
            f"{source} and {destination} do not compose: the source must be in an earlier layer than the destination"
        )
    result = affinity.compute(heads, pairings=pairings, delta=delta)
    fold = "" if heads.fold == "none" else f" --fold {heads.fold}"
    command = f"headspan pair {shlex.quote(heads.checkpoint.source)} {source} {destination}{fold}"
    return {
        "schema": "headspan.pair/1",
        "provenance": dict(result.attrs),
        "src": str(source),
        "dst": str(destination),
        "pairings": {
            pairing: _one_pairing(heads, pairing_node(result, pairing), source, destination)
            for pairing in pairings_of(result)
        },
        "command": command if delta == 0 else f"{command} --delta {delta}",
    }


def _checked(heads: Heads, text: str) -> HeadLabel:
    label = HeadLabel.parse(text)
    if label.kv:
        raise ShapeError(f"{label} is a kv head; name one of the query heads that read it")
    if label.layer not in heads.layers or label.head >= heads.n_heads:
        raise ShapeError(
            f"{label} does not exist: the model has layers 0..{heads.stack.n_layers - 1} "
            f"and heads 0..{heads.n_heads - 1}"
        )
    return label


def _one_pairing(heads: Heads, node: xr.Dataset, src: HeadLabel, dst: HeadLabel) -> dict[str, Any]:
    pairing = node.attrs["pairing"]
    at = {
        "src_layer": list(heads.layers).index(src.layer),
        "src_head": _index(heads, src, pairing[0]),
        "dst_layer": list(heads.layers).index(dst.layer),
        "dst_head": _index(heads, dst, pairing[1]),
    }
    theta = _angles(heads, pairing, src, dst)
    degrees = torch.rad2deg(theta[~theta.isnan()])
    found: dict[str, Any] = {
        metric: _one_metric(node, metric, at) for metric in METRICS if VARIABLES[metric][0] in node
    }
    found["angles"] = {
        "degrees": [round(float(angle), 4) for angle in degrees],
        "grassmann": float(grassmann_distance(theta)),
    }
    return found


def _one_metric(node: xr.Dataset, metric: str, at: dict[str, int]) -> dict[str, Any]:
    scores = node[VARIABLES[metric][0]].transpose(*PAIR_DIMS)
    score = float(scores.isel(at))
    known = scores.values[~np.isnan(scores.values)]
    return {
        "score": score,
        "chance_mean": float(node["chance_mean"].sel(metric=metric)),
        "chance_std": float(node["chance_std"].sel(metric=metric)),
        "rank": int((known > score).sum()) + 1,
        "n_pairs": int(known.size),
        "nulls": {
            null: {kind: float(node[kind].sel(metric=metric, null=null).isel(at)) for kind in ("p_value", "q_value")}
            for null in NULLS
        },
    }


def _index(heads: Heads, label: HeadLabel, role: str) -> int:
    return label.head // (heads.n_heads // heads.n_kv_heads) if role in "KV" else label.head


def _angles(heads: Heads, pairing: str, src: HeadLabel, dst: HeadLabel) -> torch.Tensor:
    """Principal angles of the two subspaces, radians, ascending."""
    spaces: list[Subspace] = []
    for role, label in zip(roles_of(pairing), (src, dst), strict=True):
        W = heads.to("float64").layer(label.layer, roles=(role,)).weight(role)[0, _index(heads, label, role)]
        spaces.append(orthonormal_basis(W.mT if role == "O" else W))
    return principal_angles(*spaces)
