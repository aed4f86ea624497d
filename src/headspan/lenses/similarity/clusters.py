"""Which heads belong together: average-linkage clustering, cut where the clusters are most distinct.

1. Average linkage joins the two groups of heads whose mean distance is smallest, until one group is left.
2. The tree is cut into the number of clusters (2 to sqrt(n) + 2) with the largest mean silhouette.
3. A silhouette above 0 is found in noise too, since the best of several cuts is taken. So the same is done to random
   distances: under independent Haar spaces the distances of any two pairs of heads are independent, which makes the
   chance value a matter of drawing normal numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import squareform

CHANCE_DRAWS = 20


@dataclass(frozen=True)
class Clusters:
    """A clustering of n heads.

    Parameters
    ----------
    label
        Cluster of each head, from 1 in the order of the tree; NaN for a head without distances.
    place
        Where each head stands when the tree's leaves are written in order, from 0; NaN likewise.
    linkage
        scipy's table [m - 1, 4] over the heads that have distances: two groups joined, their distance, the new size.
    silhouette, silhouette_chance
        Mean silhouette of the labels, in [-1, 1], and its mean in noise; NaN with fewer than 3 heads.
    """

    label: Float[np.ndarray, " n"]
    place: Float[np.ndarray, " n"]
    linkage: Float[np.ndarray, "_ 4"]
    silhouette: float
    silhouette_chance: float


def mean_silhouette(distance: Float[np.ndarray, "n n"], label: np.ndarray) -> float:
    """The mean over heads of (b - a) / max(a, b): a to the own cluster, b to the nearest other, mean distances.

    In [-1, 1]; a head alone in its cluster counts 0, as does a head at distance 0 from everything.
    """
    names, which = np.unique(label, return_inverse=True)
    member = np.eye(len(names))[which]
    size = member.sum(0)
    mean = distance @ member / size
    rows = np.arange(len(label))
    own = size[which]
    a = mean[rows, which] * own / np.maximum(own - 1, 1)
    others = np.where(member > 0, np.inf, mean)
    b = others.min(1)
    largest = np.maximum(a, b)
    score = np.where((own > 1) & (largest > 0), (b - a) / np.where(largest > 0, largest, 1.0), 0.0)
    return float(score.mean())


def _best_cut(distance: Float[np.ndarray, "n n"]) -> tuple[np.ndarray, np.ndarray, float]:
    """The tree, the labels of its most distinct cut, and their silhouette."""
    n = len(distance)
    tree = linkage(squareform(distance, checks=False), method="average")
    cuts = [fcluster(tree, count, criterion="maxclust") for count in range(2, min(n - 1, int(np.sqrt(n)) + 2) + 1)]
    cuts = [cut for cut in cuts if 1 < len(np.unique(cut)) < n]
    if not cuts:
        return tree, np.ones(n, dtype=int), float("nan")
    found = [mean_silhouette(distance, cut) for cut in cuts]
    best = int(np.argmax(found))
    return tree, cuts[best], found[best]


def _silhouette_in_noise(mean: np.ndarray, sd: np.ndarray, seed: int) -> float:
    """The best cut's silhouette where every distance is an independent draw from its chance law."""
    generator, found = np.random.default_rng(seed), []
    for _ in range(CHANCE_DRAWS):
        noise = np.triu(mean + sd * generator.standard_normal(mean.shape), 1)
        found.append(_best_cut(np.maximum(noise + noise.T, 0.0))[2])
    return float(np.mean(found))


def clusters(
    distance: Float[np.ndarray, "n n"],
    chance: Float[np.ndarray, "n n"],
    sd: Float[np.ndarray, "n n"],
    seed: int,
) -> Clusters:
    """Cluster heads by their distances.

    Parameters
    ----------
    distance
        Symmetric, zero diagonal; rows of NaN are left out.
    chance, sd
        Moments of each distance by chance; where they are NaN the silhouette's chance value is too.
    seed
        For the noise.
    """
    n = len(distance)
    label, place = np.full((2, n), np.nan)
    kept = np.flatnonzero(np.isfinite(np.diagonal(distance)))
    if len(kept) < 3:
        label[kept], place[kept] = 1.0, np.arange(len(kept))
        return Clusters(label, place, np.zeros((0, 4)), float("nan"), float("nan"))
    inner = np.ix_(kept, kept)
    tree, cut, score = _best_cut(distance[inner])
    order = leaves_list(tree)
    place[kept[order]] = np.arange(len(kept))
    # Numbered as they appear along the tree, so that labels do not depend on scipy's numbering.
    _, first = np.unique(cut[order], return_index=True)
    rank = np.argsort(np.argsort(first))
    label[kept] = 1 + rank[np.unique(cut, return_inverse=True)[1]]
    upper = np.triu_indices(len(kept), 1)
    known = np.isfinite(chance[inner][upper]).all() and np.isfinite(score)
    noise = _silhouette_in_noise(chance[inner], sd[inner], seed) if known else float("nan")
    return Clusters(label, place, tree, score, noise)
