"""Channels gained and lost: the leading rank-one channel of every pair, and what became of the same two directions.

1. A pair has a channel where the coupling of its leading one stands out (`headspan.channels`: q below the level).
2. `gain`: the coupling of the leading channel after, less that of the same two directions before. `loss`: the coupling
   of the leading channel before, less that of the same two directions after. A channel that only turned a little, or a
   pair that was scaled, neither gains nor loses.
3. Null: every head of the first checkpoint gets a random change of its own size, and gains and losses are taken again;
   `draws` times. A random change turns every leading channel towards itself, and this null shows by how much.
4. Pairs without a channel on the side that counts are not tested; q counts them all the same, with p = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.dims import PAIR_DIMS, ROLES
from headspan.errors import ArgumentError
from headspan.heads import HeadBlock, Heads
from headspan.heads.logits import bilinear_factors
from headspan.heads.memory import memory_bytes
from headspan.lenses.channels import channels
from headspan.lenses.compare.edges import too_much, weights_and_changes
from headspan.progress import current_step
from headspan.statistics import prediction_tail, q_values, z_score
from headspan.subspaces.random_changes import random_change
from headspan.threads import one_thread

SIDES = {"gain": "after", "loss": "before"}
"""Which checkpoint's leading channel each is about."""
CHUNK = 256
COPIES = 12
"""Arrays of all heads that are held at once, with those that decompositions take."""
Pairs = tuple[np.ndarray, np.ndarray]


def channel_nodes(
    before: Heads,
    after: Heads,
    *,
    noise: str,
    level: float,
    similarity: float,
    draws: int,
    seed: int,
    memory: int | str,
    null: str,
) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    """`channels/<pairing>`, and attributes: the null of couplings, or why channels were not compared."""
    reason = _obstacle(before, memory_bytes(memory))
    if reason:
        return {}, {"channels_left_out": reason}
    current_step("channels of all pairs")
    settings: dict[str, Any] = {"null": null, "algorithm": "exact", "vocabulary": False, "top": 1, "fold": before.fold}
    try:
        pair = [channels(heads, seed=seed, memory=memory, **settings) for heads in (before, after)]
    except ArgumentError as problem:  # every circuit on one side is zero
        return {}, {"channels_left_out": str(problem)}
    shown, pairings = pair[0].attrs["null"], [name for name in pair[0].data.children if name != "top"]
    grids = {name: [_coupling(one.grid(name), shown, level) for one in pair] for name in pairings}
    current_step("channels after random changes of all heads")
    found = gains_and_losses(before.to("float64"), after.to("float64"), grids, noise, draws, seed)
    coords = {name: list(before.layers) for name in ("src_layer", "dst_layer")}
    nodes = {
        f"channels/{name}": xr.Dataset(_variables(grids[name], found[name], draws, level, similarity), coords=coords)
        for name in pairings
    }
    return nodes, {"channel_null": shown}


def _obstacle(heads: Heads, memory: int) -> str:
    if heads.n_layers < 2:
        return "nothing composes: there is one layer"
    if heads.stack.passes:
        return "layers are shared by several passes, and the change of one is that of all"
    return too_much(heads, memory, COPIES)


def _coupling(grid: xr.Dataset, null: str, level: float) -> dict[str, np.ndarray]:
    q = grid["coupling_q"].sel(null=null).transpose(*PAIR_DIMS).values
    return {"coupling": grid["coupling"].transpose(*PAIR_DIMS).values, "coupling_q": q, "channel": q < level}


class Side(NamedTuple):
    """Circuits of all query heads on one side: an orthonormal frame of the outer end, the inner factor, the norm."""

    frame: Float[Tensor, "head d p"]
    factor: Float[Tensor, "head d p"]
    norm: Float[Tensor, " head"]

    @classmethod
    def of(cls, outer: Sequence[Tensor], inner: Sequence[Tensor]) -> Side:
        """From circuits outer @ inner^T, layer by layer."""
        with one_thread():
            frame, R = torch.linalg.qr(torch.cat(list(outer)))
        factor = torch.cat(list(inner)) @ R.mT
        return cls(frame, factor, torch.linalg.matrix_norm(factor))


def sources(heads: Heads, blocks: Sequence[HeadBlock]) -> Side:
    """W_V W_O of every head."""
    return Side.of([heads.per_query_head(each.W_V)[0] for each in blocks], [each.W_O[0].mT for each in blocks])


def readers(heads: Heads, blocks: Sequence[HeadBlock], pairing: str) -> Side:
    """W_QK (OQ), W_QK^T (OK) or W_V W_O (OV) of every head, its reading end inside."""
    if pairing == "OV":
        return Side.of([each.W_O[0].mT for each in blocks], [heads.per_query_head(each.W_V)[0] for each in blocks])
    factors = [bilinear_factors(heads, each) for each in blocks]
    queries, keys = [A[0] for A, _ in factors], [heads.per_query_head(B)[0] for _, B in factors]
    return Side.of(keys, queries) if pairing == "OQ" else Side.of(queries, keys)


def leading_channels(source: Side, reader: Side, pairs: Pairs) -> tuple[np.ndarray, Tensor, Tensor]:
    """Of some pairs the coupling of the leading channel, in [0, 1], and its outer directions [pair, d]."""
    coupling, starts, ends = [], [], []
    for i, j in _chunks(pairs):
        with one_thread():
            X, strength, Yh = torch.linalg.svd(source.factor[i].mT @ reader.factor[j], full_matrices=False)
        coupling.append(strength[:, 0] / (source.norm[i] * reader.norm[j]))
        starts.append((source.frame[i] @ X[..., :1])[..., 0])
        ends.append((reader.frame[j] @ Yh[:, :1].mT)[..., 0])
    return torch.cat(coupling).numpy(force=True), torch.cat(starts), torch.cat(ends)


def coupling_along(source: Side, reader: Side, pairs: Pairs, start: Tensor, end: Tensor) -> np.ndarray:
    """The coupling of given pairs of outer directions, in [-1, 1]; the leading channel's own is the largest."""
    found, at = [], 0
    for i, j in _chunks(pairs):
        own = slice(at, at + len(i))
        sent = source.factor[i] @ (source.frame[i].mT @ start[own, :, None])
        received = reader.factor[j] @ (reader.frame[j].mT @ end[own, :, None])
        found.append((sent * received).sum((1, 2)) / (source.norm[i] * reader.norm[j]))
        at += len(i)
    return torch.cat(found).numpy(force=True)


def _chunks(pairs: Pairs) -> list[tuple[Tensor, Tensor]]:
    i, j = (torch.split(torch.from_numpy(np.ascontiguousarray(side)), CHUNK) for side in pairs)
    return list(zip(i, j, strict=True))


def gains_and_losses(
    before: Heads, after: Heads, grids: dict[str, list[dict[str, np.ndarray]]], noise: str, draws: int, seed: int
) -> dict[str, dict[str, np.ndarray]]:
    """By pairing: `gain` and `loss` of all pairs with a channel on either side, and those of every draw."""
    blocks = [[heads.layer(layer, ROLES) for layer in heads.layers] for heads in (before, after)]
    old, new = (sources(before, each) for each in blocks)
    weights, changes = weights_and_changes(before, after, ROLES)
    pairs: dict[str, Pairs] = {}
    first: dict[str, tuple[Side, np.ndarray, Tensor, Tensor]] = {}
    found: dict[str, dict[str, Any]] = {}
    for name, (one, other) in grids.items():
        count = before.n_layers * before.n_heads
        src, dst = np.nonzero((one["channel"] | other["channel"]).reshape(count, count))
        pairs[name] = src, dst
        if not len(src):
            found[name] = {"pairs": pairs[name], "gain": np.zeros((1, 0)), "loss": np.zeros((1, 0))}
            continue
        reader, later = (readers(heads, each, name) for heads, each in zip((before, after), blocks, strict=True))
        first[name] = (reader, *leading_channels(old, reader, pairs[name]))
        gain, loss = _turned((old, reader), (new, later), pairs[name], first[name][1:])
        found[name] = {"pairs": pairs[name], "gain": [gain], "loss": [loss]}
    for draw in range(draws if first else 0):
        generator = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, draw]).generate_state(1)[0]))
        drawn = _perturbed(blocks[0], weights, changes, noise, generator)
        moved = sources(before, drawn)
        for name, (reader, *leading) in first.items():
            turned = (moved, readers(before, drawn, name))
            for what, values in zip(SIDES, _turned((old, reader), turned, pairs[name], leading), strict=True):
                found[name][what].append(values)
    return {name: {what: np.asarray(values) for what, values in each.items()} for name, each in found.items()}


def _turned(
    old: tuple[Side, Side], new: tuple[Side, Side], pairs: Pairs, leading: Sequence[Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Gains and losses from one state of the weights to another; `leading` channels of the first are known."""
    coupling, start, end = leading_channels(*new, pairs)
    gain = coupling - coupling_along(*old, pairs, start, end)
    return gain, leading[0] - coupling_along(*new, pairs, *leading[1:])


def _perturbed(
    blocks: Sequence[HeadBlock], weights: Any, changes: Any, noise: str, generator: torch.Generator
) -> list[HeadBlock]:
    """The first checkpoint's layers after one random change of every head and role."""
    drawn = {
        role: [W + random_change(change, noise, generator) for W, change in zip(own, changes[role], strict=True)]
        for role, own in weights.items()
    }
    return [
        replace(block, weights={role: _stored(role, each[place]) for role, each in drawn.items()})
        for place, block in enumerate(blocks)
    ]


def _stored(role: str, tall: Tensor) -> Tensor:
    return (tall.mT if role == "O" else tall).double()[None]


def _variables(
    grids: Sequence[dict[str, np.ndarray]],
    found: dict[str, np.ndarray],
    draws: int,
    level: float,
    similarity: float,
) -> dict[str, Any]:
    """Everything about one pairing over its grid of pairs; see the schema."""
    both = dict(zip(("before", "after"), grids, strict=True))
    arrays = {f"{name}_{side}": grid[name] for side, grid in both.items() for name in ("coupling", "channel")}
    arrays |= {f"coupling_{side}_q": grid["coupling_q"] for side, grid in both.items()}
    counts = {f"n_{side}": grid["channel"] for side, grid in both.items()}
    composing = ~np.isnan(grids[0]["coupling"]) & ~np.isnan(grids[1]["coupling"])
    for what, side in SIDES.items():
        tables = {part: np.full(composing.shape, np.nan) for part in ("", "_null", "_null_sd", "_z", "_p")}
        values = found[what]
        numbers = [values[0], *tested(values[0], values[1:], draws)]
        for table, each in zip(tables.values(), numbers, strict=True):
            table.reshape(len(composing) * composing.shape[1], -1)[tuple(found["pairs"])] = each
        known = both[side]["channel"] & composing
        arrays |= {f"{what}{part}": np.where(known, table, np.nan) for part, table in tables.items()}
        p = np.where(composing, np.where(np.isnan(arrays[f"{what}_p"]), 1.0, arrays[f"{what}_p"]), np.nan)
        arrays[f"{what}_q"] = np.where(np.isnan(arrays[f"{what}_p"]), np.nan, q_values(p))
        certain = known & (arrays[f"{what}_q"] < level)
        turned = certain & (arrays[what] > (1 - similarity) * both[side]["coupling"])
        name = "gained" if what == "gain" else "lost"
        arrays[name], counts[f"n_{name}"] = turned, turned
    variables: dict[str, Any] = {name: (PAIR_DIMS, values) for name, values in arrays.items()}
    return variables | {name: int(values.sum()) for name, values in counts.items()}


def tested(values: np.ndarray, drawn: np.ndarray, draws: int) -> list[np.ndarray]:
    """Mean, standard deviation, z and upper p-value under random changes; NaN where neither head changed.

    A gain is that of a largest value, and skewed; by how much is the mean over all pairs.
    """
    if not len(drawn):
        return [values] * 4
    mean, sd = drawn.mean(0), drawn.std(0, ddof=1)
    z = z_score(values, mean, sd)
    skewness = mean_skewness(drawn, mean, sd) if draws > 2 and not np.isnan(z).all() else 0.0
    return [mean, sd, z, prediction_tail(z, draws, skewness)]


def mean_skewness(drawn: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> float:
    """Mean over pairs of the skewness of their draws [draw, pair], 0 for normal ones; not below 0."""
    n = len(drawn)
    third = ((drawn - mean) ** 3).sum(0) * n / ((n - 1) * (n - 2))
    known = sd > 0
    return max(0.0, float((third[known] / sd[known] ** 3).mean())) if known.any() else 0.0
