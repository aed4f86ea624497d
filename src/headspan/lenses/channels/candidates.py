"""Channels of a model whose pairs are too many: those of the pairs that affinity finds strongest, nothing of the rest.

A leading channel is at most as strong as the whole of what two heads share, so that pairs of high affinity are where to
look; it is no guarantee. Affinity is sketched once for all pairings, which names the same pairs as all exact kernels
wherever it certifies them. q counts all pairs of the model, with p = 1 for those not decomposed: an upper bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
import xarray as xr
from torch import Tensor

from headspan.dims import HeadLabel
from headspan.heads import Heads
from headspan.heads.channels import Channels
from headspan.lenses.affinity import affinity
from headspan.lenses.channels.channel_list import ChannelReader, Wanted, channel_dataset
from headspan.lenses.channels.schema import DERIVED, HAAR
from headspan.statistics import q_values
from headspan.subspaces.rotated_norms import largest_value_null

CANDIDATES = 4
"""Pairs that affinity names, for every channel that is asked for."""


@dataclass(frozen=True)
class Leading:
    """What is kept of a candidate while the others are decomposed: directions of all channels would take gigabytes."""

    coupling: float
    spectra: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, found: Channels) -> Leading:
        return cls(float(found.strength[0]) / found.norm if found.norm else np.nan, found.spectra)


def candidate_channels(
    heads: Heads, reader: ChannelReader, pairings: Sequence[str], top: int, seed: int, memory: int
) -> dict[str, xr.Dataset]:
    """Of every pairing, the `top` candidates whose leading channels exceed the rotation null most."""
    reader.require_room(pairings, memory)
    count = CANDIDATES * top
    scored = affinity(
        heads, pairings=pairings, metrics="projection_kernel", algorithm="sketch", top=count, memory=memory, seed=seed
    )
    ranked = {pairing: scored.top(count, pairing)[["src", "dst"]] for pairing in pairings}
    del scored
    return {pairing: _best(heads, reader, pairing, ranked[pairing], top, seed) for pairing in pairings}


def _best(heads: Heads, reader: ChannelReader, pairing: str, ranked: pd.DataFrame, top: int, seed: int) -> xr.Dataset:
    group = heads.n_heads // heads.n_kv_heads
    wanted = [
        Wanted(HeadLabel.parse(src), reading, pairing)
        for src, dst in zip(ranked["src"], ranked["dst"], strict=True)
        for reading in _readers(HeadLabel.parse(dst), group)
    ]
    wanted.sort(key=lambda pair: (pair.dst.layer, pair.src.layer))
    found = [Leading.of(reader.channels(pair.src, pair.dst, pairing)) for pair in wanted]
    reader.release()  # random rotations take as much as two layers
    numbers = _under_rotation(found, heads.d_stream, _n_pairs(heads), seed)
    best = np.argsort(-np.nan_to_num(numbers["z"], nan=-np.inf), kind="stable")[:top]
    derived = {f"coupling_{what}": (("null", "channel"), each[None, best]) for what, each in numbers.items()}
    return channel_dataset(reader, [wanted[place] for place in best]).assign(derived).assign_coords(null=[HAAR])


def _n_pairs(heads: Heads) -> int:
    layers = heads.unrolled().n_layers
    return heads.n_heads**2 * layers * (layers - 1) // 2


def _readers(label: HeadLabel, group: int) -> list[HeadLabel]:
    """The query heads that are meant: itself, or all that read a kv head."""
    if not label.kv:
        return [label]
    return [HeadLabel(label.layer, head) for head in range(label.head * group, (label.head + 1) * group)]


def _under_rotation(found: list[Leading], d: int, n_pairs: int, seed: int) -> dict[str, np.ndarray]:
    source, reader = (torch.stack([each.spectra[side] for each in found]) for side in (0, 1))
    coupling = np.array([each.coupling for each in found])
    law = largest_value_null(source, reader, d, seed)
    mean, sd, p = (each.diagonal() for each in (law.mean, law.sd, law.p_values(coupling[:, None])))
    others = np.ones(max(0, n_pairs - len(p)))
    q = q_values(np.concatenate([p, others]))[: len(p)]
    return dict(zip(DERIVED, (mean, sd, (coupling - mean) / sd, p, q), strict=True))
