r"""The gaps of an embedding's spectrum: one large value, a medium block, a small rest. Refused where there is no gap.

Late in training the singular values of the token table fall into three groups. Earlier they form one slope, and any
split of it would be made up. Values of a random matrix lie further apart, relative to their size, the smaller they are,
so ratios at different places do not compare. Each log ratio ln(s_i / s_{i+1}) is therefore divided by its mean over
random matrices of the same shape. The break is where this relative gap is largest, from behind the top value down to
nine tenths of the spectrum, and it is accepted only if the largest relative gap of random matrices reaches it with
p < 0.001.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.statistics import empirical_p_value, random_singular_values

LEVEL, DRAWS, SEED = 0.001, 2999, 0
"""The level is strict because a record asks at a hundred steps of a run."""
FARTHEST, FEWEST = 0.9, 8


@dataclass(frozen=True)
class Split:
    """Where a spectrum breaks.

    Attributes
    ----------
    top, medium : int
        Numbers of directions; all others are bottom.
    gap : float
        ln(s_i / s_{i+1}) at the break between medium and bottom, over its mean for random matrices; at least 0.
        `chance` is the median of the largest such gap of random matrices, about 3.
    p_value : float
        How often a random matrix has so large a gap anywhere in the range searched, in (0, 1].
    top_ratio : float
        s_1 / s_2.
    """

    top: int
    medium: int
    gap: float
    chance: float
    p_value: float
    top_ratio: float

    @property
    def found(self) -> bool:
        """Whether the gap is one that chance does not make."""
        return self.p_value < LEVEL


def spectral_split(values: Float[Tensor, " rank"], shape: tuple[int, int]) -> Split:
    """The break of a descending spectrum, with the test of its gap.

    Parameters
    ----------
    values
        [rank], singular values of a matrix of that `shape`, descending.

    Returns
    -------
    Split
        `found` is False where the spectrum has no gap beyond chance, or too few values to ask: then its sizes mean
        nothing.
    """
    if len(values) < FEWEST:
        return Split(1, 1, math.nan, math.nan, 1.0, math.nan)
    typical, largest = _chance_gaps(*shape)
    relative = _log_ratios(values) / typical
    place = int(relative.argmax())
    gap = float(relative[place])
    p = float(empirical_p_value(gap, largest.numpy()))
    top_ratio = float(values[0] / values[1]) if float(values[1]) > 0 else math.inf
    return Split(1, place + 1, gap, float(largest.median()), p, top_ratio)


def _log_ratios(values: Float[Tensor, "*draw rank"]) -> Float[Tensor, "*draw place"]:
    """ln(s_i / s_{i+1}) from the second value on, down to nine tenths of the spectrum."""
    last = max(3, int(FARTHEST * values.shape[-1]))
    logs = values[..., 1:last].clamp(min=torch.finfo(values.dtype).tiny).log()
    return -logs.diff(dim=-1)


@lru_cache(maxsize=16)
def _chance_gaps(m: int, n: int) -> tuple[Float[Tensor, " place"], Float[Tensor, " draw"]]:
    """Mean log ratio at each place for random m x n matrices, and the largest relative gap of each draw."""
    ratios = _log_ratios(random_singular_values(m, n, DRAWS, SEED))
    typical = ratios.mean(0)
    return typical, (ratios / typical).max(-1).values
