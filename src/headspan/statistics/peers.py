"""Which members share more with something than their peers do: residuals within a layer, with an empirical null.

1. X = log score of every member (a head, a neuron) with every partner (a table, a matrix). Scores that are zero or NaN
   stay out.
2. `expected` is the geometric mean of the other members of its layer with the same partner: what the member would share
   if it were like its peers, whatever anisotropy that layer and that partner have in common.
3. Two tests, of which the less certain counts. The residual from the layer's mean over s = 1.4826 median |residual| of
   the whole table, under a normal law: many members, one spread. And Student's t of the member against the others of
   its layer: few members, their own spread. The first alone calls whole layers significant where the spread changes
   with depth (rate .032 at .001); the second alone finds nothing in small layers.
4. z is the normal score of that p; q is that of Benjamini and Hochberg, one-sided.

Members that use other directions than all their peers stand out with every partner that has them: the null has no
effect of the member. Rates on unrelated members are on the calibration page.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from headspan.statistics.permutation import Array, Layers, q_values
from headspan.statistics.two_way_fit import NORMAL_MAD, TwoWay, mirror_fdr

MIN_PEERS, MIN_MEMBERS = 4, 32


def peers_obstacle(layers: Layers) -> str | None:
    """Why members are too few for this null, in a few words; None where they are not.

    Parameters
    ----------
    layers
        The layer of every member that has a score with one partner.
    """
    counts = np.unique(layers, return_counts=True)[1] if len(layers) else np.zeros(1, dtype=int)
    if counts.min() >= MIN_PEERS and len(layers) >= MIN_MEMBERS:
        return None
    return (
        f"the peers null needs {MIN_MEMBERS} members and {MIN_PEERS} in every layer; here are {len(layers)} and "
        f"{counts.min()}"
    )


def peers(scores: Array, layers: Layers) -> TwoWay:
    """The residual of a table of scores [partner, member] within the layers of its members, in their order.

    Reference: Efron (2004), Large-scale simultaneous hypothesis testing (the empirical null); Cook and Weisberg (1982),
    Residuals and influence in regression (deleted residuals).
    """
    with np.errstate(invalid="ignore"):
        known = scores > 0
    logs = np.log(scores, out=np.zeros(scores.shape), where=known)

    def summed(table: Array) -> Array:
        """Sums over the members of each layer, repeated for every member."""
        return np.repeat(np.add.reduceat(table, starts, axis=1), sizes, axis=1)

    starts = np.flatnonzero(np.diff(layers, prepend=layers[0] - 1))
    sizes = np.diff(starts, append=len(layers))
    count = summed(known.astype(float)) if len(scores) else np.zeros(scores.shape)
    compared = known & (count >= MIN_PEERS)
    if not compared.any():
        empty = np.full(scores.shape, np.nan)
        return TwoWay(empty, empty, empty, empty, empty, np.nan)
    n = np.where(compared, count, np.nan)
    residual = np.where(known, logs - summed(logs) / np.maximum(count, 1), 0.0)
    squares = summed(residual**2)
    residual = np.where(compared, residual, np.nan)
    scale = NORMAL_MAD * float(np.nanmedian(np.abs(residual)))
    apart = residual * n / (n - 1)
    others = np.maximum(squares - residual * apart, 0.0) / (n - 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(apart) / np.sqrt(others * n / (n - 1))
        tail = np.maximum(special.ndtr(-np.abs(residual) / scale), special.stdtr(n - 2, -t))
    z = np.sign(residual) * -special.ndtri(tail)
    p: Array = special.ndtr(-z)
    return TwoWay(np.exp(logs - apart), z, p, q_values(p), mirror_fdr(z), scale)
