"""Heads and directions as points of a plane.

Classical scaling (MDS) is linear and keeps large distances: double-centre the squared distances, take the two leading
eigenvectors. With n heads equally far apart every axis would hold 1/(n - 1) of the spread, its chance value.
t-SNE keeps neighbours only: sizes of clusters and gaps between them mean nothing.

Directions sampled from R_Q, R_K, N_Q and N_K of one head can be drawn the same way. Random spaces of the same
dimensions give nearly the same picture, so they are drawn too.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.subspaces import Subspace, project, random_subspaces

FEWEST_POINTS = 4
FOUR_SPACES = ("R_Q", "R_K", "N_Q", "N_K")


def classical_map(distance: Float[np.ndarray, "n n"]) -> tuple[Float[np.ndarray, "n 2"], Float[np.ndarray, " 2"]]:
    """Classical scaling to two dimensions.

    Parameters
    ----------
    distance
        Symmetric; rows of NaN are left out and get NaN.

    Returns
    -------
    coordinates, share
        The share of the spread (sum of positive eigenvalues) that each axis holds, in [0, 1], by chance 1/(n - 1).
    """
    points, share = np.full((len(distance), 2), np.nan), np.full(2, np.nan)
    kept = np.flatnonzero(np.isfinite(np.diagonal(distance)))
    if len(kept) < FEWEST_POINTS:
        return points, share
    squared = distance[np.ix_(kept, kept)] ** 2
    centred = squared - squared.mean(0) - squared.mean(1, keepdims=True) + squared.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    spread = values.clip(min=0).sum()
    values, vectors = values[::-1][:2].clip(min=0), vectors[:, ::-1][:, :2]
    # An eigenvector's sign is arbitrary; its largest entry is made positive, so that a map can be compared to another.
    signs = np.sign(vectors[np.abs(vectors).argmax(0), [0, 1]])
    points[kept] = vectors * signs * np.sqrt(values)
    return points, values / spread if spread > 0 else share


def neighbour_map(distance: Float[np.ndarray, "n n"], seed: int) -> Float[np.ndarray, "n 2"]:
    """t-SNE of a table of distances, seeded; rows of NaN are left out and get NaN. No scale, so no chance value."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    points = np.full((len(distance), 2), np.nan)
    kept = np.flatnonzero(np.isfinite(np.diagonal(distance)))
    if len(kept) < FEWEST_POINTS:
        return points
    table = distance[np.ix_(kept, kept)].astype(np.float64)
    perplexity = min(30.0, (len(kept) - 1) / 3)
    model = TSNE(metric="precomputed", init="random", perplexity=perplexity, random_state=seed, n_jobs=1)
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
    return neighbour_map(distance, seed).reshape(len(FOUR_SPACES), count, 2)


def random_direction_map(d: int, p: int, q: int, count: int, seed: int) -> Float[np.ndarray, "4 count 2"]:
    """The chance value of `direction_map`: the same for independent Haar spaces of dimensions p and q."""
    query, key = (random_subspaces((), d, size, seed + 1 + place) for place, size in enumerate((p, q)))
    return direction_map(query, key, count, seed)
