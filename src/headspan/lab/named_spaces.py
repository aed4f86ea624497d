"""The subspaces that the copying story is told in, taken from a model's weights in float64.

Embedding: right singular vectors of W_E (tokens by d_model), split into top, medium and bottom at its gaps
(`spectral_split`). Bridge: the top right singular subspace of W_Q W_K^T of layer 1, the directions in which its keys
are read. Write and read spaces: top-k left or right singular subspaces of whole matrices, O of layer 0 and Q, K, V of
layer
1. A matrix of several heads is taken whole. Layers count from 0; a model of one layer has neither bridge nor pair.

With d_head = d_model the spaces of whole matrices are everything, so all of them are cut at k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.lab.model import LabModel

READERS = ("Q", "K", "V")
PROJECTION = {"Q": "q_proj", "K": "k_proj", "V": "v_proj", "O": "o_proj"}


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
    def paired(self) -> bool:
        """Whether there is a layer 0 that writes and a layer 1 that reads."""
        return ("O", 1) in self.W

    @cached_property
    def embedding(self) -> tuple[Float[Tensor, " rank"], Float[Tensor, "d d"]]:
        """Singular values of W_E, descending, and its right singular vectors as columns, completed to all of R^d."""
        _, values, Vh = torch.linalg.svd(self.W_E, full_matrices=True)
        return values, Vh.T

    @cached_property
    def bridge(self) -> Float[Tensor, "d rank"]:
        """Right singular vectors of W_Q W_K^T of layer 1 as columns, the strongest first."""
        vectors: Tensor = torch.linalg.svd(self.W["Q", 1] @ self.W["K", 1].T).Vh.T
        return vectors

    @cached_property
    def written(self) -> Float[Tensor, "d rank"]:
        """Directions in which O of layer 0 writes, the strongest first."""
        vectors: Tensor = torch.linalg.svd(self.W["O", 0], full_matrices=False).Vh.T
        return vectors

    @cached_property
    def read(self) -> Mapping[str, Float[Tensor, "d rank"]]:
        """Directions in which Q, K and V of layer 1 read, the strongest first."""
        return {role: torch.linalg.svd(self.W[role, 1], full_matrices=False).U for role in READERS}
