"""Heads grouped by their distances: clusters, and maps of heads and of directions as points of a plane.

1. Average linkage joins the two groups of heads whose mean distance is smallest, until one group is left. The tree is
   cut into the number of clusters (2 to sqrt(n) + 2) with the largest mean silhouette.
2. A silhouette above 0 is found in noise too, since the best of several cuts is taken. So the same is done to random
   distances: under independent Haar spaces the distances of any two pairs of heads are independent, so that the null is
   a matter of drawing normal numbers.
3. Classical scaling (MDS) is linear and keeps large distances: double-center the squared distances, take the two
   leading eigenvectors. With n heads equally far apart every axis would hold 1/(n - 1) of the spread. t-SNE keeps
   neighbors only: sizes of clusters and gaps between them mean nothing.
4. Directions sampled from R_Q, R_K, N_Q and N_K of one head can be drawn the same way. Random spaces of the same
   dimensions give nearly the same picture, so they are drawn too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from headspan.lenses.similarity.schema import FOUR_SPACES
from headspan.subspaces import Subspace, project, random_subspaces

NULL_DRAWS = 20
FEWEST_POINTS = 4
ITERATIONS = 500
"""Of t-SNE: as many again lower its divergence by half a percent."""


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
    silhouette, silhouette_null
        Mean silhouette of the labels, in [-1, 1], and its mean in noise; NaN with fewer than 3 heads.
    """

    label: Float[np.ndarray, " n"]
    place: Float[np.ndarray, " n"]
    linkage: Float[np.ndarray, "_ 4"]
    silhouette: float
    silhouette_null: float


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
    """The best cut's silhouette where every distance is an independent draw from the null."""
    generator, found = np.random.default_rng(seed), []
    for _ in range(NULL_DRAWS):
        noise = np.triu(mean + sd * generator.standard_normal(mean.shape), 1)
        found.append(_best_cut(np.maximum(noise + noise.T, 0.0))[2])
    return float(np.mean(found))


def clusters(
    distance: Float[np.ndarray, "n n"],
    null: Float[np.ndarray, "n n"],
    sd: Float[np.ndarray, "n n"],
    seed: int,
) -> Clusters:
    """Cluster heads by their distances.

    Parameters
    ----------
    distance
        Symmetric, zero diagonal; rows of NaN are left out.
    null, sd
        Moments of each distance under the null; where they are NaN the silhouette under the null is too.
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
    known = np.isfinite(null[inner][upper]).all() and np.isfinite(score)
    noise = _silhouette_in_noise(null[inner], sd[inner], seed) if known else float("nan")
    return Clusters(label, place, tree, score, noise)


def classical_map(distance: Float[np.ndarray, "n n"]) -> tuple[Float[np.ndarray, "n 2"], Float[np.ndarray, " 2"]]:
    """Classical scaling to two dimensions.

    Parameters
    ----------
    distance
        Symmetric; rows of NaN are left out and get NaN.

    Returns
    -------
    coordinates, share
        The share of the spread (sum of positive eigenvalues) that each axis holds, in [0, 1]; 1/(n - 1) under the null.
    """
    points, share = np.full((len(distance), 2), np.nan), np.full(2, np.nan)
    kept = np.flatnonzero(np.isfinite(np.diagonal(distance)))
    if len(kept) < FEWEST_POINTS:
        return points, share
    squared = distance[np.ix_(kept, kept)] ** 2
    centered = squared - squared.mean(0) - squared.mean(1, keepdims=True) + squared.mean()
    values, vectors = np.linalg.eigh(-centered / 2)
    spread = values.clip(min=0).sum()
    values, vectors = values[::-1][:2].clip(min=0), vectors[:, ::-1][:, :2]
    # An eigenvector's sign is arbitrary; its largest entry is made positive, so that a map can be compared to another.
    signs = np.sign(vectors[np.abs(vectors).argmax(0), [0, 1]])
    points[kept] = vectors * signs * np.sqrt(values)
    return points, values / spread if spread > 0 else share


def neighbor_map(distance: Float[np.ndarray, "n n"], seed: int) -> Float[np.ndarray, "n 2"]:
    """t-SNE of a table of distances, seeded; rows of NaN are left out and get NaN. No scale, so no null."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    points = np.full((len(distance), 2), np.nan)
    kept = np.flatnonzero(np.isfinite(np.diagonal(distance)))
    if len(kept) < FEWEST_POINTS:
        return points
    table = distance[np.ix_(kept, kept)].astype(np.float64)
    perplexity = min(30.0, (len(kept) - 1) / 3)
    model = TSNE(
        metric="precomputed",
        init="random",
        perplexity=perplexity,
        max_iter=ITERATIONS,
        random_state=seed,
        n_jobs=1,
    )
    # One thread: sums then do not depend on the machine, and a few hundred points gain nothing from more.
    with threadpool_limits(limits=1):
        points[kept] = model.fit_transform(table)
    return points


def sampled_directions(query: Subspace, key: Subspace, count: int, seed: int) -> Float[Tensor, "4 count d"]:
    """Unit vectors from R_Q, R_K, N_Q and N_K of one head, uniform in each; NaN for an empty space.

    A null space is sampled as what remains of a random vector outside the read space.
    """
    generator = torch.Generator().manual_seed(seed)
    d = query.ambient
    noise = torch.randn(len(FOUR_SPACES), count, d, generator=generator, dtype=torch.float64).to(query.basis)
    parts = []
    for index, (S, inside) in enumerate(((query, True), (key, True), (query, False), (key, False))):
        image = project(noise[index], S)
        vectors = image if inside else noise[index] - image
        empty = int(S.rank) == (0 if inside else d)
        parts.append(torch.full_like(vectors, torch.nan) if empty else vectors / vectors.norm(dim=-1, keepdim=True))
    return torch.stack(parts)


def direction_map(query: Subspace, key: Subspace, count: int, seed: int) -> Float[np.ndarray, "4 count 2"]:
    """t-SNE of `sampled_directions` by their Euclidean distances."""
    vectors = sampled_directions(query, key, count, seed).reshape(len(FOUR_SPACES) * count, -1)
    inner = (vectors @ vectors.mT).cpu().double().numpy()
    distance = np.sqrt(np.maximum(2 - 2 * inner, 0.0))
    np.fill_diagonal(distance, np.where(np.isnan(np.diagonal(inner)), np.nan, 0.0))
    return neighbor_map(distance, seed).reshape(len(FOUR_SPACES), count, 2)


def random_direction_map(d: int, p: int, q: int, count: int, seed: int) -> Float[np.ndarray, "4 count 2"]:
    """`direction_map` under the null: the same for independent Haar spaces of dimensions p and q."""
    query, key = (random_subspaces((), d, size, seed + 1 + place) for place, size in enumerate((p, q)))
    return direction_map(query, key, count, seed)
