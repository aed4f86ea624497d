"""Heads against heads: distances of attention spaces within and across layers, diversity, clusters and maps.

1. One pass over blocks of layers collects, for each head, the angles of R_Q and R_K, ranks, how near the own key space
   is among those of the layer, the logit changes, and the distances within the layer. If heads of different layers are
   to be compared, attention spaces are kept instead (`spaces.KeptSpaces`).
2. Distances of all pairs are taken from the kept spaces, range against range; those within layers are among them.
3. Each distance gets its mean and z-score under the null. Two query heads of a grouped model that read one kv head
   share its key space exactly, whatever their queries are, so for them only the rest is random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from headspan.dims import HEAD, LAYER, PAIR_DIMS
from headspan.heads import Heads
from headspan.heads.memory import memory_bytes
from headspan.labels import head_labels
from headspan.lenses.similarity.groups import classical_map, clusters, neighbor_map
from headspan.lenses.similarity.query_key import logit_changes
from headspan.lenses.similarity.spaces import BlockSpaces, KeptSpaces, SpaceChoice, expanded, space_blocks
from headspan.statistics import z_score
from headspan.subspaces import principal_angles, projection_kernel
from headspan.subspaces.distance_tables import UNKNOWN, cross_distances, distance_table, null_moments

Variables = dict[str, tuple[tuple[str, ...], np.ndarray]]
Moments = tuple[Float[np.ndarray, "n n"], Float[np.ndarray, "n n"]]
CLOSEST = 10


@dataclass
class LayerArrays:
    """What one pass over the layers leaves: lists of arrays [1, head, ...], one per layer."""

    parts: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def add(self, name: str, array: np.ndarray) -> None:
        self.parts.setdefault(name, []).append(array)

    def __getitem__(self, name: str) -> np.ndarray:
        return np.concatenate(self.parts[name])


def layer_arrays(
    heads: Heads, choice: SpaceChoice, distance: str, kept: KeptSpaces | None, memory: int | str, seed: int
) -> LayerArrays:
    """The pass over all layers; attention spaces go to `kept`, or their distances within layers are taken at once."""
    found, generator = LayerArrays(), torch.Generator().manual_seed(seed)
    for block in space_blocks(heads, choice, memory):
        for place in range(len(block.layers)):
            _add_layer(found, heads, block.layer(place), generator)
            if kept is None:
                own = block.attention[place]
                found.add("layer_distance", distance_table(own, distance, memory_bytes(memory) // 4)[None])
        if kept is not None:
            kept.add(block.attention.reshape(-1))
        del block  # before the next is made
    return found


def _add_layer(found: LayerArrays, heads: Heads, spaces: BlockSpaces, generator: torch.Generator) -> None:
    key = expanded(heads, spaces.key)
    found.add("theta", principal_angles(spaces.query, key).cpu().double().numpy())
    found.add("rank_Q", spaces.query.rank.cpu().numpy())
    found.add("rank_K", key.rank.cpu().numpy())
    found.add("dimension", spaces.attention.rank.cpu().numpy())
    for name, change in logit_changes(heads, spaces, key, generator).items():
        found.add(f"{name}_change", change.cpu().double().numpy())
    mean, place = _own_key(heads, spaces)
    found.add("projection_kernel_others", mean[None])
    found.add("own_key_place", place[None])


def _own_key(heads: Heads, spaces: BlockSpaces) -> tuple[Float[np.ndarray, " head"], Float[np.ndarray, " head"]]:
    """Each query's mean kernel with the other key spaces of its layer, and the place of the own key among all.

    Place 1 is nearest; (n_kv_heads + 1) / 2 on average under the null. NaN with a single kv head or an empty space.
    """
    n_kv = heads.n_kv_heads
    nothing = np.full(heads.n_heads, np.nan)
    if n_kv < 2:
        return nothing, nothing
    table = projection_kernel(spaces.query[0], spaces.key[0]).cpu().double().numpy()
    rows = np.arange(heads.n_heads)
    mine = heads.kv_head_of.cpu().numpy()
    own = table[rows, mine]
    table[rows, mine] = np.nan
    others = np.isfinite(table).sum(1)
    mean = np.nansum(table, axis=1) / np.where(others > 0, others, np.nan)
    mean, place = np.where(np.isnan(own), np.nan, mean), 1.0 + (table > own[:, None]).sum(1)
    return mean, np.where(np.isnan(mean), np.nan, place)


def distances_across(kept: KeptSpaces, distance: str, memory: int | str) -> Float[np.ndarray, "n n"]:
    """Distances of all pairs of heads of all layers, heads counted layer by layer."""
    scratch, n, step = memory_bytes(memory) // 6, len(kept), kept.at_once
    table = np.full((n, n), np.nan)
    for start in range(0, n, step):
        own, S = slice(start, start + step), kept.members(start, start + step)
        table[own, own] = distance_table(S, distance, scratch)
        for first in range(start + step, n, step):
            other = slice(first, first + step)
            table[own, other] = cross_distances(S, kept.members(first, first + step), distance, scratch)
            table[other, own] = table[own, other].T
    return table


def add_layer_distances(found: LayerArrays, table: Float[np.ndarray, "n n"], n_heads: int) -> None:
    """The distances within layers, out of those of all heads."""
    for start in range(0, len(table), n_heads):
        own = slice(start, start + n_heads)
        found.add("layer_distance", table[own, own][None])


def pair_null(
    heads: Heads,
    choice: SpaceChoice,
    distance: str,
    dimension: Int[np.ndarray, " n"],
    rank_K: Int[np.ndarray, " n"],
    same_key: Bool[np.ndarray, "n n"],
    seed: int,
) -> Moments:
    """Mean and sd under the null of every pair of heads; NaN on the diagonal, where nothing varies.

    Heads that read one kv head have its key space in common. Only the sum contains that space whole; for the other
    spaces no null distribution is known for such a pair.
    """
    common = rank_K[:, None] if choice.space == "sum" else UNKNOWN
    shared = np.where(same_key, common, 0)
    np.fill_diagonal(shared, UNKNOWN)
    return null_moments(distance, heads.d_model, dimension, dimension, shared, seed)


def whole_null(heads: Heads, choice: SpaceChoice, distance: str, found: LayerArrays, seed: int) -> Moments:
    """`pair_null` of all heads of all layers."""
    layer = np.repeat(np.arange(heads.n_layers), heads.n_heads)
    key = layer * heads.n_kv_heads + np.tile(heads.kv_head_of.cpu().numpy(), heads.n_layers)
    dimension, rank_K = found["dimension"].ravel(), found["rank_K"].ravel()
    return pair_null(heads, choice, distance, dimension, rank_K, key[:, None] == key, seed)


def layer_variables(
    heads: Heads, choice: SpaceChoice, distance: str, found: LayerArrays, whole: Moments | None, seed: int
) -> Variables:
    """Distances, diversity and clusters within each layer; a pair that `whole` has a null for is given that."""
    table, dimension, rank_K = found["layer_distance"], found["dimension"], found["rank_K"]
    key = heads.kv_head_of.cpu().numpy()
    same = key[:, None] == key
    null, sd = np.full((2, *table.shape), np.nan)
    for layer in range(heads.n_layers):
        if whole is None:
            null[layer], sd[layer] = pair_null(heads, choice, distance, dimension[layer], rank_K[layer], same, seed)
        else:
            own = slice(layer * heads.n_heads, (layer + 1) * heads.n_heads)
            null[layer], sd[layer] = (each[own, own] for each in whole)
    dims, known = (LAYER, HEAD, "peer"), null[np.isfinite(null)]
    out: Variables = {
        "layer_distance": (dims, table),
        "layer_distance_null": (dims, null),
        "layer_distance_z": (dims, z_score(table, null, sd)),
        "typical_distance": ((), np.array(np.median(known) if len(known) else np.nan)),
    }
    rows = [diversity(table[i], null[i], sd[i], key) for i in range(heads.n_layers)]
    for place, name in enumerate(("diversity", "diversity_null", "diversity_null_sd", "diversity_z")):
        out[name] = ((LAYER,), np.array([row[place] for row in rows]))
    groups = [clusters(table[i], null[i], sd[i], seed) for i in range(heads.n_layers)]
    out["layer_cluster"] = ((LAYER, HEAD), np.stack([group.label for group in groups]))
    out["layer_place"] = ((LAYER, HEAD), np.stack([group.place for group in groups]))
    out["layer_silhouette"] = ((LAYER,), np.array([group.silhouette for group in groups]))
    out["layer_silhouette_null"] = ((LAYER,), np.array([group.silhouette_null for group in groups]))
    return out


def diversity(
    distance: Float[np.ndarray, "n n"],
    null: Float[np.ndarray, "n n"],
    sd: Float[np.ndarray, "n n"],
    key: Int[np.ndarray, " n"],
) -> tuple[float, float, float, float]:
    """Mean distance of a layer's heads, its mean and sd under the null, and its z-score.

    Under the null the distances of any two pairs are uncorrelated (given one space, the law of its distance to another
    does not depend on which it is), so variances add. Pairs that join the same two kv heads of a grouped model are the
    exception: they are treated as if fully correlated, which makes |z| too small rather than too large.
    """
    i, j = np.triu_indices(len(distance), 1)
    kept = np.isfinite(distance[i, j])
    i, j = i[kept], j[kept]
    if len(i) == 0:
        return (float("nan"),) * 4
    pair = key[i] * (key.max() + 1) + key[j]
    # Pairs within one group share nothing random but their key space, which is held fixed: each counts by itself.
    alone = key[i] == key[j]
    block = np.where(alone, (key.max() + 1) ** 2 + np.arange(len(i)), pair)
    _, which = np.unique(block, return_inverse=True)
    spread = float(np.sqrt((np.bincount(which, sd[i, j]) ** 2).sum())) / len(i)
    value, mean = float(distance[i, j].mean()), float(null[i, j].mean())
    return value, mean, spread, float(z_score(value, mean, spread))


def across_variables(heads: Heads, table: Float[np.ndarray, "n n"], whole: Moments, maps: bool, seed: int) -> Variables:
    """Distances, clusters and, if asked for, maps of all heads of all layers."""
    grid, (null, sd) = (heads.n_layers, heads.n_heads), whole
    group = clusters(table, null, sd, seed)
    out: Variables = {
        "distance": (PAIR_DIMS, table.reshape(*grid, *grid)),
        "distance_null": (PAIR_DIMS, null.reshape(*grid, *grid)),
        "distance_z": (PAIR_DIMS, z_score(table, null, sd).reshape(*grid, *grid)),
        "cluster": ((LAYER, HEAD), group.label.reshape(grid)),
        "place": ((LAYER, HEAD), group.place.reshape(grid)),
        "linkage": (("merge", "linkage_part"), group.linkage),
        "silhouette": ((), np.array(group.silhouette)),
        "silhouette_null": ((), np.array(group.silhouette_null)),
    }
    return out | _map_variables(table, grid, seed) if maps else out


def _map_variables(distance: Float[np.ndarray, "n n"], grid: tuple[int, int], seed: int) -> Variables:
    points, share = classical_map(distance)
    n_points = int(np.isfinite(points[:, 0]).sum())
    return {
        "mds": ((LAYER, HEAD, "axis"), points.reshape(*grid, 2)),
        "mds_share": (("axis",), share),
        "mds_share_null": (("axis",), np.full(2, 1 / (n_points - 1) if n_points > 1 else np.nan)),
        "tsne": ((LAYER, HEAD, "axis"), neighbor_map(distance, seed).reshape(*grid, 2)),
    }


def closest_pairs(found: Mapping[str, np.ndarray], layers: Sequence[int], count: int = CLOSEST) -> Variables:
    """The pairs of heads with the smallest distance for what is expected of them, over all layers or within each.

    Ranked by distance / mean under the null, so that spaces of different dimensions, and heads that share a key,
    compare fairly.

    Parameters
    ----------
    found
        `distance` and its null and z [src_layer, src_head, dst_layer, dst_head], or `layer_distance` and its own.
    layers
        Numbers of the layers.
    """
    prefix = "distance" if "distance" in found else "layer_distance"
    n_heads = found["layer_distance"].shape[1]
    heads = len(layers) * n_heads if prefix == "distance" else n_heads
    distance, null, z = (found[f"{prefix}{part}"].reshape(-1, heads, heads) for part in ("", "_null", "_z"))
    labels = head_labels(np.repeat(layers, n_heads), np.tile(np.arange(n_heads), len(layers))).reshape(-1, heads)
    batch, src, dst = index = np.nonzero(np.broadcast_to(np.triu(np.ones((heads, heads)), 1), distance.shape))
    distance, null, z = distance[index], null[index], z[index]
    known = np.flatnonzero(np.isfinite(distance) & (null > 0))
    order = known[np.argsort(distance[known] / null[known], kind="stable")][:count]
    columns = {"src": labels[batch, src].astype(str), "dst": labels[batch, dst].astype(str)}
    columns |= {"distance": distance, "distance_null": null, "distance_z": z}
    return {f"closest_{name}": (("pair",), values[order]) for name, values in columns.items()}
