r"""How much of each direction of the token table the leading directions of the position table capture.

Pi_k is the projector on the top k right singular directions of P. The capture of direction v_j of E is v_j^T Pi_k v_j,
in [0, 1]; it is k/d on average and Beta(k/2, (d - k)/2) distributed for a random k-dimensional space. The sum over a
set of m directions is the projection kernel of two subspaces, mean mk/d, whose law is much tighter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from headspan.lenses.positions.chance import kernel_chance, kernel_log_p, z_score
from headspan.lenses.positions.spectrum import Spectrum

DECILES = 10


@dataclass(frozen=True)
class Capture:
    """One capture curve with its deciles."""

    k: int
    curve: Float[np.ndarray, " d"]
    """NaN beyond the rank of E."""
    log_p: Float[np.ndarray, " d"]
    decile_size: Int[np.ndarray, " decile"]
    decile: Float[np.ndarray, " decile"]
    decile_chance: Float[np.ndarray, " decile"]
    decile_z: Float[np.ndarray, " decile"]
    decile_log_p: Float[np.ndarray, " decile"]


def capture(E: Spectrum, P: Spectrum, k: int) -> Capture:
    """The capture of every direction of E by the top k of P; all NaN where either has no direction."""
    d, rank = E.d, E.rank
    curve, log_p = np.full(d, np.nan), np.full(d, np.nan)
    edges = part_edges(rank, DECILES)
    size = np.diff(edges)
    mass = np.full(DECILES, np.nan)
    if k and rank:
        share = (E.directions.mT @ P.directions[:, :k]).square().sum(1).cpu().numpy()
        curve[:rank] = np.clip(share, 0, 1)
        log_p[:rank] = kernel_log_p(curve[:rank], np.full(rank, k), np.ones(rank, dtype=np.int64), d)
        mass = np.where(size > 0, np.add.reduceat(np.append(curve[:rank], 0.0), edges[:-1]), np.nan)
    mean, sd = kernel_chance(size, np.full(DECILES, k), d)
    return Capture(k, curve, log_p, size, mass, mean, z_score(mass, mean, sd), kernel_log_p(mass, size, np.array(k), d))


def part_edges(count: int, parts: int) -> Int[np.ndarray, " edges"]:
    """Where `count` things are cut into `parts` that differ by one at most."""
    return np.round(np.arange(parts + 1) * count / parts).astype(np.int64)
