"""Everything about one pair of heads: scores, nulls and ranks from affinity, principal angles, and its channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr

from headspan.dims import COMPOSING, KV_ROLES, HeadLabel
from headspan.heads import Heads
from headspan.lenses.affinity import affinity
from headspan.lenses.channels.channel_list import ChannelReader, Wanted, channel_dataset
from headspan.lenses.channels.schema import DERIVED, HAAR, SCORES
from headspan.statistics import q_values
from headspan.statistics.draw_tails import upper_p_values
from headspan.subspaces import Subspace, grassmann_distance, principal_angles
from headspan.subspaces.rotated_norms import rotated_singular_values


def pair_scores(
    heads: Heads, src: HeadLabel, dst: HeadLabel, pairings: Sequence[str], settings: dict[str, Any]
) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    """Affinity's scores of a pair by pairing, against all pairs of the model; and how they were made."""
    result = affinity(heads, pairings=pairings, draws=1, algorithm="exact", **settings)
    unrolled = heads.unrolled()
    nodes = {
        str(pairing): _pairing_scores(unrolled, node.to_dataset(), str(pairing), src, dst, settings["tolerance"])
        for pairing, node in result.data.children.items()
    }
    return nodes, {"tolerance": result.attrs["tolerance"], "scores_fold": result.attrs["fold"]}


def _pairing_scores(
    heads: Heads, node: xr.Dataset, pairing: str, src: HeadLabel, dst: HeadLabel, tolerance: float | None
) -> xr.Dataset:
    at = {
        side: str(_side(heads, label, role))
        for side, label, role in zip(("src", "dst"), (src, dst), pairing, strict=True)
    }
    variables: dict[str, Any] = {}
    for metric in SCORES:
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


def pair_nodes(
    reader: ChannelReader, src: HeadLabel, dst: HeadLabel, pairing: str, top: int, draws: int, seed: int
) -> tuple[xr.Dataset, dict[str, Any]]:
    """The strongest channels of a pair through one pairing, and its whole spectrum beside that of random rotations."""
    found = reader.channels(src, dst, pairing)
    values = found.strength.numpy(force=True)
    drawn = rotated_singular_values(*found.spectra, reader.heads.d_stream, draws, seed).numpy(force=True)
    p = np.array([upper_p_values(value, column) for value, column in zip(values, drawn.T, strict=True)])
    spectrum = {
        "singular_value": ("place", values),
        "singular_value_null": ("place", drawn.mean(0)),
        "singular_value_null_sd": ("place", drawn.std(0)),
        "singular_value_p": ("place", p),
    }
    chosen = tuple(range(min(top, len(values))))
    channels = channel_dataset(reader, [Wanted(src, dst, pairing, chosen)])
    mean, sd = (each[: len(chosen)] / (found.norm or np.nan) for each in (drawn.mean(0), drawn.std(0)))
    coupling = channels["coupling"].values
    z = np.divide(coupling - mean, sd, out=np.full(len(chosen), np.nan), where=sd > 0)
    numbers = dict(zip(DERIVED, (mean, sd, z, p[: len(chosen)], q_values(p)[: len(chosen)]), strict=True))
    named = {f"coupling_{what}": (("null", "channel"), values[None]) for what, values in numbers.items()}
    return channels.assign(named).assign_coords(null=[HAAR]), spectrum


def with_channels(pairings: Sequence[str]) -> tuple[str, ...]:
    """The pairings that have channels."""
    return tuple(pairing for pairing in pairings if pairing in COMPOSING)
