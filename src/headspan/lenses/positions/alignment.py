r"""One number for a matrix and a table: the share of the matrix's energy that lies where the table has its own.

With the left singular directions u_i of W, in R^d, weighted by w_i = s_i^2 / sum s^2, and the projector Pi_k on the
top k directions of a table,

    alignment = sum_i w_i u_i^T Pi_k u_i = |Pi_k W|_F^2 / |W|_F^2,   k/d by chance,

in [0, 1]. With the table's own weights b_j in place of the projector it is the energy alignment
sum_ij w_i b_j (u_i . v_j)^2, 1/d by chance. Both are tr(A B) for two symmetric matrices; by chance one of them is
turned by a random rotation, which leaves both spectra as they are (`subspaces.rotation_null`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headspan.lenses.positions.chance import trace_log_p, z_score
from headspan.subspaces.nulls import rotated_trace_moments

PARTS = ("", "_chance", "_z", "_log_p")


@dataclass(frozen=True)
class Alignment:
    """Alignments of a batch of matrices with one table."""

    value: Float[np.ndarray, "*batch"]
    chance: Float[np.ndarray, "*batch"]
    z: Float[np.ndarray, "*batch"]
    log_p: Float[np.ndarray, "*batch"]

    def parts(self) -> tuple[np.ndarray, ...]:
        """In the order of PARTS."""
        return self.value, self.chance, self.z, self.log_p


def alignment(
    overlap: Float[np.ndarray, "*batch r s"], w: Float[np.ndarray, "*batch r"], b: Float[np.ndarray, " s"], d: int
) -> Alignment:
    """sum_ij w_i b_j overlap_ij with its chance.

    Parameters
    ----------
    overlap
        Squared overlaps of the matrix's directions with the table's.
    w, b
        Weights of both, descending; NaN in w for a matrix without directions.
    d
        Dimension of the stream; directions that are not listed have weight 0.
    """
    value = np.asarray(np.einsum("...rs,...r,s->...", overlap, w, b))
    mean, sd = rotated_trace_moments(w.sum(-1), (w**2).sum(-1), b.sum(), (b**2).sum(), d)
    mean = np.where(np.isnan(value), np.nan, mean)
    wide = np.concatenate([w, np.zeros((*w.shape[:-1], d - w.shape[-1]))], axis=-1)
    long = np.concatenate([b, np.zeros(d - len(b))])
    low, high = np.asarray((wide * long[::-1]).sum(-1)), np.asarray((wide * long).sum(-1))
    return Alignment(value, mean, z_score(value, mean, sd), trace_log_p(value, mean, sd, low, high))
