"""From a pass over the layers to tables: what is gathered per layer, and the distances within and across layers.

1. One pass over blocks of layers gathers, for each head, the angles of R_Q and R_K, ranks, how near the own key space
   is among those of the layer, the logit changes, and the distances within the layer. Attention spaces are kept if
   heads of different layers are to be compared (`similarity.keeping`).
2. Distances across layers are taken from the kept spaces, range against range.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float

from headspan.heads import Heads
from headspan.heads.memory import memory_bytes
from headspan.lenses.similarity.invariance import logit_changes
from headspan.lenses.similarity.keeping import KeptSpaces
from headspan.lenses.similarity.pairs import cross_distances, distance_table
from headspan.lenses.similarity.spaces import BlockSpaces, SpaceChoice, expanded, space_blocks
from headspan.subspaces import principal_angles, projection_kernel


@dataclass
class Gathered:
    """What one pass over the layers leaves: lists of arrays [1, head, ...], one per layer."""

    parts: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def add(self, name: str, array: np.ndarray) -> None:
        self.parts.setdefault(name, []).append(array)

    def __getitem__(self, name: str) -> np.ndarray:
        return np.concatenate(self.parts[name])


def gather(
    heads: Heads, choice: SpaceChoice, metric: str, kept: KeptSpaces | None, memory: int | str, seed: int
) -> Gathered:
    """The pass over all layers; attention spaces go to `kept`."""
    found, generator = Gathered(), torch.Generator().manual_seed(seed)
    for block in space_blocks(heads, choice, memory):
        for place in range(len(block.layers)):
            _gather_layer(found, heads, block.layer(place), metric, memory_bytes(memory) // 4, generator)
        if kept is not None:
            kept.add(block.attention.reshape(-1))
        del block  # before the next is made
    return found


def _gather_layer(
    found: Gathered, heads: Heads, spaces: BlockSpaces, metric: str, scratch: int, generator: torch.Generator
) -> None:
    key = expanded(heads, spaces.key)
    found.add("theta", principal_angles(spaces.query, key).cpu().double().numpy())
    found.add("rank_Q", spaces.query.rank.cpu().numpy())
    found.add("rank_K", key.rank.cpu().numpy())
    found.add("dimension", spaces.attention.rank.cpu().numpy())
    for name, change in logit_changes(heads, spaces, key, generator).items():
        found.add(f"{name}_change", change.cpu().double().numpy())
    mean, place = _own_key(heads, spaces)
    found.add("projection_kernel_others", mean[None])
    found.add("own_key_place", place[None])
    found.add("layer_distance", distance_table(spaces.attention[0], metric, scratch)[None])


def _own_key(heads: Heads, spaces: BlockSpaces) -> tuple[Float[np.ndarray, " head"], Float[np.ndarray, " head"]]:
    """Each query's mean kernel with the other key spaces of its layer, and the place of the own key among all.

    Place 1 is nearest; (n_kv_heads + 1) / 2 on average by chance. NaN with a single kv head or an empty space.
    """
    n_kv = heads.n_kv_heads
    nothing = np.full(heads.n_heads, np.nan)
    if n_kv < 2:
        return nothing, nothing
    table = projection_kernel(spaces.query[0], spaces.key[0]).cpu().double().numpy()
    rows = np.arange(heads.n_heads)
    mine = rows // (heads.n_heads // n_kv)
    own = table[rows, mine]
    table[rows, mine] = np.nan
    others = np.isfinite(table).sum(1)
    mean = np.nansum(table, axis=1) / np.where(others > 0, others, np.nan)
    mean, place = np.where(np.isnan(own), np.nan, mean), 1.0 + (table > own[:, None]).sum(1)
    return mean, np.where(np.isnan(mean), np.nan, place)


def distances_across(kept: KeptSpaces, metric: str, memory: int | str) -> Float[np.ndarray, "n n"]:
    """Distances of all pairs of heads of all layers, heads counted layer by layer."""
    scratch, n, step = memory_bytes(memory) // 6, len(kept), kept.at_once
    table = np.full((n, n), np.nan)
    for start in range(0, n, step):
        own, S = slice(start, start + step), kept.members(start, start + step)
        table[own, own] = distance_table(S, metric, scratch)
        for first in range(start + step, n, step):
            other = slice(first, first + step)
            table[own, other] = cross_distances(S, kept.members(first, first + step), metric, scratch)
            table[other, own] = table[own, other].T
    return table
