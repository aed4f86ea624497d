"""Which tokens live in a head's subspace: the share of an embedding's norm that a head can read or write.

With U an orthonormal basis of a head's subspace (read spaces against W_E, the write space against W_U) and e a token's
vector, less the mean over tokens, the share is ||U^T e||^2 / ||e||^2.
"""

from __future__ import annotations

from pathlib import Path

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.dims import HeadLabel
from headspan.errors import ArgumentError, DegenerateSubspace, HeadspanError
from headspan.heads import Heads
from headspan.input_files import LARGEST_TOKENIZER, read_json


def measure(heads: Heads, *, head: str, role: str, vocabulary: str, top: int = 20) -> xr.Dataset:
    """`headspan.tokens` on heads: `share` of the leading tokens, with `text` where there is a tokenizer.json."""
    label = HeadLabel.parse(head)
    basis, rank = _basis(heads, label, role)
    shares = norm_shares(heads.table("W_E") if vocabulary == "W_E" else heads.table("W_U").T, basis)
    best = torch.topk(shares, min(top, len(shares)))
    texts = token_texts(heads)
    return xr.Dataset(
        {"share": ("token", best.values.double().cpu().numpy()), "share_null": rank / heads.d_model},
        coords={
            "token": best.indices.cpu().numpy(),
            "text": ("token", [texts.get(int(token), "") for token in best.indices]),
        },
        attrs={"head": str(label), "role": role, "vocabulary": vocabulary},
    )


def norm_shares(vectors: Float[Tensor, "token d"], basis: Float[Tensor, "d p"]) -> Float[Tensor, " token"]:
    """||U^T e||^2 / ||e||^2 of every row less the rows' mean; in [0, 1], p/d under the null, 0 for the mean itself."""
    centered = vectors - vectors.mean(0)
    norms = centered.square().sum(-1)
    inside = (centered @ basis).square().sum(-1)
    return torch.where(norms > 0, inside / norms, 0.0).clamp(max=1.0)


def _basis(heads: Heads, label: HeadLabel, role: str) -> tuple[Tensor, int]:
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


def token_texts(heads: Heads) -> dict[int, str]:
    """Token number -> its text, read from a tokenizer.json beside the weights; empty where there is none."""
    folder = heads.checkpoint.folder
    file = None if folder is None else Path(folder) / "tokenizer.json"
    if file is None or not file.is_file():
        return {}
    try:
        model = read_json(file, most=LARGEST_TOKENIZER)["model"]["vocab"]
    except (HeadspanError, KeyError, TypeError):
        return {}
    if isinstance(model, dict):
        return {int(number): str(text) for text, number in model.items() if isinstance(number, int)}
    return {number: str(entry[0]) for number, entry in enumerate(model) if isinstance(entry, list) and entry}
