"""From a pass over the layers to tables: what is gathered per block, and the distances within and across layers.

1. One pass over blocks of layers gathers, for each head, the angles of R_Q and R_K, ranks, how near the own key space
   is among those of the layer, the logit changes, and the distances within the layer. If all attention spaces fit
   into half of the memory budget they are kept.
2. Distances across layers are taken from the kept spaces, or else block against block, building the spaces of the
   second block again: time for memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float

from headspan.heads import Heads
from headspan.heads.memory import memory_bytes
from headspan.lenses.similarity.invariance import logit_changes
from headspan.lenses.similarity.pairs import cross_distances, distance_table
from headspan.lenses.similarity.spaces import BlockSpaces, SpaceChoice, expanded, space_blocks
from headspan.subspaces import Subspace, concatenated, principal_angles, projection_kernel


@dataclass
class Gathered:
    """What one pass over the layers leaves: lists of arrays [layer, head, ...], one per block."""

    parts: dict[str, list[np.ndarray]] = field(default_factory=dict)
    spaces: list[Subspace] | None = None

    def add(self, name: str, array: np.ndarray) -> None:
        self.parts.setdefault(name, []).append(array)

    def __getitem__(self, name: str) -> np.ndarray:
        return np.concatenate(self.parts[name])


def gather(heads: Heads, choice: SpaceChoice, metric: str, keep: bool, memory: int | str, seed: int) -> Gathered:
    """The pass over all layers; attention spaces are kept if asked and if they fit."""
    scratch = memory_bytes(memory) // 4
    found = Gathered(spaces=[] if keep and _fits(heads, choice, memory) else None)
    generator = torch.Generator().manual_seed(seed)
    for spaces in space_blocks(heads, choice, memory):
        key = expanded(heads, spaces.key)
        found.add("theta", principal_angles(spaces.query, key).cpu().double().numpy())
        found.add("rank_Q", spaces.query.rank.cpu().numpy())
        found.add("rank_K", key.rank.cpu().numpy())
        found.add("dimension", spaces.attention.rank.cpu().numpy())
        for name, change in logit_changes(heads, spaces, key, generator).items():
            found.add(f"{name}_change", change.cpu().double().numpy())
        for layer in range(len(spaces.layers)):
            mean, place = _own_key(heads, spaces, layer)
            found.add("projection_kernel_others", mean[None])
            found.add("own_key_place", place[None])
            found.add("layer_distance", distance_table(spaces.attention[layer], metric, scratch)[None])
        if found.spaces is not None:
            found.spaces.append(spaces.attention.reshape(-1))
    return found


def _fits(heads: Heads, choice: SpaceChoice, memory: int | str) -> bool:
    """Whether all attention spaces, and their copy as rows, fit into half of the budget."""
    columns = heads.n_layers * heads.n_heads * choice.width_factor * heads.d_head
    return 2 * columns * heads.d_model * choice.dtype.itemsize <= memory_bytes(memory) // 2


def _own_key(
    heads: Heads, spaces: BlockSpaces, layer: int
) -> tuple[Float[np.ndarray, " head"], Float[np.ndarray, " head"]]:
    """Each query's mean kernel with the other key spaces of its layer, and the place of the own key among all.

    Place 1 is nearest; (n_kv_heads + 1) / 2 on average by chance. NaN with a single kv head or an empty space.
    """
    n_kv = heads.n_kv_heads
    nothing = np.full(heads.n_heads, np.nan)
    if n_kv < 2:
        return nothing, nothing
    table = projection_kernel(spaces.query[layer], spaces.key[layer]).cpu().double().numpy()
    rows = np.arange(heads.n_heads)
    mine = rows // (heads.n_heads // n_kv)
    own = table[rows, mine]
    table[rows, mine] = np.nan
    others = np.isfinite(table).sum(1)
    mean = np.nansum(table, axis=1) / np.where(others > 0, others, np.nan)
    mean, place = np.where(np.isnan(own), np.nan, mean), 1.0 + (table > own[:, None]).sum(1)
    return mean, np.where(np.isnan(mean), np.nan, place)


def distances_across(
    heads: Heads, choice: SpaceChoice, metric: str, spaces: list[Subspace] | None, memory: int | str
) -> Float[np.ndarray, "n n"]:
    """Distances of all pairs of heads of all layers, heads counted layer by layer."""
    scratch = memory_bytes(memory) // 4
    if spaces is not None:
        return distance_table(concatenated(spaces), metric, scratch)
    n = heads.n_layers * heads.n_heads
    table = np.full((n, n), np.nan)
    for start, S in _placed(heads, choice, memory):
        stop = start + len(S.rank)
        table[start:stop, start:stop] = distance_table(S, metric, scratch)
        for first, T in _placed(heads, choice, memory, after=stop):
            block = cross_distances(S, T, metric, scratch)
            table[start:stop, first : first + len(T.rank)] = block
            table[first : first + len(T.rank), start:stop] = block.T
    return table


def _placed(heads: Heads, choice: SpaceChoice, memory: int | str, after: int = 0) -> Iterator[tuple[int, Subspace]]:
    """Blocks of attention spaces as lists of heads, with the number of their first head; those before `after` skipped.

    Two blocks are in memory at a time, so each has half of the budget.
    """
    later = tuple(layer for place, layer in enumerate(heads.layers) if place * heads.n_heads >= after)
    if not later:
        return
    start = after
    for block in space_blocks(replace(heads, layers=later), choice, max(1, memory_bytes(memory) // 2)):
        yield start, block.attention.reshape(-1)
        start += len(block.layers) * heads.n_heads
