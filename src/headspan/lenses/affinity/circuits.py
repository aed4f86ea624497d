r"""One pass over the weights: bases of what every head reads and writes, and the factors of its circuits.

For the composition score ||M N||_F / (||M||_F ||N||_F) of a source's M = W_V W_O with a destination's N, neither
product is formed. ||M N||_F = ||S^T D||_F with two [d_model, d_head] factors, because multiplying by a matrix with
orthonormal rows changes no norm:

    source       S = (R_V W_O)^T     with R_V^T R_V = W_V^T W_V
    through Q    D = A L_K           with L_K L_K^T = B^T B, where W_QK = A B^T (`headspan.heads.logits`)
    through K    D = B L_Q           with L_Q L_Q^T = sum of A^T A over the queries that read this kv head
    through V    D = W_V L_O         with L_O L_O^T = sum of W_O W_O^T over the same queries

With grouped heads the sums make one score per kv head: what reaches all its readers together. Without groups they are
the usual W_K W_Q^T and W_V W_O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.dims import ROLES, Role
from headspan.heads import HeadBlock, Heads
from headspan.heads.logits import bilinear_factors
from headspan.subspaces import Subspace
from headspan.subspaces.factored import gram_root
from headspan.subspaces.subspace import concatenate, stack_factors


@dataclass(frozen=True)
class Circuits:
    """Every head of a stack, in the order layer by layer, as one list per role."""

    spaces: Mapping[Role, Subspace]
    writer: Float[Tensor, "n d p"] | None
    readers: Mapping[str, Float[Tensor, "_ d _"]]


def head_circuits(
    heads: Heads,
    roles: Sequence[Role],
    *,
    composition: bool,
    delta: int = 0,
    tolerance: float | None = None,
    memory: int | str = "1GB",
) -> Circuits:
    """Bases of `roles` and, if `composition`, the factors of every circuit."""
    needed = ROLES if composition else tuple(role for role in ROLES if role in roles)
    spaces: dict[Role, list[Subspace]] = {role: [] for role in roles}
    factors: dict[str, list[Tensor]] = {"writer": [], "Q": [], "K": [], "V": []}
    for block in heads.blocks(memory, needed):
        for role in roles:
            spaces[role].append(block.spaces(role, tolerance).reshape(-1))
        if composition:
            for name, factor in block_factors(heads, block, delta).items():
                factors[name].append(factor.flatten(0, 1))
    whole = {name: stack_factors(parts) for name, parts in factors.items() if parts}
    return Circuits(
        spaces={role: concatenate(parts) for role, parts in spaces.items()},
        writer=whole.pop("writer", None),
        readers=whole,
    )


def block_factors(heads: Heads, block: HeadBlock, delta: int) -> dict[str, Tensor]:
    """The four factors of every head in a block, each [layer, head or kv head, d_model, d_head]."""
    group = heads.n_heads // heads.n_kv_heads
    # Heads sliced from a fused matrix would be copied anew by each product they enter.
    A, B = (factor.contiguous() for factor in bilinear_factors(heads, block, delta))
    W_V, W_O = block.W_V.contiguous(), block.W_O.contiguous()
    gram_Q, gram_K, gram_V, gram_O = A.mT @ A, B.mT @ B, W_V.mT @ W_V, W_O @ W_O.mT
    root_V = heads.per_query_head(gram_root(gram_V))
    return {
        "writer": (root_V.mT @ W_O).mT,
        "Q": A @ heads.per_query_head(gram_root(gram_K)),
        "K": B @ gram_root(_sum_over_readers(gram_Q, group)),
        "V": W_V @ gram_root(_sum_over_readers(gram_O, group)),
    }


def _sum_over_readers(gram: Float[Tensor, "layer head p p"], group: int) -> Float[Tensor, "layer kv_head p p"]:
    layers, n_heads, p, _ = gram.shape
    return torch.sum(gram.reshape(layers, n_heads // group, group, p, p), dim=2)
