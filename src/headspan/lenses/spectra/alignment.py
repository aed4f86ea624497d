r"""Whether a head's queries and keys look for the same thing: trace and symmetric part of W_QK = A B^T.

The trace is the sum over head features of <a_i, b_i>: for tokens of unit covariance it is the mean logit of a token
with itself, less that with others. What it is worth depends on what it would be by chance:

- factors: A and B keep their singular values and get independent random singular vectors. Mean 0, standard deviation
  |A|_F |B|_F / sqrt(d r), exactly. Not N(0, 1), and not a function of how the two spectra are ordered.
- product: W_QK keeps its singular values and gets independent random singular vectors. Mean 0, standard deviation
  |W_QK|_F / sqrt(d), exactly. It does not change if A and B are scaled against each other, A -> A G, B -> B G^-T.

|trace| is at most the nuclear norm, reached when left and right singular vectors agree. The symmetric part holds the
share (1 + tr(W^2) / |W|^2) / 2 of the energy, (1 + 1/d) / 2 by chance with standard deviation 1 / (sqrt(2) d); its
eigenvalues are positive along features that attract like to like, negative along those where like repels like.
"""

from __future__ import annotations

import numpy as np
from scipy import special  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

from headspan.heads import Heads
from headspan.statistics import q_values
from headspan.subspaces import symmetric_eigenvalues

Arrays = dict[str, np.ndarray]


def block_alignment(A: Tensor, B: Tensor) -> Arrays:
    """[layer, head]: sums that the alignment of heads follows from; A of their queries, B of their keys."""
    A, B = A.double(), B.double()
    cross = B.mT @ A
    return {
        "trace": cross.diagonal(dim1=-2, dim2=-1).sum(-1).numpy(force=True),
        "trace_of_square": (cross * cross.mT).sum((-2, -1)).numpy(force=True),
        "symmetric_nuclear": symmetric_eigenvalues(A, B).abs().sum(-1).numpy(force=True),
        "norm_A": A.square().sum((-2, -1)).sqrt().numpy(force=True),
        "norm_B": B.square().sum((-2, -1)).sqrt().numpy(force=True),
    }


def alignment_variables(heads: Heads, sums: Arrays, values: np.ndarray) -> Arrays:
    """Alignment of every head with both nulls, from the sums and the singular values of W_QK.

    In cross-attention queries and keys read different streams, whose directions have nothing to do with one another:
    trace and symmetric part are undefined there, NaN.
    """
    d, r = heads.d_model, heads.d_head
    energy = (values**2).sum(-1)
    one_stream = np.where(heads.stack.reads_memory | (energy == 0), np.nan, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        trace = sums["trace"] * one_stream
        sd_factors = sums["norm_A"] * sums["norm_B"] / np.sqrt(d * r) * one_stream
        sd_product = np.sqrt(energy / d) * one_stream
        symmetric = 0.5 * (1 + sums["trace_of_square"] / energy) * one_stream
        positive = 0.5 * (1 + trace / sums["symmetric_nuclear"])
        out = {
            "trace": trace,
            "trace_sd": sd_factors,
            "trace_z": trace / sd_factors,
            "trace_sd_product": sd_product,
            "trace_z_product": trace / sd_product,
            "nuclear_norm": values.sum(-1),
            "trace_share": trace / values.sum(-1),
            "trace_share_sd": sd_product / values.sum(-1),
            "symmetric_share": symmetric,
            "skew_share": 1 - symmetric,
            "positive_mass": positive,
            "positive_mass_sd": sd_product / (2 * sums["symmetric_nuclear"]),
        }
    out["p_value"] = special.erfc(np.abs(out["trace_z"]) / np.sqrt(2))
    out["q_value"] = q_values(out["p_value"])
    return out


def alignment_chance(d: int) -> dict[str, float]:
    """What each alignment variable is by chance, where that is one number for all heads."""
    share, sd = 0.5 * (1 + 1 / d), 1 / (np.sqrt(2) * d)
    return {
        "trace_chance": 0.0,
        "trace_share_chance": 0.0,
        "symmetric_share_chance": share,
        "symmetric_share_sd": float(sd),
        "skew_share_chance": 1 - share,
        "positive_mass_chance": 0.5,
    }


def layer_alignment(variables: Arrays) -> Arrays:
    """The trace of a whole layer: that of its heads, added up. Under the null heads are independent: variances add."""
    known = np.where(np.isnan(variables["trace"]).all(-1), np.nan, 1.0)
    trace = np.nansum(variables["trace"], axis=-1) * known
    sd = np.sqrt(np.nansum(variables["trace_sd"] ** 2, axis=-1)) * known
    with np.errstate(invalid="ignore", divide="ignore"):
        z = trace / sd
    return {"trace": trace, "trace_sd": sd, "trace_z": z, "p_value": special.erfc(np.abs(z) / np.sqrt(2))}
