r"""The gaps of an embedding's spectrum: one large value, a medium block, a small rest. Refused where there is no gap.

Late in training the singular values of the token table fall into three groups. Earlier they form one slope, and any
split of it would be made up. So the place between medium and small is looked for at the largest ratio s_i / s_{i+1},
from behind the top value down to nine tenths of the spectrum, and is accepted only if random matrices of the same shape
have so large a ratio there with p < 0.01. (The very smallest values of a square random matrix are far apart by chance;
that is why they are left out.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import DegenerateSubspace
from headspan.subspaces import random_singular_values

LEVEL, DRAWS, SEED = 0.01, 999, 0
FARTHEST = 0.9


@dataclass(frozen=True)
class Split:
    """Where a spectrum breaks.

    Attributes
    ----------
    top, medium : int
        Numbers of directions; all others are bottom.
    gap : float
        s_i / s_{i+1} at the break between medium and bottom, at least 1; `chance` is its median for random matrices.
    p_value : float
        How often a random matrix has so large a ratio anywhere in the range searched, in (0, 1].
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
        `found` is False where the spectrum has no gap beyond chance: then its sizes mean nothing.
    """
    if len(values) < 8:
        raise DegenerateSubspace(f"a split in three needs at least 8 singular values, found {len(values)}")
    place, gap = _largest_ratio(values)
    chance = _chance_gaps(*shape)
    p = (1 + int((chance >= gap).sum())) / (1 + len(chance))
    top_ratio = float(values[0] / values[1]) if float(values[1]) > 0 else math.inf
    return Split(1, place, gap, float(chance.median()), p, top_ratio)


def _largest_ratio(values: Float[Tensor, " rank"]) -> tuple[int, float]:
    """Number of values between the top one and the largest gap behind it, and that gap."""
    last = max(3, int(FARTHEST * len(values)))
    ratios = values[1 : last - 1] / values[2:last].clamp(min=torch.finfo(values.dtype).tiny)
    place = int(ratios.argmax())
    return place + 1, float(ratios[place])


@lru_cache(maxsize=16)
def _chance_gaps(m: int, n: int) -> Float[Tensor, " draw"]:
    """Largest ratios of random m x n spectra in the same range."""
    draws = random_singular_values(m, n, DRAWS, SEED)
    return torch.tensor([_largest_ratio(one)[1] for one in draws], dtype=torch.float64)
