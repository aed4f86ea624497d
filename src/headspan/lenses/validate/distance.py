r"""Do heads whose attention spaces lie close attend alike? Rank correlation over the pairs of heads of a layer.

1. Behaviour: the Jensen-Shannon divergence of two heads' attention rows, averaged over queries and token buffers.
2. Geometry: the Grassmann distance of their attention spaces R_Q + R_K.
3. Spearman's correlation of the two over all pairs. Pairs share heads, so its null is Mantel's: the heads of one of the
   two tables dealt anew (two-sided). Its interval comes from resampling heads, pairs of a head with itself left out.
4. Over all layers: the mean correlation, with heads dealt anew within every layer at once.

Reference: Mantel (1967), The detection of disease clustering and a generalized regression approach.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from scipy import stats  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

from headspan.heads import Heads
from headspan.lenses.intervene.divergence import full_logs, js_rows
from headspan.lenses.similarity.pairs import distance_table
from headspan.lenses.similarity.spaces import space_blocks, space_choice
from headspan.runtime import Forward

Array = npt.NDArray[np.float64]
FEWEST_HEADS = 4
LEVEL = 0.95
MEMORY = 2**30


def pattern_divergences(run: Forward, place: int) -> Float[Tensor, "head head"]:
    """Jensen-Shannon divergence of every two heads of a layer, in nats, averaged over queries: in [0, log 2]."""
    first = 1 if run.model.causal else 0
    logs = full_logs(run, place)[:, :, first:]
    n = logs.shape[1]
    found = torch.zeros(n, n, dtype=torch.float64)
    for i in range(n - 1):
        others = logs[:, i + 1 :]
        rest = js_rows(logs[:, i : i + 1].expand_as(others), others).mean((0, 2)).cpu()
        found[i, i + 1 :] = found[i + 1 :, i] = rest
    return found


def space_distances(heads: Heads) -> list[Array]:
    """Grassmann distance of the attention spaces of every two heads, layer by layer."""
    choice = space_choice(heads, "sum", None, None, None)
    tables = []
    for block in space_blocks(heads, choice, MEMORY):
        for place in range(len(block.layers)):
            tables.append(np.asarray(distance_table(block.attention[place], "grassmann", MEMORY)))
    return tables


def mantel(distances: list[Array], behaviours: list[Array], permutations: int, seed: int) -> dict[str, Array]:
    """Spearman's correlation per layer, its interval and p-value, and the mean over layers with its p-value.

    Returns
    -------
    dict
        `spearman`, `low`, `high`, `p_value` [layer], and `mean_spearman`, `mean_p_value` []: correlations in [-1, 1],
        0 by chance; p-values in [1 / (permutations + 1), 1], of heads dealt anew. NaN where a layer has under 4 heads
        or a table does not vary.
    """
    generator = np.random.default_rng(seed)
    found = np.array([_spearman(d, b) for d, b in zip(distances, behaviours, strict=True)])
    drawn = np.full((permutations, len(found)), np.nan)
    intervals = np.full((len(found), 2), np.nan)
    for place, (d, b) in enumerate(zip(distances, behaviours, strict=True)):
        if np.isfinite(found[place]):
            orders = [generator.permutation(len(d)) for _ in range(permutations)]
            drawn[:, place] = [_spearman(d[np.ix_(order, order)], b) for order in orders]
            intervals[place] = _interval(d, b, permutations, generator)
    known = np.isfinite(found)
    beyond = (np.abs(drawn) >= np.abs(found) - 1e-12).sum(0)
    p_value = np.where(known, (1 + beyond) / (permutations + 1), np.nan)
    mean = found[known].mean() if known.any() else np.nan
    means = drawn[:, known].mean(1) if known.any() else np.array([])
    mean_p = (1 + (np.abs(means) >= abs(mean) - 1e-12).sum()) / (permutations + 1) if known.any() else np.nan
    return {
        "spearman": found,
        "low": intervals[:, 0],
        "high": intervals[:, 1],
        "p_value": p_value,
        "mean_spearman": np.asarray(mean),
        "mean_p_value": np.asarray(mean_p),
    }


def _spearman(d: Array, b: Array, keep: npt.NDArray[np.bool_] | None = None) -> float:
    upper = np.triu(np.ones(d.shape, dtype=bool), 1) if keep is None else keep
    x, y = d[upper], b[upper]
    fine = np.isfinite(x) & np.isfinite(y)
    if len(d) < FEWEST_HEADS or fine.sum() < 3 or np.ptp(x[fine]) == 0 or np.ptp(y[fine]) == 0:
        return float("nan")
    ranks = stats.rankdata(np.stack([x[fine], y[fine]]), axis=1)
    return float(np.corrcoef(ranks)[0, 1])


def _interval(d: Array, b: Array, draws: int, generator: np.random.Generator) -> tuple[float, float]:
    """Percentiles over resampled heads."""
    n, values = len(d), []
    for _ in range(draws):
        heads = np.sort(generator.integers(n, size=n))
        keep = np.triu(heads[:, None] != heads[None, :], 1)
        values.append(_spearman(d[np.ix_(heads, heads)], b[np.ix_(heads, heads)], keep))
    tail = 50 * (1 - LEVEL)
    low, high = np.nanpercentile(values, [tail, 100 - tail]) if np.isfinite(values).any() else (np.nan, np.nan)
    return float(low), float(high)
