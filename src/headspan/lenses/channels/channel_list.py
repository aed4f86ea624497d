"""Channels one by one: numbers, the four directions in the stream, whether like excites like, and tokens along each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from scipy import special

from headspan.dims import HeadLabel, Role
from headspan.errors import MemoryBudgetError
from headspan.heads import HeadBlock, Heads
from headspan.heads.channels import SIDES, Channels, channels_between, receiving_roles
from headspan.lenses.channels.pair_cores import spectrum_numbers
from headspan.lenses.token_reading import TokenTable

SHOWN_TOKENS = 5
BLOCK_SHARE = 16
"""Part of the memory budget that a block of a token table takes beside the table as it is stored."""
LEVEL = 0.05
"""An alignment is called excitation or inhibition where random directions reach it less often than this."""


@dataclass(frozen=True)
class Wanted:
    """Some channels of one pair, by number."""

    src: HeadLabel
    dst: HeadLabel
    pairing: str
    numbers: tuple[int, ...] = (0,)


def channel_label(src: object, dst: object, pairing: str, number: int) -> str:
    """How a channel is named everywhere, and asked for: `L0H3:L1H6:OK:0`."""
    return f"{src}:{dst}:{pairing}:{number}"


class ChannelReader:
    """Decomposes pairs, one after another; the two layers that were read last are kept."""

    def __init__(self, heads: Heads, delta: int) -> None:
        self.heads, self.delta = heads.to("float64"), delta
        self._blocks: dict[str, tuple[int, tuple[Role, ...], HeadBlock]] = {}

    def require_room(self, pairings: Sequence[str], memory: int) -> None:
        """Refuse a budget that does not hold two layers, factors of the second's heads, and what reading one takes."""
        wanted = [("V", "O"), *(receiving_roles((pairing,)) for pairing in pairings)]
        held, reading = zip(*map(self.heads.block_bytes, wanted), strict=True)
        needed = held[0] + 2 * max(held[1:]) + max(reading)
        if needed > memory:
            raise MemoryBudgetError(
                f"channels of a pair are decomposed in double precision, and two layers take {needed:,} bytes; the "
                f"memory budget is {memory:,}; raise it by {needed - memory:,} bytes or more"
            )

    def channels(self, src: HeadLabel, dst: HeadLabel, pairing: str) -> Channels:
        before = self._block("source", src.layer, ("V", "O"))
        after = self._block("destination", dst.layer, receiving_roles((pairing,)))
        return channels_between(self.heads, before, after, src, dst, pairing, self.delta)

    def release(self) -> None:
        """Let go of the layers that are kept; they are read again where they are wanted."""
        self._blocks.clear()

    def _block(self, side: str, layer: int, roles: tuple[Role, ...]) -> HeadBlock:
        """The layer of one side, read again only where another layer or other roles are wanted."""
        if side not in self._blocks or self._blocks[side][:2] != (layer, roles):
            self._blocks.pop(side, None)  # before the next is read
            self._blocks[side] = (layer, roles, self.heads.layer(layer, roles))
        return self._blocks[side][2]


def channel_dataset(reader: ChannelReader, wanted: Sequence[Wanted]) -> xr.Dataset:
    """These channels along the axis `channel`, in the order given; what nulls say of them is added by the caller."""
    order = sorted(range(len(wanted)), key=lambda place: (wanted[place].dst.layer, wanted[place].src.layer))
    rows: list[dict[str, np.ndarray]] = [{} for _ in wanted]
    for place in order:
        pair = wanted[place]
        rows[place] = _pair_rows(reader.channels(pair.src, pair.dst, pair.pairing), pair.numbers)
    merged = {name: np.concatenate([each[name] for each in rows]) for name in rows[0]}
    listed = [(pair, number) for pair in wanted for number in pair.numbers]
    numbers: dict[str, Any] = {name: ("channel", values) for name, values in merged.items() if name != "direction"}
    numbers["direction"] = (("channel", "side", "feature"), merged["direction"])
    p = alignment_p(merged["alignment"], reader.heads.d_stream)
    sign = np.where(p >= LEVEL, "neutral", np.where(merged["alignment"] > 0, "excites", "inhibits"))
    numbers |= {"alignment_p": ("channel", p), "sign": ("channel", sign.astype(object))}
    return xr.Dataset(numbers, coords=_coords(listed))


def _coords(listed: Sequence[tuple[Wanted, int]]) -> dict[str, Any]:
    texts = {
        "channel": [channel_label(pair.src, pair.dst, pair.pairing, number) for pair, number in listed],
        "src": [str(pair.src) for pair, _ in listed],
        "dst": [str(pair.dst) for pair, _ in listed],
    }
    found: dict[str, Any] = {name: ("channel", np.array(values, dtype=object)) for name, values in texts.items()}
    return {**found, "number": ("channel", [number for _, number in listed]), "side": list(SIDES)}


def _pair_rows(found: Channels, chosen: Sequence[int]) -> dict[str, np.ndarray]:
    """The numbers and directions of some channels of a pair."""
    at = list(chosen)
    strength = found.strength.cpu()
    energies = strength.square()
    total = float(energies.sum())
    spread = spectrum_numbers(energies.flip(-1))
    units = found.directions().cpu()[at]
    nan = np.full(len(at), np.nan)
    return {
        "strength": strength[at].numpy(),
        "coupling": strength[at].numpy() / found.norm if found.norm else nan,
        "share": energies[at].numpy() / total if total else nan,
        "participation": np.full(len(at), float(spread["participation"])),
        "carrying": np.full(len(at), float(spread["carrying"])),
        "stream_cosine": (units[:, 1] * units[:, 2]).sum(-1).numpy(),
        "alignment": (units[:, 0] * units[:, 3]).sum(-1).numpy(),
        "direction": units.numpy(),
    }


def alignment_p(cosine: Float[np.ndarray, " n"], d: int) -> Float[np.ndarray, " n"]:
    """P(|cosine| of two random directions of R^d is at least this), in [0, 1]: cosine^2 ~ Beta(1/2, (d - 1)/2)."""
    p: np.ndarray = special.betainc((d - 1) / 2, 0.5, 1 - np.minimum(cosine**2, 1))
    return p


def token_variables(
    heads: Heads, channels: xr.Dataset, pairing: str, draws: int, seed: int, memory: int
) -> dict[str, Any]:
    """Tokens along every direction: what is read through W_E, what is written through W_U; none without a table.

    `source` and, for OQ and OK, `target` are read by tokens of the input; `sent`, `received` and the `target` of OV are
    read as logits.
    """
    if not {"W_E", "W_U"} & heads.reader.stored.parts or not channels.sizes["channel"]:
        return {}
    directions = torch.from_numpy(channels["direction"].values)
    kinds = ["read" if side == "source" or (side == "target" and pairing != "OV") else "write" for side in SIDES]
    shape = directions.shape[:2]
    texts, largest, p = np.full(shape, "", dtype=object), np.full(shape, np.nan), np.full(shape, np.nan)
    null, null_sd = np.full(shape[1], np.nan), np.full(shape[1], np.nan)
    for kind in dict.fromkeys(kinds):
        places = [place for place, each in enumerate(kinds) if each == kind]
        if kind == "read" and "W_E" not in heads.reader.stored.parts:
            continue
        table = TokenTable(heads, kind, memory=memory // BLOCK_SHARE)
        flat = directions[:, places].reshape(-1, directions.shape[-1]).nan_to_num()
        reading = table.read(flat.to(heads.dtype), SHOWN_TOKENS)
        found = table.concentration(reading, draws, seed)
        texts[:, places] = _ends(reading.texts).reshape(-1, len(places))
        largest[:, places] = found["largest_z"].reshape(-1, len(places))
        p[:, places] = found["largest_z_p"].reshape(-1, len(places))
        null[places], null_sd[places] = found["largest_z_null"], found["largest_z_null_sd"]
    return {
        "tokens": (("channel", "side"), texts),
        "token_concentration": (("channel", "side"), largest),
        "token_concentration_null": (("side",), null),
        "token_concentration_null_sd": (("side",), null_sd),
        "token_concentration_p": (("channel", "side"), p),
    }


def _ends(texts: np.ndarray) -> np.ndarray:
    """Tokens of the positive end, then those of the negative one."""
    sides = [[" ".join(map(str, end)) for end in one] for one in texts]
    return np.array([f"+ {positive} | - {negative}" for positive, negative in sides], dtype=object)
