"""Tables of distances to the variables of the result: chance, z-scores, diversity, clusters and maps."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from headspan.dims import HEAD, LAYER
from headspan.heads import Heads
from headspan.lenses.similarity.chance import UNKNOWN, chance_tables, z_score
from headspan.lenses.similarity.clusters import clusters
from headspan.lenses.similarity.layers import Gathered
from headspan.lenses.similarity.maps import classical_map, neighbour_map
from headspan.lenses.similarity.spaces import SpaceChoice

Variables = dict[str, tuple[tuple[str, ...], np.ndarray]]
PAIR = ("src_layer", "src_head", "dst_layer", "dst_head")


def shared_dimensions(
    choice: SpaceChoice, same_key: Bool[np.ndarray, "n n"], rank_K: Int[np.ndarray, " n"]
) -> Int[np.ndarray, "n n"]:
    """What pairs of heads have in common by construction: the key space, where they read one kv head.

    Only the sum contains that space whole; for the other spaces no chance law is known for such a pair.
    """
    common = rank_K[:, None] if choice.space == "sum" else UNKNOWN
    return np.where(same_key, common, 0)


def pair_chance(
    heads: Heads,
    choice: SpaceChoice,
    metric: str,
    dimension: Int[np.ndarray, " n"],
    rank_K: Int[np.ndarray, " n"],
    same_key: Bool[np.ndarray, "n n"],
    seed: int,
) -> tuple[Float[np.ndarray, "n n"], Float[np.ndarray, "n n"]]:
    """Mean and sd by chance of every pair of heads; NaN on the diagonal, where nothing is left to chance."""
    shared = shared_dimensions(choice, same_key, rank_K)
    np.fill_diagonal(shared, UNKNOWN)
    return chance_tables(metric, heads.d_model, dimension, dimension, shared, seed)


def key_of(heads: Heads) -> Int[np.ndarray, " head"]:
    """The kv head that each query head reads."""
    return np.arange(heads.n_heads) // (heads.n_heads // heads.n_kv_heads)


def layer_variables(heads: Heads, choice: SpaceChoice, metric: str, found: Gathered, seed: int) -> Variables:
    """Distances, diversity and clusters within each layer."""
    distance, dimension, rank_K = found["layer_distance"], found["dimension"], found["rank_K"]
    key = key_of(heads)
    same = key[:, None] == key
    chance, sd = np.full((2, *distance.shape), np.nan)
    for layer in range(heads.n_layers):
        chance[layer], sd[layer] = pair_chance(heads, choice, metric, dimension[layer], rank_K[layer], same, seed)
    dims = (LAYER, "src_head", "dst_head")
    out: Variables = {
        "layer_distance": (dims, distance),
        "layer_distance_chance": (dims, chance),
        "layer_distance_z": (dims, z_score(distance, chance, sd)),
        "typical_chance": ((), np.array(_median(chance))),
    }
    rows = [diversity(distance[i], chance[i], sd[i], key) for i in range(heads.n_layers)]
    for place, name in enumerate(("diversity", "diversity_chance", "diversity_sd", "diversity_z")):
        out[name] = ((LAYER,), np.array([row[place] for row in rows]))
    groups = [clusters(distance[i], chance[i], sd[i], seed) for i in range(heads.n_layers)]
    out["layer_cluster"] = ((LAYER, HEAD), np.stack([group.label for group in groups]))
    out["layer_place"] = ((LAYER, HEAD), np.stack([group.place for group in groups]))
    out["layer_silhouette"] = ((LAYER,), np.array([group.silhouette for group in groups]))
    out["layer_silhouette_chance"] = ((LAYER,), np.array([group.silhouette_chance for group in groups]))
    return out


def _median(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")


def diversity(
    distance: Float[np.ndarray, "n n"],
    chance: Float[np.ndarray, "n n"],
    sd: Float[np.ndarray, "n n"],
    key: Int[np.ndarray, " n"],
) -> tuple[float, float, float, float]:
    """Mean distance of a layer's heads, its mean and sd by chance, and its z-score.

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
    value, mean = float(distance[i, j].mean()), float(chance[i, j].mean())
    z = float(z_score(np.array(value), np.array(mean), np.array(spread)))
    return value, mean, spread, z


def across_variables(
    heads: Heads,
    choice: SpaceChoice,
    metric: str,
    found: Gathered,
    distance: Float[np.ndarray, "n n"],
    maps: bool,
    seed: int,
) -> Variables:
    """Distances, clusters and, if asked for, maps of all heads of all layers."""
    n_layers, n_heads = heads.n_layers, heads.n_heads
    layer = np.repeat(np.arange(n_layers), n_heads)
    key = layer * heads.n_kv_heads + np.tile(key_of(heads), n_layers)
    same = key[:, None] == key
    dimension, rank_K = found["dimension"].ravel(), found["rank_K"].ravel()
    chance, sd = pair_chance(heads, choice, metric, dimension, rank_K, same, seed)
    shape = (n_layers, n_heads, n_layers, n_heads)
    group = clusters(distance, chance, sd, seed)
    grid = (n_layers, n_heads)
    out: Variables = {
        "distance": (PAIR, distance.reshape(shape)),
        "distance_chance": (PAIR, chance.reshape(shape)),
        "distance_z": (PAIR, z_score(distance, chance, sd).reshape(shape)),
        "cluster": ((LAYER, HEAD), group.label.reshape(grid)),
        "place": ((LAYER, HEAD), group.place.reshape(grid)),
        "linkage": (("merge", "linkage_part"), group.linkage),
        "silhouette": ((), np.array(group.silhouette)),
        "silhouette_chance": ((), np.array(group.silhouette_chance)),
    }
    return out | _map_variables(distance, grid, seed) if maps else out


def _map_variables(distance: Float[np.ndarray, "n n"], grid: tuple[int, int], seed: int) -> Variables:
    points, share = classical_map(distance)
    n_points = int(np.isfinite(points[:, 0]).sum())
    return {
        "mds": ((LAYER, HEAD, "axis"), points.reshape(*grid, 2)),
        "mds_share": (("axis",), share),
        "mds_share_chance": (("axis",), np.full(2, 1 / (n_points - 1) if n_points > 1 else np.nan)),
        "tsne": ((LAYER, HEAD, "axis"), neighbour_map(distance, seed).reshape(*grid, 2)),
    }
