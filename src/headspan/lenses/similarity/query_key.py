"""One head at a time: how its query space lies to its key space, and how random ones would.

Everything follows from the principal angles theta of R_Q and R_K and the true dimensions p, q: the angles that involve
the null spaces N_Q and N_K (`null_space_angles`, no basis of a null space is formed), the Grassmann distance, the
projection kernel PK = sum cos^2 theta with its exact moments and two-sided p-value, and dim(N_Q and N_K together).

Small spaces in a large one are nearly orthogonal by dimension alone: for 64 dimensions in R^768 random angles run from
57 to 90 degrees. So each number has its chance value beside it, and the four histograms of angles theirs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.lenses.similarity.chance import DRAWS, FEWEST_DRAWS, distance_moments, z_score
from headspan.statistics import q_values
from headspan.subspaces import (
    grassmann_distance,
    kernel_null_mean,
    kernel_null_variance,
    log_lower_tail,
    log_upper_tail,
    null_space_angles,
    random_principal_angles,
    shared_null_dimension,
)

COMBINATIONS = ("RQ_RK", "NQ_NK", "RQ_NK", "NQ_RK")
BINS = 45
Arrays = dict[str, np.ndarray]


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
        smaller dimension, and throughout for a head without a query or key space. By chance R_Q, R_K are nearly
        orthogonal, hence RQ_NK and NQ_RK small, and d - p - q angles of NQ_NK exactly 0.
    """
    defined = (p > 0) & (q > 0)
    width = d - int(np.maximum(p, q)[defined].min()) if defined.any() else 0
    k = theta.shape[-1]
    out = {name: np.full((len(p), width if name == "NQ_NK" else k), np.nan) for name in COMBINATIONS}
    out["RQ_RK"] = theta
    for p_kind, q_kind, members in _kinds(p, q):
        rows = torch.from_numpy(theta[members, : min(p_kind, q_kind)])
        null = null_space_angles(rows, d, p_kind, q_kind)
        for name, angles in (("NQ_NK", null.null_null), ("RQ_NK", null.row_null), ("NQ_RK", null.null_row)):
            out[name][members, : angles.shape[-1]] = angles.numpy()
    return out


def scores(theta: Float[np.ndarray, "n k"], p: Int[np.ndarray, " n"], q: Int[np.ndarray, " n"], d: int) -> Arrays:
    """Grassmann distance and projection kernel of R_Q and R_K, each with mean, sd and z by chance, and p-values.

    The p-value is two-sided, min(1, 2 min(lower, upper)), of the kernel under independent Haar spaces, from the fitted
    Beta law of `subspaces.chance`; it may underflow to 0, its logarithm does not. NaN where a dimension is 0.
    """
    angles = torch.from_numpy(theta)
    P, Q = torch.from_numpy(p), torch.from_numpy(q)
    kernel = torch.where(angles.isnan().all(-1), torch.nan, (angles.cos() ** 2).nansum(-1))
    tail = torch.minimum(log_lower_tail(kernel, P, Q, d), log_upper_tail(kernel, P, Q, d))
    log_p = (tail + np.log(2)).clamp(max=0.0)
    return {
        "grassmann": grassmann_distance(angles).numpy(),
        "projection_kernel": kernel.numpy(),
        "projection_kernel_chance": kernel_null_mean(P, Q, d).numpy(),
        "projection_kernel_sd": kernel_null_variance(P, Q, d).sqrt().numpy(),
        "log_p_value": log_p.numpy(),
        "p_value": log_p.exp().numpy(),
    }


def grassmann_chance(
    p: Int[np.ndarray, " n"], q: Int[np.ndarray, " n"], d: int, k: int, draws: int, seed: int
) -> Arrays:
    """By chance: each angle's mean `angles_chance` [n, k], and mean and sd of the Grassmann distance [n]."""
    out: Arrays = {"angles_chance": np.full((len(p), k), np.nan)}
    out |= {name: np.full(len(p), np.nan) for name in ("grassmann_chance", "grassmann_sd")}
    for p_kind, q_kind, members in _kinds(p, q):
        angles = random_principal_angles(d, p_kind, q_kind, draws, seed)
        out["angles_chance"][members, : angles.shape[-1]] = angles.mean(0).numpy()
        moments = distance_moments("grassmann", d, p_kind, q_kind, 0, draws, seed)
        out["grassmann_chance"][members], out["grassmann_sd"][members] = moments
    return out


def null_dimensions(
    theta: Float[np.ndarray, "n k"], p: Int[np.ndarray, " n"], q: Int[np.ndarray, " n"], d: int, tolerance: float
) -> Arrays:
    """dim(N_Q and N_K together) [n], and max(0, d - p - q), its value by chance."""
    shared = d - np.maximum(p, q)
    for p_kind, q_kind, members in _kinds(p, q):
        rows = torch.from_numpy(theta[members, : min(p_kind, q_kind)])
        shared[members] = shared_null_dimension(rows, d, p_kind, q_kind, tolerance).numpy()
    return {"shared_null_dimension": shared, "shared_null_dimension_chance": np.maximum(0, d - p - q)}


def chance_draws(p: np.ndarray, q: np.ndarray) -> int:
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
    all others: 640 of 704 for the null spaces of GPT-2. Returns `angle_count` and `angle_count_chance`
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
    return {"angle_count": counts, "angle_count_chance": random, "forced_zeros": zeros}


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
    """`scores` and `grassmann_chance` together, with z-scores and false-discovery rates over all heads."""
    out = scores(theta, p, q, d) | grassmann_chance(p, q, d, theta.shape[-1], chance_draws(p, q), seed)
    for name in ("grassmann", "projection_kernel"):
        out[f"{name}_z"] = z_score(out[name], out[f"{name}_chance"], out[f"{name}_sd"])
    out["q_value"] = q_values(out["p_value"])
    return out
