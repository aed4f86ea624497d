"""The subspaces in which the lab describes copying, taken from a model's weights in float64.

Embedding: right singular vectors of W_E (tokens by d_model), split into top, medium and bottom at its gaps
(`spectral_split`). Bridge: the top right singular subspace of W_Q W_K^T of layer 1, the directions in which its keys
are read. Write and read spaces: top-k left or right singular subspaces of whole matrices, O of layer 0 and Q, K, V of
layer 1. A matrix of several heads is taken whole. Layers count from 0; a model of one layer has neither bridge nor
pair. With d_head = d_model the spaces of whole matrices are everything, so all of them are cut at k.

The split: late in training the singular values of the token table fall into three groups, one large value, a medium
block and a small rest. Earlier they form one slope, and any split of it would be made up. Values of a random matrix lie
further apart, relative to their size, the smaller they are, so ratios at different places do not compare. Each log
ratio ln(s_i / s_{i+1}) is therefore divided by its mean over random matrices of the same shape. The break is where this
relative gap is largest, from behind the top value down to nine tenths of the spectrum, and it is accepted only if the
largest relative gap of random matrices reaches it with p < 0.001.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.lab.model import LabModel
from headspan.statistics import random_singular_values

READERS = ("Q", "K", "V")
PARTS = ("top", "medium", "bottom")
PROJECTION = {"Q": "q_proj", "K": "k_proj", "V": "v_proj", "O": "o_proj"}
LEVEL, DRAWS, SEED = 0.001, 2999, 0
"""The level is strict because a record asks at a hundred steps of a run."""
FARTHEST, FEWEST = 0.9, 8


def sizes(d_model: int) -> tuple[int, int, int]:
    """The three k at which subspaces are cut: 4, 10 and 16 at d_model 64, in proportion elsewhere, and no two alike."""
    small = max(1, d_model // 16)
    middle = max(small + 1, round(10 * d_model / 64))
    return small, middle, max(middle + 1, d_model // 4)


@dataclass(frozen=True)
class NamedSpaces:
    """A model's matrices for row vectors (x @ W), in float64, and their singular subspaces."""

    W_E: Float[Tensor, "token d"]
    W: Mapping[tuple[str, int], Float[Tensor, "_ _"]]
    """By role and layer; Q, K, V are [d, width], O is [width, d]."""

    @classmethod
    def of(cls, model: LabModel) -> NamedSpaces:
        """The matrices of a model as they are now."""
        weights = {
            (role, layer): module.self_attn.get_parameter(f"{name}.weight").detach().double().cpu().T
            for layer, module in enumerate(model.stack)
            for role, name in PROJECTION.items()
        }
        return cls(model.embed_tokens.weight.detach().double().cpu(), weights)

    @property
    def d(self) -> int:
        return self.W_E.shape[1]

    @property
    def has_pair(self) -> bool:
        """Whether there is a layer 0 that writes and a layer 1 that reads."""
        return ("O", 1) in self.W

    @cached_property
    def embedding(self) -> tuple[Float[Tensor, " rank"], Float[Tensor, "d d"]]:
        """Singular values of W_E, descending, and its right singular vectors as columns, completed to all of R^d."""
        _, values, Vh = torch.linalg.svd(self.W_E, full_matrices=True)
        return values, Vh.T

    @cached_property
    def split(self) -> Split:
        """Where the embedding's spectrum breaks."""
        return spectral_split(self.embedding[0], (self.W_E.shape[0], self.d))

    @cached_property
    def embedding_parts(self) -> dict[str, Float[Tensor, "d _"]]:
        """Bases of top, medium and bottom; nothing where the spectrum has no gap."""
        if not self.split.found:
            return {}
        _, directions = self.embedding
        ends = (0, self.split.top, self.split.top + self.split.medium, self.d)
        return {part: directions[:, a:b] for part, a, b in zip(PARTS, ends, ends[1:], strict=False)}

    @cached_property
    def bridge(self) -> Float[Tensor, "d rank"]:
        """Right singular vectors of W_Q W_K^T of layer 1 as columns, the strongest first."""
        vectors: Tensor = torch.linalg.svd(self.W["Q", 1] @ self.W["K", 1].T).Vh.T
        return vectors

    @cached_property
    def write_directions(self) -> Float[Tensor, "d rank"]:
        """Directions in which O of layer 0 writes, the strongest first."""
        vectors: Tensor = torch.linalg.svd(self.W["O", 0], full_matrices=False).Vh.T
        return vectors

    @cached_property
    def read_directions(self) -> Mapping[str, Float[Tensor, "d rank"]]:
        """Directions in which Q, K and V of layer 1 read, the strongest first."""
        return {role: torch.linalg.svd(self.W[role, 1], full_matrices=False).U for role in READERS}


@dataclass(frozen=True)
class Split:
    """Where a spectrum breaks.

    Attributes
    ----------
    top, medium : int
        Numbers of directions; all others are bottom.
    gap : float
        ln(s_i / s_{i+1}) at the break between medium and bottom, over its mean for random matrices; at least 0.
        `null` is the median of the largest such gap of random matrices, about 3.
    p_value : float
        How often a random matrix has so large a gap anywhere in the range searched, in (0, 1].
    top_ratio : float
        s_1 / s_2.
    """

    top: int
    medium: int
    gap: float
    null: float
    p_value: float
    top_ratio: float

    @property
    def found(self) -> bool:
        """Whether the gap is significant."""
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
        `found` is False where the spectrum has no significant gap, or too few values; its sizes then mean nothing.
    """
    if len(values) < FEWEST:
        return Split(1, 1, math.nan, math.nan, 1.0, math.nan)
    typical, largest = _null_gaps(*shape)
    relative = _log_ratios(values) / typical
    place = int(relative.argmax())
    gap = float(relative[place])
    p = (1 + int((largest >= gap).sum())) / (1 + len(largest))
    top_ratio = float(values[0] / values[1]) if float(values[1]) > 0 else math.inf
    return Split(1, place + 1, gap, float(largest.median()), p, top_ratio)


def _log_ratios(values: Float[Tensor, "*draw rank"]) -> Float[Tensor, "*draw place"]:
    """ln(s_i / s_{i+1}) from the second value on, down to nine tenths of the spectrum."""
    last = max(3, int(FARTHEST * values.shape[-1]))
    logs = values[..., 1:last].clamp(min=torch.finfo(values.dtype).tiny).log()
    return -logs.diff(dim=-1)


@lru_cache(maxsize=16)
def _null_gaps(m: int, n: int) -> tuple[Float[Tensor, " place"], Float[Tensor, " draw"]]:
    """Mean log ratio at each place for random m x n matrices, and the largest relative gap of each draw."""
    ratios = _log_ratios(random_singular_values(m, n, DRAWS, SEED))
    typical = ratios.mean(0)
    return typical, (ratios / typical).max(-1).values
