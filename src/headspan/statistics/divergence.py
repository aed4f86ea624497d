"""How far a sample lies from the normal law that its null predicts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[np.float64]

KL_BINS = 255
KL_FLOOR = 1e-12


def kl_from_normal(values: Array, width: int, mean: float, variance: float) -> float:
    """KL(normal || observed) over 255 equal bins on [0, width]; >= 0, 0 if they agree.

    NaN where the null leaves no room (variance 0: heads as wide as the model).

    sum over bins with r_i > 0 of r_i ln(r_i / max(h_i, 1e-12)); r_i the normal mass, h_i the observed share of bin i.
    Reference: arXiv 2601.10266, as the project's reference page fixes the binning.
    """
    if variance == 0:
        return np.nan
    edges = np.linspace(0.0, width, KL_BINS + 1)
    normal = np.diff(stats.norm.cdf(edges, loc=mean, scale=variance**0.5))
    observed = np.histogram(values, bins=edges)[0] / values.size
    inside = normal > 0
    return float(np.sum(normal[inside] * np.log(normal[inside] / np.maximum(observed[inside], KL_FLOOR))))
