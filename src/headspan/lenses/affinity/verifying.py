"""Exact kernels of chosen pairs: their heads are read again, layer by layer, and held against each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.dims import Role
from headspan.heads import Heads
from headspan.lenses.affinity.pair_tables import roles_of
from headspan.subspaces import orthonormal_basis
from headspan.subspaces.slabs import ScratchSlabs, scratch_slabs

Pair = tuple[int, int]
"""Source and destination, by their place in the list of all heads of their role."""

_PAIRS_AT_A_TIME = 8


@dataclass
class Verifier:
    """Kernels of pairs of one model; every head is read once, however many pairs it is part of."""

    heads: Heads
    tolerance: float | None
    files: Mapping[Role, ScratchSlabs]
    places: dict[Role, dict[int, int]] = field(default_factory=dict)
    known: dict[tuple[str, Pair], float] = field(default_factory=dict)

    def kernels(self, wanted: Mapping[str, Iterable[Pair]]) -> None:
        """Make `known` hold the kernel of these pairs, by pairing."""
        new = {
            pairing: [pair for pair in pairs if (pairing, pair) not in self.known] for pairing, pairs in wanted.items()
        }
        for pairing, pairs in new.items():
            for side, role in enumerate(roles_of(pairing)):
                self._read(role, {pair[side] for pair in pairs})
        for pairing, pairs in new.items():
            for start in range(0, len(pairs), _PAIRS_AT_A_TIME):
                part = pairs[start : start + _PAIRS_AT_A_TIME]
                src, dst = roles_of(pairing)
                U, V = self._bases(src, [i for i, _ in part]), self._bases(dst, [j for _, j in part])
                values = (U.mT @ V).square().sum((-2, -1)).double().tolist()
                self.known |= {(pairing, pair): value for pair, value in zip(part, values, strict=True)}

    def of(self, pairing: str) -> dict[Pair, float]:
        """The kernels that are known of one pairing."""
        return {pair: value for (name, pair), value in self.known.items() if name == pairing}

    def _read(self, role: Role, members: set[int]) -> None:
        """Bases of heads that are not in the scratch file yet."""
        places, per_layer = self.places.setdefault(role, {}), self.heads.shape(role)[1]
        lacking = sorted(members - set(places))
        for layer in sorted({member // per_layer for member in lacking}):
            chosen = [member for member in lacking if member // per_layer == layer]
            W = self.heads.layer(self.heads.layers[layer], (role,)).weight(role)[0]
            W = W[torch.tensor([member % per_layer for member in chosen], device=W.device)]
            self.files[role].append(orthonormal_basis(W.mT if role == "O" else W, self.tolerance).basis)
            places |= {member: len(places) + number for number, member in enumerate(chosen)}

    def _bases(self, role: Role, members: list[int]) -> Float[Tensor, "k d p"]:
        at = (self.places[role][member] for member in members)
        return torch.cat([self.files[role].members(place, place + 1) for place in at])


@contextmanager
def verifier(heads: Heads, roles: Iterable[Role], tolerance: float | None, most: int) -> Iterator[Verifier]:
    """A verifier with scratch space for up to `most` heads of each role, of which it mostly needs a small part."""
    with ExitStack() as files:
        space: dict[Role, ScratchSlabs] = {}
        for role in roles:
            rows = heads.stack.projections[role].rows
            shape = (min(most, heads.n_layers * rows.n_heads), heads.d_model, min(rows.d_head, heads.d_model))
            room = scratch_slabs(shape, heads.d_model, heads.dtype, heads.device, filled=False)
            space[role] = files.enter_context(room)
        yield Verifier(heads, tolerance, space)
