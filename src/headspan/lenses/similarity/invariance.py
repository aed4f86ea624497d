"""The algebra behind the spaces, checked on numbers: a head does not see its null spaces.

For random tokens x_i, x_j the logit is (x_i W_Q + b_Q)(x_j W_K + b_K)^T. Adding to every x_i a vector of N_Q and to
every x_j one of N_K, each as long as its token, must change no logit. Vectors of the same length from R_Q and R_K do
change them, and those from nowhere in particular lie between: they are the chance value. A null vector is a random one
less its part in the read space, so no basis of a null space is needed.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.heads import Heads
from headspan.lenses.similarity.spaces import BlockSpaces
from headspan.subspaces import Subspace, project

TOKENS = 16
Part = Literal["null", "read", "random"]


def _added(noise: Tensor, S: Subspace, part: Part, length: Tensor) -> Tensor:
    """The part of `noise` in the space or across it, scaled to `length`; NaN if that part is empty."""
    inside = project(noise, S)
    vector = {"null": noise - inside, "read": inside, "random": noise.expand_as(inside)}[part]
    room = {"null": S.ambient - S.rank, "read": S.rank, "random": torch.full_like(S.rank, S.ambient)}[part]
    vector = vector * (length / vector.norm(dim=-1, keepdim=True))
    return torch.where((room > 0)[..., None, None], vector, torch.nan)


def logit_changes(
    heads: Heads, spaces: BlockSpaces, key: Subspace, generator: torch.Generator
) -> dict[str, Float[Tensor, "layer head"]]:
    """Relative change ||A' - A||_F / ||A||_F of the logits A of random tokens.

    Parameters
    ----------
    heads, spaces
        The heads and the spaces of one block.
    key
        Key spaces per query head.
    generator
        Draws tokens and what is added to them.

    Returns
    -------
    dict
        "null": 0 up to rounding; "read": > 0; "random": the chance value, what a vector of the same length changes that
        belongs to no space. NaN for a head without logits, or without a null space.
    """
    d, like = heads.d_model, spaces.W_Q
    x_i, x_j, u, v = (torch.randn(TOKENS, d, generator=generator, dtype=torch.float64).to(like) for _ in range(4))
    W_K = heads.per_query_head(spaces.W_K)
    b_K = None if spaces.key_bias is None else heads.per_query_head(spaces.key_bias)

    def logits(queries: Tensor, keys: Tensor) -> Tensor:
        q, k = queries @ spaces.W_Q, keys @ W_K
        q = q if spaces.query_bias is None else q + spaces.query_bias[..., None, :]
        k = k if b_K is None else k + b_K[..., None, :]
        return q @ k.mT

    plain = logits(x_i, x_j)
    defined = (spaces.query.rank > 0) & (key.rank > 0)
    size = torch.where(defined, torch.linalg.matrix_norm(plain), torch.nan)
    changes: dict[str, Tensor] = {}
    parts: tuple[Part, ...] = ("null", "read", "random")
    for part in parts:
        more_i = _added(u, spaces.query, part, x_i.norm(dim=-1, keepdim=True))
        more_j = _added(v, key, part, x_j.norm(dim=-1, keepdim=True))
        changes[part] = torch.linalg.matrix_norm(logits(x_i + more_i, x_j + more_j) - plain) / size
    return changes
