"""The heads of a few consecutive layers, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from headspan.dims import Role
from headspan.errors import ShapeError


@dataclass(frozen=True)
class HeadBlock:
    """Weights and biases of the roles that were asked for, for a block of layers.

    A bias is None where the model has none. `b_O` belongs to the layer, not to a head: it is added once.
    """

    layers: tuple[int, ...]
    weights: Mapping[Role, Float[Tensor, "layer _ _ _"]]
    biases: Mapping[Role, Float[Tensor, "layer ..."] | None]

    @property
    def W_Q(self) -> Float[Tensor, "layer head d_model d_head"]:
        return self.weight("Q")

    @property
    def W_K(self) -> Float[Tensor, "layer kv_head d_model d_head"]:
        return self.weight("K")

    @property
    def W_V(self) -> Float[Tensor, "layer kv_head d_model d_value"]:
        return self.weight("V")

    @property
    def W_O(self) -> Float[Tensor, "layer head d_value d_model"]:
        return self.weight("O")

    @property
    def b_Q(self) -> Float[Tensor, "layer head d_head"] | None:
        return self.bias("Q")

    @property
    def b_K(self) -> Float[Tensor, "layer kv_head d_head"] | None:
        return self.bias("K")

    @property
    def b_V(self) -> Float[Tensor, "layer kv_head d_value"] | None:
        return self.bias("V")

    @property
    def b_O(self) -> Float[Tensor, "layer d_model"] | None:
        return self.bias("O")

    def weight(self, role: Role) -> Float[Tensor, "layer heads _ _"]:
        self._check(role)
        return self.weights[role]

    def bias(self, role: Role) -> Float[Tensor, "layer ..."] | None:
        self._check(role)
        return self.biases[role]

    def _check(self, role: Role) -> None:
        if role not in self.weights:
            raise ShapeError(f"role {role} was not read in this block (it holds {', '.join(self.weights)}); ask for it")
