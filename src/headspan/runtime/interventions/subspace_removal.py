r"""Taking a subspace away from what a head reads, or from what it writes.

With P the projector onto the subspace, a reader becomes (I - P) W and so ignores whatever lies there; a writer becomes
W_O (I - P) and writes nothing into it. What other heads read and write is left alone. Readers see the stream behind
their norm, so that is where the subspace counts for them; the bias behind W_O belongs to no head and stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.dims import HeadLabel, Role
from headspan.errors import ShapeError, UnsupportedModel
from headspan.runtime.interventions.edits import Edits
from headspan.runtime.interventions.head_parameters import Label, head_weight, role_head, weight_view
from headspan.runtime.model import RunnableModel
from headspan.subspaces import Subspace, orthonormal_basis


@dataclass(frozen=True, eq=False)
class WithoutSubspace:
    """A head that reads through `role`, or writes if it is O, nothing of a subspace of R^d_model."""

    head: Label
    role: Role
    subspace: Subspace
    of: str = "a subspace"
    """What the subspace is, for the reader."""

    @property
    def name(self) -> str:
        return f"{self.head}.{self.role} without {self.of}"

    def apply(self, edits: Edits) -> None:
        label = role_head(edits.model, self.head, self.role)
        if self.role != "O" and edits.model.stack.projections[self.role].latent is not None:
            raise UnsupportedModel(
                f"W_{self.role} of a {edits.model.checkpoint.family} reads through a latent space that its heads share"
            )
        if self.subspace.ambient != edits.model.stack.d_model:
            raise ShapeError(
                f"the subspace lies in R^{self.subspace.ambient}, and this model's stream is "
                f"R^{edits.model.stack.d_model}"
            )
        W = head_weight(edits, self.role, label.layer, label.head)
        reading = W.mT if self.role == "O" else W
        B = self.subspace.basis.to(W.device, torch.float64)
        reading.copy_(reading.double() - B @ (B.mT @ reading.double()))

    def notes(self, model: RunnableModel) -> tuple[str, ...]:
        return ()


def head_space(model: RunnableModel, head: Label, role: Role) -> Subspace:
    """What a head reads through Q, K or V, or writes through O, in the running model as it is now."""
    label = role_head(model, head, role)
    # Below the precision of the weights themselves a direction is rounding, whatever it is computed in.
    tolerance = model.stack.d_model * torch.finfo(model.module.dtype).eps
    return orthonormal_basis(reading_matrix(model, role, label), tolerance)


def reading_matrix(model: RunnableModel, role: Role, label: HeadLabel) -> Float[Tensor, "d_model d_head"]:
    """A head's matrix with the stream's axis first, in float64: W_Q, W_K, W_V, or the transpose of W_O."""
    weight = model.linear(role, label.layer).get_parameter("weight")
    W = weight_view(weight.detach(), model.stack.projections[role], role, label.head).double()
    return W.mT if role == "O" else W
