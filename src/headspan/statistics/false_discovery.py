"""False-discovery control when many p-values are ranked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[np.float64]


def q_values(p_values: Array) -> Array:
    """Benjamini-Hochberg adjusted p-values over everything that is not NaN; in [0, 1].

    Under the null the share of false discoveries among q <= x is at most x.
    """
    adjusted = np.full(p_values.shape, np.nan)
    known = ~np.isnan(p_values)
    if known.any():
        adjusted[known] = stats.false_discovery_control(p_values[known], method="bh")
    return adjusted
