r"""Whether a head's queries and keys look for the same thing: trace and symmetric part of W_QK = A B^T.

The trace is the sum over head features of <a_i, b_i>: for tokens of unit covariance it is the mean logit of a token
with itself, less that with others. There are two nulls:

- factors: A and B keep their singular values and get independent random singular vectors. Mean 0, standard deviation
  |A|_F |B|_F / sqrt(d r), exactly. Not N(0, 1), and not a function of how the two spectra are ordered.
- product: W_QK keeps its singular values and gets independent random singular vectors. Mean 0, standard deviation
  |W_QK|_F / sqrt(d), exactly. It does not change if A and B are scaled against each other, A -> A G, B -> B G^-T.

|trace| is at most the nuclear norm, reached when left and right singular vectors agree. The symmetric part holds the
share (1 + tr(W^2) / |W|^2) / 2 of the energy; expected are (1 + 1/d) / 2 with standard deviation 1 / (sqrt(2) d). Its
eigenvalues are positive along features that attract like to like, negative along those where like repels like.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from scipy import special  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

from headspan.dims import HEAD, LAYER
from headspan.heads import Heads
from headspan.statistics import q_values
from headspan.subspaces import symmetric_eigenvalues

Arrays = dict[str, np.ndarray]
NULLS = ("factors", "product")
PER_HEAD = (LAYER, HEAD)


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


def alignment_nodes(heads: Heads, sums: Arrays, values: np.ndarray) -> dict[str, xr.Dataset]:
    """Alignment of every head under both nulls, and of every layer, from the sums and the singular values of W_QK.

    In cross-attention queries and keys read different streams, whose directions have nothing to do with one another:
    trace and symmetric part are undefined there, NaN.
    """
    d, r, nuclear = heads.d_model, heads.d_head, values.sum(-1)
    energy = (values**2).sum(-1)
    one_stream = np.where(heads.stack.reads_memory | (energy == 0), np.nan, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        trace = sums["trace"] * one_stream
        sd_factors = sums["norm_A"] * sums["norm_B"] / np.sqrt(d * r) * one_stream
        sd_product = np.sqrt(energy / d) * one_stream
        symmetric = 0.5 * (1 + sums["trace_of_square"] / energy) * one_stream
        per_head = {
            "trace": trace,
            "nuclear_norm": nuclear,
            "trace_share": trace / nuclear,
            "trace_share_null_sd": sd_product / nuclear,
            "symmetric_share": symmetric,
            "skew_share": 1 - symmetric,
            "positive_mass": 0.5 * (1 + trace / sums["symmetric_nuclear"]),
            "positive_mass_null_sd": sd_product / (2 * sums["symmetric_nuclear"]),
        }
        spread = np.stack([sd_factors, sd_product])
        z = trace / spread
    p = _two_sided(z)
    tested = {"trace_null_sd": spread, "trace_z": z, "trace_p": p, "trace_q": np.stack([q_values(each) for each in p])}
    share, coords = 0.5 * (1 + 1 / d), {LAYER: list(heads.layers)}
    variables: dict[str, object] = {name: (PER_HEAD, array) for name, array in per_head.items()}
    variables |= {name: (("null", *PER_HEAD), array) for name, array in tested.items()}
    variables |= {"trace_null": 0.0, "trace_share_null": 0.0, "positive_mass_null": 0.5}
    variables |= {"symmetric_share_null": share, "symmetric_share_null_sd": float(1 / (np.sqrt(2) * d))}
    variables["skew_share_null"] = 1 - share
    return {
        "alignment": xr.Dataset(variables, coords={**coords, "null": list(NULLS)}),
        "layer": xr.Dataset(_layer_variables(trace, sd_factors), coords=coords),
    }


def _two_sided(z: np.ndarray) -> np.ndarray:
    p: np.ndarray = special.erfc(np.abs(z) / np.sqrt(2))
    return p


def _layer_variables(trace: np.ndarray, sd: np.ndarray) -> dict[str, object]:
    """The trace of a whole layer: that of its heads, added up. Under the null heads are independent: variances add."""
    defined = ~np.isnan(trace)
    known = np.where(defined.any(-1), 1.0, np.nan)
    total = np.nansum(trace, axis=-1) * known
    spread = np.sqrt(np.nansum(sd**2, axis=-1)) * known
    with np.errstate(invalid="ignore", divide="ignore"):
        z = total / spread
    arrays = {"trace": total, "trace_null_sd": spread, "trace_z": z, "trace_p": _two_sided(z)}
    return {name: ((LAYER,), array) for name, array in {**arrays, "heads_defined": defined.sum(-1)}.items()} | {
        "trace_null": 0.0
    }
