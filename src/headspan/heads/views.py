"""From stored matrices to per-head views, without copying.

The library's convention, stated here once: row vectors, `x @ W`;
`W_Q, W_K, W_V: [layer, head, d_model, d_head]`, `W_O: [layer, head, d_head, d_model]`.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from headspan.checkpoint.families import Rows, Stored
from headspan.dims import Role


def head_features(
    features: Float[Tensor, "layer *other n_features"], rows: Rows
) -> Float[Tensor, "layer *other head d_head"]:
    """Split the last axis of a stored tensor into the heads that `rows` assigns it to."""
    outer = features.shape[:-1]
    groups = features.reshape(*outer, rows.n_groups, rows.group_rows)
    own = groups.narrow(-1, rows.start, rows.per_group * rows.d_head)
    return own.reshape(*outer, rows.n_heads, rows.d_head)


def head_weights(
    matrix: Float[Tensor, "layer _ _"], rows: Rows, stored: Stored, role: Role
) -> Float[Tensor, "layer head _ _"]:
    """One role's heads out of the stored matrices of a block of layers, in the library's layout."""
    reads_heads_last = (stored == "in_out") != (role == "O")
    features = matrix if reads_heads_last else matrix.transpose(-1, -2)
    heads = head_features(features, rows).movedim(-2, 1)
    return heads.transpose(-1, -2) if role == "O" else heads
