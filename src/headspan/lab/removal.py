"""Taking a subspace out of a model: what is embedded, what a layer reads through Q, K or V, what it writes.

With the projector P onto the subspace, W_E (I - P) embeds without it, (I - P) W_Q reads the (normed) stream without it,
and W_O (I - P), b_O (I - P) write without it. All are changes of weights, so an ablated model is a model like any other
and every score applies to it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import HeadspanError, ShapeError
from headspan.lab.model import LabModel
from headspan.lab.named_spaces import PROJECTION

Role = Literal["E", "Q", "K", "V", "O"]


@dataclass(frozen=True)
class Site:
    """Where a subspace is taken out: the embedding (`E`), or one role of one layer."""

    role: Role
    layer: int = 0

    def __str__(self) -> str:
        return "embedding" if self.role == "E" else f"L{self.layer} {self.role}"


def sites(layers: int) -> list[Site]:
    """The embedding, and every role of every layer."""
    roles: Sequence[Role] = ("Q", "K", "V", "O")
    return [Site("E"), *(Site(role, layer) for layer in range(layers) for role in roles)]


@torch.no_grad()
def without(model: LabModel, site: Site, basis: Float[Tensor, "d k"]) -> LabModel:
    """A copy of the model in which `site` does not see the span of `basis`.

    Parameters
    ----------
    model
        Left as it is.
    site
        Where.
    basis
        [d_model, k], orthonormal columns.
    """
    if basis.shape[0] != model.shape.d_model:
        raise ShapeError(f"a basis of R^{basis.shape[0]} does not fit a stream of {model.shape.d_model} dimensions")
    if site.role != "E" and not 0 <= site.layer < model.shape.layers:
        raise HeadspanError(f"there is no layer {site.layer}; the model has {model.shape.layers}")
    changed = copy.deepcopy(model)
    U = basis.to(changed.embed_tokens.weight)
    if site.role == "E":
        _remove_from_rows(changed.embed_tokens.weight, U)
        return changed
    attention = changed.stack[site.layer].self_attn
    weight = attention.get_parameter(f"{PROJECTION[site.role]}.weight")  # [out, in], as torch keeps it
    if site.role == "O":
        weight.sub_(U @ (U.T @ weight))
        if model.shape.bias:
            bias = attention.get_parameter("o_proj.bias")
            bias.sub_(U @ (U.T @ bias))
    else:
        _remove_from_rows(weight, U)
    return changed


def _remove_from_rows(rows: Tensor, U: Tensor) -> None:
    rows.sub_((rows @ U) @ U.T)
