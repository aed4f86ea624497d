"""Tokens along a change: its leading directions in the stream, read in the vocabulary.

What the change of a reading matrix responds to is scored by W_E, what that of a writing matrix adds by W_U. Whether the
scores are concentrated on few tokens is compared with random directions of the stream (`lenses.token_reading`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.dims import LAYER
from headspan.heads import Heads
from headspan.lenses.token_reading import TokenTable
from headspan.statistics import q_values

NONE = 1e-9
"""A direction with a smaller share of the change's energy is rounding: a change of rank 2 has no third direction."""
SHOWN = 5
"""Tokens at each end of a direction."""
WRITING = ("W_O", "W_out")
Directions = list[tuple[Float[Tensor, "d k"], Float[Tensor, " k"]] | None]
"""By layer: the leading directions of a change with their shares of its energy; None where nothing changed."""


def token_nodes(heads: Heads, changes: Mapping[str, Directions], seed: int) -> dict[str, xr.Dataset]:
    """`tokens/<kind>` over layers and directions; nothing for a checkpoint without token table."""
    if "W_E" not in heads.reader.stored.parts:
        return {}
    tables = {side: TokenTable(heads, side) for side in ("read", "write")}
    # A table of zeros tells no token from another.
    told = {side: bool(np.isfinite(table.null(seed=seed).top_mass).all()) for side, table in tables.items()}
    nodes = {}
    for kind, found in changes.items():
        side = "write" if kind in WRITING else "read"
        if told[side] and any(one is not None for one in found):
            nodes[f"tokens/{kind}"] = _node(heads, tables[side], found, seed)
    p = np.concatenate([node["top_mass_p"].values.ravel() for node in nodes.values()]) if nodes else np.zeros(0)
    ends = np.cumsum([node["top_mass_p"].size for node in nodes.values()])[:-1]
    for node, q in zip(nodes.values(), np.split(q_values(p), ends), strict=bool(nodes)):
        node["top_mass_q"] = (node["top_mass_p"].dims, q.reshape(node["top_mass_p"].shape))
    return nodes


def _node(heads: Heads, table: TokenTable, found: Directions, seed: int) -> xr.Dataset:
    there = [one for one in found if one is not None]
    rows = [place for place, one in enumerate(found) if one is not None]
    reading = table.read(torch.cat([vectors.mT for vectors, _ in there]).to(table.dtype), SHOWN)
    scores = table.concentration(reading, seed=seed)
    shape = (len(found), there[0][0].shape[1])
    shares = torch.stack([share for _, share in there]).numpy(force=True)
    real = shares.ravel() > NONE

    def grid(values: Any, empty: Any, dtype: Any) -> tuple[tuple[str, str], np.ndarray]:
        out = np.full(shape, empty, dtype=dtype)
        out[rows] = np.asarray(values, dtype=dtype).reshape(len(rows), shape[1])
        return (LAYER, "direction"), out

    variables: dict[str, Any] = {
        "share": grid(shares, np.nan, float),
        "top_mass": grid(np.where(real, scores["top_mass"], np.nan), np.nan, float),
        "top_mass_null": float(scores["top_mass_null"]),
        "top_mass_null_sd": float(scores["top_mass_null_sd"]),
        "top_mass_p": grid(np.where(real, scores["top_mass_p"], np.nan), np.nan, float),
    }
    for end, name in enumerate(("highest", "lowest")):
        texts = [", ".join(row) if known else "" for row, known in zip(reading.texts[:, end], real, strict=True)]
        variables[name] = grid(texts, "", object)
    return xr.Dataset(variables, coords={LAYER: list(heads.layers)})
