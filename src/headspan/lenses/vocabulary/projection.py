"""Which tokens lie in a head's subspace: the share of an embedding's norm that a head can read or write.

With U an orthonormal basis of a head's subspace (read spaces against W_E, the write space against W_U) and e a token's
vector, less the mean over tokens, the share is ||U^T e||^2 / ||e||^2.
"""

from __future__ import annotations

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError, DegenerateSubspace, UnsupportedModel
from headspan.heads import Heads
from headspan.lenses.token_texts import Tokens, tokens_of
from headspan.lenses.vocabulary.choices import Projection


def projected_tokens(heads: Heads, asked: Projection, all_tokens: bool, tokenizer: object) -> xr.Dataset:
    """`share` of the leading tokens, with their texts."""
    if asked.table not in heads.reader.stored.parts:
        raise UnsupportedModel(f"table={asked.table}: this checkpoint has no {asked.table}; use --table W_E")
    basis, rank = _basis(heads, asked)
    vectors = heads.table("W_E") if asked.table == "W_E" else heads.table("W_U").T
    tokens = tokens_of(heads, len(vectors), tokenizer)
    keep = Tokens(len(vectors)).kept if all_tokens else tokens.kept
    shares = norm_shares(vectors, basis)[keep.to(vectors.device)]
    best = torch.topk(shares, min(asked.count, len(shares)))
    ids = keep[best.indices.cpu()].numpy()
    return xr.Dataset(
        {"share": ("token", best.values.double().cpu().numpy()), "share_null": rank / heads.d_model},
        coords={"token": ids, "text": ("token", tokens.spelled(ids))},
        attrs={"head": str(asked.head), "role": asked.role, "table": asked.table},
    )


def norm_shares(vectors: Float[Tensor, "token d"], basis: Float[Tensor, "d p"]) -> Float[Tensor, " token"]:
    """||U^T e||^2 / ||e||^2 of every row less the rows' mean; in [0, 1], p/d under the null, 0 for the mean itself."""
    centered = vectors - vectors.mean(0)
    norms = centered.square().sum(-1)
    inside = (centered @ basis).square().sum(-1)
    return torch.where(norms > 0, inside / norms, 0.0).clamp(max=1.0)


def _basis(heads: Heads, asked: Projection) -> tuple[Tensor, int]:
    label, role = asked.head, asked.role
    block = heads.layer(label.layer, roles=(role,))
    ((only, W),) = block.weights.items()
    index = label.head
    if role in ("K", "V") and not label.kv:
        index //= heads.n_heads // heads.n_kv_heads
    if index >= W.shape[1]:
        raise ArgumentError(f"{label} does not exist: layer {label.layer} has {W.shape[1]} heads for role {role}")
    space = block.spaces(only, None, slice(index, index + 1))[0, 0]
    if int(space.rank) == 0:
        raise DegenerateSubspace(f"W_{role} of {label} is zero: it has no subspace to put tokens into")
    return space.basis, int(space.rank)
