"""One head at a time: how its query space lies to its key space, and how random ones would.

1. Everything follows from the principal angles theta of R_Q and R_K and the true dimensions p, q: the angles that
   involve the null spaces N_Q and N_K (`null_space_angles`, no basis of a null space is formed), the Grassmann
   distance, the projection kernel PK = sum cos^2 theta with its exact moments and two-sided p-value, and the dimension
   of the intersection of N_Q and N_K.
2. Small spaces in a large one are nearly orthogonal by dimension alone: for 64 dimensions in R^768 random angles run
   from 57 to 90 degrees. So each number, and each histogram of angles, has its expected value under the null beside it.
3. The algebra is checked on numbers. For random tokens x_i, x_j the logit is (x_i W_Q + b_Q)(x_j W_K + b_K)^T. Adding
   to every x_i a vector of N_Q and to every x_j one of N_K, each as long as its token, must change no logit; vectors of
   the same length from R_Q and R_K do, and random vectors lie between. A null vector is a random one less its part in
   the read space.
4. Where the arithmetic is in single precision, its error is measured on a few heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.heads import Heads
from headspan.heads.precision import double_bases, sampled_places
from headspan.lenses.similarity.schema import COMBINATIONS
from headspan.lenses.similarity.spaces import BlockSpaces, SpaceChoice
from headspan.statistics import q_values, z_score
from headspan.subspaces import (
    Subspace,
    grassmann_distance,
    kernel_null_mean,
    kernel_null_variance,
    log_lower_tail,
    log_upper_tail,
    null_space_angles,
    principal_angles,
    project,
    random_principal_angles,
    shared_null_dimension,
)
from headspan.subspaces.distance_tables import DRAWS, FEWEST_DRAWS, distance_moments

BINS = 45
TOKENS = 16
Arrays = dict[str, np.ndarray]
Part = Literal["null", "read", "random"]


def _kinds(p: np.ndarray, q: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """The distinct pairs of non-zero dimensions, with the heads that have them."""
    pairs, which = np.unique(np.stack([p, q], axis=-1), axis=0, return_inverse=True)
    for kind, (p_kind, q_kind) in enumerate(pairs.tolist()):
        if min(p_kind, q_kind) > 0:
            yield p_kind, q_kind, np.flatnonzero(which.reshape(-1) == kind)


def all_angles(
    theta: Float[np.ndarray, "n k"], p: Int[np.ndarray, " n"], q: Int[np.ndarray, " n"], d: int
) -> dict[str, Float[np.ndarray, "n _"]]:
    """The four families of principal angles of each head, radians, ascending.

    Parameters
    ----------
    theta
        [n, k]: angles of R_Q and R_K, NaN beyond min(p, q).
    p, q, d
        True dimensions of the read spaces, and d_model.

    Returns
    -------
    dict
        By combination: RQ_RK, RQ_NK and NQ_RK [n, k], NQ_NK [n, the largest dimension of a null space]. NaN beyond the
        smaller dimension, and throughout for a head without a query or key space. Under the null R_Q, R_K are nearly
        orthogonal, hence RQ_NK and NQ_RK small, and d - p - q angles of NQ_NK exactly 0.
    """
    defined = (p > 0) & (q > 0)
    width = d - int(np.maximum(p, q)[defined].min()) if defined.any() else 0
    k = theta.shape[-1]
    out = {name: np.full((len(p), width if name == "NQ_NK" else k), np.nan) for name in COMBINATIONS}
    out["RQ_RK"] = theta
    for p_kind, q_kind, members in _kinds(p, q):
        rows = torch.from_numpy(theta[members, : min(p_kind, q_kind)])
        for name, angles in _by_name(rows, d, p_kind, q_kind).items():
            out[name][members, : angles.shape[-1]] = angles.numpy()
    return out


def scores(theta: Float[np.ndarray, "n k"], p: Int[np.ndarray, " n"], q: Int[np.ndarray, " n"], d: int) -> Arrays:
    """Grassmann distance and projection kernel of R_Q and R_K, the kernel with moments under the null and p-values.

    The p-value is two-sided, min(1, 2 min(lower, upper)), of the kernel under independent Haar spaces, from the fitted
    Beta law of `subspaces.nulls`; it may underflow to 0, its logarithm does not. NaN where a dimension is 0.
    """
    angles = torch.from_numpy(theta)
    P, Q = torch.from_numpy(p), torch.from_numpy(q)
    kernel = torch.where(angles.isnan().all(-1), torch.nan, (angles.cos() ** 2).nansum(-1))
    tail = torch.minimum(log_lower_tail(kernel, P, Q, d), log_upper_tail(kernel, P, Q, d))
    log_p = (tail + np.log(2)).clamp(max=0.0)
    return {
        "projection_kernel": kernel.numpy(),
        "projection_kernel_null": kernel_null_mean(P, Q, d).numpy(),
        "projection_kernel_null_sd": kernel_null_variance(P, Q, d).sqrt().numpy(),
        "projection_kernel_log_p": log_p.numpy(),
        "projection_kernel_p": log_p.exp().numpy(),
        "grassmann": grassmann_distance(angles).numpy(),
    }


def grassmann_null(p: Int[np.ndarray, " n"], q: Int[np.ndarray, " n"], d: int, k: int, draws: int, seed: int) -> Arrays:
    """Under the null: each angle's mean [n, k], and mean and sd of the Grassmann distance [n]."""
    out: Arrays = {"angles_RQ_RK_null": np.full((len(p), k), np.nan)}
    out |= {name: np.full(len(p), np.nan) for name in ("grassmann_null", "grassmann_null_sd")}
    for p_kind, q_kind, members in _kinds(p, q):
        angles = random_principal_angles(d, p_kind, q_kind, draws, seed)
        out["angles_RQ_RK_null"][members, : angles.shape[-1]] = angles.mean(0).numpy()
        moments = distance_moments("grassmann", d, p_kind, q_kind, 0, draws, seed)
        out["grassmann_null"][members], out["grassmann_null_sd"][members] = moments
    return out


def null_dimensions(
    theta: Float[np.ndarray, "n k"], p: Int[np.ndarray, " n"], q: Int[np.ndarray, " n"], d: int, tolerance: float
) -> Arrays:
    """Dimension of the intersection of N_Q and N_K [n], and max(0, d - p - q), its value under the null."""
    shared = d - np.maximum(p, q)
    for p_kind, q_kind, members in _kinds(p, q):
        rows = torch.from_numpy(theta[members, : min(p_kind, q_kind)])
        shared[members] = shared_null_dimension(rows, d, p_kind, q_kind, tolerance).numpy()
    return {"shared_null_dimension": shared, "shared_null_dimension_null": np.maximum(0, d - p - q)}


def null_draws(p: np.ndarray, q: np.ndarray) -> int:
    """How many draws each pair of dimensions gets: fewer where many differ."""
    return max(FEWEST_DRAWS, min(DRAWS, 16 * DRAWS // max(1, len(list(_kinds(p, q))))))


def angle_counts(
    angles: dict[str, Float[np.ndarray, "n _"]],
    p: Int[np.ndarray, " n"],
    q: Int[np.ndarray, " n"],
    d: int,
    draws: int,
    seed: int,
) -> Arrays:
    """Histograms of the four families of angles, in angles per head, beside those of random spaces.

    Angles that the dimensions force to be 0 are counted apart (`forced_zeros`, the mean per head), or they would dwarf
    all others: 640 of 704 for the null spaces of GPT-2. Returns `angle_count` and `angle_count_null`
    [combination, bin], `forced_zeros` [combination].
    """
    n = max(1, int(((p > 0) & (q > 0)).sum()))
    counts, random = np.zeros((2, len(COMBINATIONS), BINS))
    zeros = np.zeros(len(COMBINATIONS))
    for p_kind, q_kind, members in _kinds(p, q):
        theta = random_principal_angles(d, p_kind, q_kind, draws, seed)
        drawn = {"RQ_RK": theta, **_by_name(theta, d, p_kind, q_kind)}
        forced = forced_zeros(d, p_kind, q_kind)
        for row, name in enumerate(COMBINATIONS):
            counts[row] += _histogram(angles[name][members], forced[name]) / n
            random[row] += _histogram(drawn[name].numpy(), forced[name]) * len(members) / draws / n
            zeros[row] += forced[name] * len(members) / n
    return {"angle_count": counts, "angle_count_null": random, "forced_zeros": zeros}


def _by_name(theta: Tensor, d: int, p: int, q: int) -> dict[str, Tensor]:
    null = null_space_angles(theta, d, p, q)
    return {"NQ_NK": null.null_null, "RQ_NK": null.row_null, "NQ_RK": null.null_row}


def forced_zeros(d: int, p: int, q: int) -> dict[str, int]:
    """How many angles of each family are 0 for any spaces of these dimensions."""
    return {
        "RQ_RK": max(0, p + q - d),
        "NQ_NK": max(0, d - p - q),
        "RQ_NK": max(0, p - q),
        "NQ_RK": max(0, q - p),
    }


def _histogram(angles: np.ndarray, forced: int) -> np.ndarray:
    """Counts per bin of 2 degrees; the first `forced` angles of each row are left out."""
    free = np.degrees(angles[:, forced:])
    counts, _ = np.histogram(free[np.isfinite(free)], bins=BINS, range=(0, 90))
    return counts


def departures(theta: np.ndarray, p: np.ndarray, q: np.ndarray, d: int, seed: int) -> Arrays:
    """`scores` and `grassmann_null` together, with z-scores and false-discovery rates over all heads."""
    out = scores(theta, p, q, d) | grassmann_null(p, q, d, theta.shape[-1], null_draws(p, q), seed)
    for name in ("grassmann", "projection_kernel"):
        out[f"{name}_z"] = z_score(out[name], out[f"{name}_null"], out[f"{name}_null_sd"])
    out["projection_kernel_q"] = q_values(out["projection_kernel_p"])
    return out


def _added(noise: Tensor, S: Subspace, part: Part, length: Tensor) -> Tensor:
    """The part of `noise` in the space or across it, scaled to `length`; NaN if that part is empty."""
    inside = project(noise, S)
    vector = {"null": noise - inside, "read": inside, "random": noise.expand_as(inside)}[part]
    room = {"null": S.ambient - S.rank, "read": S.rank, "random": torch.full_like(S.rank, S.ambient)}[part]
    vector = vector * (length / vector.norm(dim=-1, keepdim=True))
    return torch.where((room > 0)[..., None, None], vector, torch.nan)


def logit_changes(
    heads: Heads, spaces: BlockSpaces, key: Subspace, generator: torch.Generator
) -> dict[str, Float[Tensor, "layer head"]]:
    """Relative change ||A' - A||_F / ||A||_F of the logits A of random tokens.

    Parameters
    ----------
    heads, spaces
        The heads and the spaces of one block.
    key
        Key spaces per query head.
    generator
        Draws tokens and what is added to them.

    Returns
    -------
    dict
        "null": 0 up to rounding; "read": > 0; "random": what a random vector of the same length changes, for
        comparison. NaN for a head without logits, or without a null space.
    """
    d, like = heads.d_model, spaces.W_Q
    x_i, x_j, u, v = (torch.randn(TOKENS, d, generator=generator, dtype=torch.float64).to(like) for _ in range(4))
    W_K = heads.per_query_head(spaces.W_K)
    b_K = None if spaces.key_bias is None else heads.per_query_head(spaces.key_bias)

    def logits(queries: Tensor, keys: Tensor) -> Tensor:
        q, k = queries @ spaces.W_Q, keys @ W_K
        q = q if spaces.query_bias is None else q + spaces.query_bias[..., None, :]
        k = k if b_K is None else k + b_K[..., None, :]
        return q @ k.mT

    plain = logits(x_i, x_j)
    defined = (spaces.query.rank > 0) & (key.rank > 0)
    size = torch.where(defined, torch.linalg.matrix_norm(plain), torch.nan)
    changes: dict[str, Tensor] = {}
    parts: tuple[Part, ...] = ("null", "read", "random")
    for part in parts:
        more_i = _added(u, spaces.query, part, x_i.norm(dim=-1, keepdim=True))
        more_j = _added(v, key, part, x_j.norm(dim=-1, keepdim=True))
        changes[part] = torch.linalg.matrix_norm(logits(x_i + more_i, x_j + more_j) - plain) / size
    return changes


def angle_error(
    heads: Heads, choice: SpaceChoice, theta: Float[np.ndarray, "layer head angle"]
) -> dict[str, float | int]:
    """Largest difference in radians of a sampled head's angles from those in double precision, and how many heads.

    Nothing where the arithmetic is in double precision already.
    """
    if choice.dtype == torch.float64:
        return {}
    group, places = heads.n_heads // heads.n_kv_heads, sampled_places(heads, "Q")
    query = double_bases(heads, "Q", places, choice.tolerance)
    key = double_bases(heads, "K", [(layer, head // group) for layer, head in places], choice.tolerance)
    exact = principal_angles(query, key).cpu().numpy()
    difference = np.abs(np.stack([theta[place] for place in places]) - exact[:, : theta.shape[-1]])
    largest = float(np.nanmax(difference)) if np.isfinite(difference).any() else np.nan
    return {"float32_error": largest, "float32_error_heads": len(places)}
