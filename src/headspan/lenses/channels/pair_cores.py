r"""The core of every pair of heads, a tile at a time, and what its spectrum says; directions are not formed.

1. Senders of as many source layers as a third of the budget holds (`heads.channels`); receivers one layer at a time.
2. One product gives the cores S^T D [p, q] of a tile of pairs; the eigenvalues of their Gram matrices are the squared
   strengths of all channels. For the sums below that is precise enough, and takes a quarter of the time of an SVD.
3. Kept of each pair are the leading strength, its share of the energy, the participation ratio and how many channels
   carry 90 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import MemoryBudgetError
from headspan.heads import Heads
from headspan.heads.channels import receivers, receiving_roles, senders
from headspan.progress import current_step
from headspan.threads import one_thread

Order = Literal["composing", "different", "all"]
"""Which ordered pairs of layers: the source's before the destination's, any two different ones, or all."""
MOST = 0.9
NUMBERS = ("strength", "share", "participation", "carrying")
TILE_BYTES = 2**22
"""Cores of a tile: more of them would leave the processor's cache between their product and their eigenvalues."""


@dataclass(frozen=True)
class PairTables:
    """Numbers of all pairs [source heads, destination heads] of one pairing, NaN where none was asked for."""

    numbers: dict[str, Float[Tensor, "n m"]]
    source: Float[Tensor, "n p"]
    """Singular values of every source's M, ascending."""
    reader: Float[Tensor, "m q"]
    """Singular values of every destination's N, ascending."""

    @property
    def norms(self) -> Float[Tensor, "n m"]:
        """||M||_F ||N||_F of every pair."""
        source, reader = (torch.linalg.vector_norm(each, dim=-1) for each in (self.source, self.reader))
        product: Tensor = source[:, None] * reader[None, :]
        return product

    def by_pass(self, places: Sequence[int], n_heads: int) -> PairTables:
        """The tables of all passes through shared layers, out of those of the layers."""
        members = (torch.tensor(places)[:, None] * n_heads + torch.arange(n_heads)).flatten()
        numbers = {name: table[members][:, members] for name, table in self.numbers.items()}
        return PairTables(numbers, self.source[members], self.reader[members])


def pair_tables(heads: Heads, pairings: Sequence[str], order: Order, delta: int, memory: int) -> dict[str, PairTables]:
    """The tables of some pairings, within `memory` bytes beside the tables themselves."""
    n, H, L = heads.n_layers * heads.n_heads, heads.n_heads, heads.n_layers
    tables = {pairing: {name: torch.full((n, n), torch.nan) for name in NUMBERS} for pairing in pairings}
    tables = {pairing: {name: each.double() for name, each in found.items()} for pairing, found in tables.items()}
    source: list[Tensor] = []
    readers: dict[str, dict[int, Tensor]] = {pairing: {} for pairing in pairings}
    for first, S in _sender_blocks(heads, memory):
        source.append(_spectra(S))
        for layer in range(L):
            sources = _sources(len(S) // H, first, layer, order, H)
            if not sources:
                continue
            current_step(f"channels into layer {heads.layers[layer]} of {L}")
            block = heads.layer(heads.layers[layer], receiving_roles(pairings))
            for pairing in pairings:
                D = receivers(heads, block, pairing, delta)[0]
                if layer not in readers[pairing]:
                    readers[pairing][layer] = _spectra(D)
                for own in sources:
                    _fill(tables[pairing], S[own], D, (first * H + own.start, layer * H), memory)
    return {
        pairing: PairTables(tables[pairing], torch.cat(source), _reader_spectra(readers[pairing], L, H))
        for pairing in pairings
    }


def _reader_spectra(found: dict[int, Tensor], n_layers: int, n_heads: int) -> Tensor:
    """Spectra layer by layer; NaN for layers that nothing comes before."""
    width = next(iter(found.values())).shape[-1]
    nothing = torch.full((n_heads, width), torch.nan, dtype=torch.float64, device="cpu")  # as spectra are
    return torch.cat([found.get(layer, nothing) for layer in range(n_layers)])


def _sender_blocks(heads: Heads, memory: int) -> Iterator[tuple[int, Float[Tensor, "heads d p"]]]:
    """The place of the first of some layers, and the senders of all their heads."""
    each = heads.n_heads * heads.d_model * heads.d_value * heads.dtype.itemsize
    if 3 * each > memory:
        raise MemoryBudgetError(
            f"the senders of one layer take {each:,} bytes and a third of the memory budget of {memory:,} is for them; "
            "raise it or use a smaller dtype"
        )
    step = memory // 3 // each
    for first in range(0, heads.n_layers, step):
        parts = [
            senders(heads, heads.layer(layer, ("V", "O")))[0].contiguous()
            for layer in heads.layers[first : first + step]
        ]
        yield first, torch.cat(parts)


def _sources(count: int, first: int, layer: int, order: Order, n_heads: int) -> list[slice]:
    """Which senders of a block of layers pair with a destination layer; within one's own layer nothing composes."""
    own = min(count, max(0, layer - first))
    after = own + (first <= layer < first + count)
    spans = {"composing": [(0, own)], "different": [(0, own), (after, count)], "all": [(0, count)]}[order]
    return [slice(start * n_heads, stop * n_heads) for start, stop in spans if stop > start]


def _fill(
    tables: dict[str, Tensor], S: Float[Tensor, "n d p"], D: Float[Tensor, "m d q"], at: tuple[int, int], memory: int
) -> None:
    """The numbers of all pairs of these senders and receivers, at their place in the tables."""
    (m, d, q), p = D.shape, S.shape[-1]
    columns = D.permute(1, 0, 2).reshape(d, m * q)
    step = max(1, min(TILE_BYTES, memory // 8) // (m * p * q * S.element_size()))
    # Tiles are written into the same place again: fresh memory costs as much as the arithmetic.
    product, cores = S.new_empty(step * p, m * q), S.new_empty(step, m, p, q)
    gram = S.new_empty(step * m, min(p, q), min(p, q))
    for start in range(0, len(S), step):
        rows = S[start : start + step].mT.reshape(-1, d)
        n = len(rows) // p
        torch.mm(rows, columns, out=product[: n * p])
        tile = cores[:n].copy_(product[: n * p].view(n, p, m, q).transpose(1, 2))
        numbers = spectrum_numbers(_energies(tile.view(n * m, p, q), gram[: n * m]))
        place = slice(at[0] + start, at[0] + start + n), slice(at[1], at[1] + m)
        for name, values in numbers.items():
            tables[name][place] = values.view(n, m).double().cpu()


@one_thread()
def _energies(cores: Float[Tensor, "n p q"], gram: Float[Tensor, "n k k"] | None = None) -> Float[Tensor, "n k"]:
    """Squared singular values, ascending, through the smaller Gram matrix; `gram` is a place to form it in."""
    pair = (cores, cores.mT) if cores.shape[-2] <= cores.shape[-1] else (cores.mT, cores)
    energies: Tensor = torch.linalg.eigvalsh(torch.bmm(*pair, out=gram))
    return energies.clamp(min=0)


def _spectra(factors: Float[Tensor, "heads d p"]) -> Float[Tensor, "heads k"]:
    return _energies(factors).sqrt().double().cpu()


def spectrum_numbers(energies: Float[Tensor, "*pairs k"]) -> dict[str, Float[Tensor, "*pairs"]]:
    """What is kept of channels with these energies (ascending); NaN where there is no energy, but for the strength.

    `strength`: of the leading channel. `share`: its part of the energy. `participation`: (sum e)^2 / sum e^2, the
    number of channels if all were equal. `carrying`: the fewest channels that carry 90 % of the energy.
    """
    total = energies.sum(-1, keepdim=True)
    shares = torch.where(total > 0, energies / total, torch.nan).flip(-1)
    carrying = (shares.cumsum(-1) < MOST - 1e-9).sum(-1) + 1.0
    return {
        "strength": energies[..., -1].sqrt(),
        "share": shares[..., 0],
        "participation": 1 / shares.square().sum(-1),
        "carrying": torch.where(total[..., 0] > 0, carrying, torch.nan),
    }
