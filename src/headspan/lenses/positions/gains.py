"""Do norms turn down the coordinates that carry positions? Gains against leverage, layer by layer.

What a layer reads of coordinate c goes through the gain g_c of the norm before its attention. S is the set of the
fewest coordinates that hold 90 % of the leverage of the top position directions (`directions`). For every layer,

    auc = P(|g_c| < |g_c'| or half of a tie), c outside S and c' in S,

which is 1/2 if S is any set of as many coordinates, 0 if all gains in S are below all others and 1 if they are above.
Null: a random set of coordinates (Mann and Whitney 1947, normal approximation with correction for ties), two-sided;
q over layers.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from headspan.dims import LAYER
from headspan.errors import HeadspanError
from headspan.heads import Heads
from headspan.lenses.positions.spectra import Variables
from headspan.statistics import q_values


def gain_obstacle(heads: Heads) -> str | None:
    """Why gains cannot be compared, in one line."""
    if heads.widened_together:
        return "one matrix widens the tables before any norm"
    if heads.stack.norm_place == "after":
        return "its norms stand after the attention, so no gain stands between a table and a layer"
    return None


def gain_variables(heads: Heads, chosen: Bool[np.ndarray, " coordinate"]) -> Variables:
    """`gain [layer, coordinate]`, and `gain_auc`, medians on both sides, p and q [layer]; NaN without a norm."""
    gains = np.stack([_gain(heads, layer) for layer in heads.layers])
    found = [gain_auc(np.abs(row), chosen) for row in gains]
    p = np.array([each[1] for each in found])
    sides = {"carrying": chosen, "other": ~chosen}
    out: Variables = {"gain": ((LAYER, "coordinate"), gains)}
    for name, members in sides.items():
        values = np.median(np.abs(gains[:, members]), axis=1) if members.any() else np.full(len(gains), np.nan)
        out[f"gain_{name}"] = ((LAYER,), values)
    out |= {"gain_auc": ((LAYER,), np.array([each[0] for each in found])), "gain_auc_null": ((), np.array(0.5))}
    return out | {"gain_auc_p": ((LAYER,), p), "gain_auc_q": ((LAYER,), q_values(p))}


def _gain(heads: Heads, layer: int) -> Float[np.ndarray, " coordinate"]:
    """The gain of the norm before a layer's attention; NaN where it has none."""
    try:
        gain: np.ndarray = heads.norm(layer).gain.double().cpu().numpy()
    except HeadspanError:
        return np.full(heads.d_model, np.nan)
    return gain


def gain_auc(size: Float[np.ndarray, " coordinate"], chosen: Bool[np.ndarray, " coordinate"]) -> tuple[float, float]:
    """How often a chosen coordinate's gain is the larger one, in [0, 1], and its two-sided p; 1/2 and 1 for ties."""
    from scipy.stats import mannwhitneyu

    inside, outside = size[chosen], size[~chosen]
    if not len(inside) or not len(outside) or np.isnan(size).any():
        return float("nan"), float("nan")
    if np.ptp(size) == 0:
        return 0.5, 1.0
    test = mannwhitneyu(inside, outside, alternative="two-sided", method="asymptotic")
    return float(test.statistic) / (len(inside) * len(outside)), float(test.pvalue)
