"""Which tokens live in a head's subspace: the share of an embedding's norm that a head can read or write.

With U an orthonormal basis of a head's subspace (read spaces against W_E, the write space against W_U) and e a token's
vector, less the mean over tokens, the share is ||U^T e||^2 / ||e||^2.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.dims import HeadLabel
from headspan.errors import DegenerateSubspace, ShapeError
from headspan.heads import Heads
from headspan.subspaces import orthonormal_basis


def token_shares(heads: Heads, head: str, role: str, table: str | None = None, top: int = 20) -> pd.DataFrame:
    """The tokens whose vectors lie most inside one head's subspace.

    Parameters
    ----------
    heads
        The heads; the tables come from the same checkpoint in the same fold state.
    head
        A label such as L4H7 (for K and V of a grouped model, L4K3 or the query head that reads it).
    role
        Q, K, V (read spaces) or O (the write space).
    table
        `W_E` or `W_U`; by default W_E for a read space and W_U for the write space.
    top
        How many tokens.

    Returns
    -------
    Table with `token` (its number), `text` (from the checkpoint's tokenizer.json, where there is one), `share` in
    [0, 1], and `chance`, rank / d_model, the mean share of a random direction.
    """
    label = HeadLabel.parse(head)
    if role not in ("Q", "K", "V", "O"):
        raise ShapeError(f"unknown role {role!r}; roles are Q, K, V, O")
    name = table or ("W_U" if role == "O" else "W_E")
    vectors = {"W_E": lambda: heads.W_E, "W_U": lambda: heads.W_U.T}.get(name)
    if vectors is None:
        raise ShapeError(f"unknown table {name!r}; tables are W_E and W_U")
    basis, rank = _basis(heads, label, role)
    shares = norm_shares(vectors(), basis)
    best = torch.topk(shares, min(top, len(shares)))
    texts = token_texts(heads)
    return pd.DataFrame(
        {
            "token": best.indices.cpu().numpy(),
            "text": [texts.get(int(token), "") for token in best.indices],
            "share": best.values.double().cpu().numpy(),
            "chance": rank / heads.d_model,
        }
    )


def norm_shares(vectors: Float[Tensor, "token d"], basis: Float[Tensor, "d p"]) -> Float[Tensor, " token"]:
    """||U^T e||^2 / ||e||^2 of every row less the rows' mean; in [0, 1], p/d by chance, 0 for the mean itself."""
    centred = vectors - vectors.mean(0)
    norms = centred.square().sum(-1)
    inside = (centred @ basis).square().sum(-1)
    return torch.where(norms > 0, inside / norms, 0.0).clamp(max=1.0)


def _basis(heads: Heads, label: HeadLabel, role: str) -> tuple[Tensor, int]:
    block = heads.layer(label.layer, roles=(role,))
    (W,) = block.weights.values()
    index = label.head
    if role in ("K", "V") and not label.kv:
        index //= heads.n_heads // heads.n_kv_heads
    if index >= W.shape[1]:
        raise ShapeError(f"{label} does not exist: layer {label.layer} has {W.shape[1]} heads for role {role}")
    space = orthonormal_basis(W[0, index].mT if role == "O" else W[0, index])
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
        model = json.loads(file.read_bytes())["model"]["vocab"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    if isinstance(model, dict):
        return {int(number): str(text) for text, number in model.items() if isinstance(number, int)}
    return {number: str(entry[0]) for number, entry in enumerate(model) if isinstance(entry, list) and entry}
