"""A `TensorStore` whose tensors are drawn from a seed when they are read, with pairs of heads that compose on purpose.

Each tensor has a generator of its own, seeded with a hash of the model's seed and the tensor's name: what is read does
not depend on what was read before. Matrices and tables are normal with one standard deviation, gains are 1, biases 0.

A planted pair has a directions of its own, drawn from the seed. They replace a rows of the source's W_O; a columns of
the destination's matrix become sqrt(rho) (direction) + sqrt(1 - rho) (what stood there). With e = a rho dimensions in
common and the rest of both spaces, p - e and q - e dimensions, in general position, the projection kernel is about

    e + (p - e)(q - e) / (d - e) = p q / d + strength    for    e = strength d / ((d - p)(d - q) / d + strength).

Both sides know the directions from the seed alone: neither tensor is read to make the other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import torch

from headspan.checkpoint.families import Rows, Stack
from headspan.checkpoint.formats.tensors import TensorInfo
from headspan.checkpoint.stored_stack import StoredNames
from headspan.dims import COMPOSING, KV_ROLES, ROLES, HeadLabel, Role
from headspan.errors import ArgumentError

STRENGTH = 8.0
STANDARD_DEVIATION = 0.02
RECIPE = "1"
"""Changes whenever the same seed would give other numbers."""


@dataclass(frozen=True)
class Planted:
    """What `src` writes, `dst` reads through the second role of `pairing`, `strength` above the chance kernel."""

    src: HeadLabel
    dst: HeadLabel
    pairing: str = "OQ"
    strength: float = STRENGTH

    @classmethod
    def of(cls, entry: Planted | str | Sequence[object]) -> Planted:
        """From itself, from (src, dst, pairing, strength), or from text such as `L0H1-L3H2:OQ:8`."""
        if isinstance(entry, Planted):
            return entry
        parts: list[str] = re.split(r"[-:]", entry, maxsplit=3) if isinstance(entry, str) else [*map(str, entry)]
        if not 2 <= len(parts) <= 4:
            raise ArgumentError(f"{entry!r:.60} is not a planted pair; write it like L0H1-L3H2:OQ:8")
        src, dst, pairing, strength = (*parts, *("OQ", str(STRENGTH))[len(parts) - 2 :])
        labels = HeadLabel.parse(src), HeadLabel.parse(dst)
        try:
            return cls(*labels, pairing.upper(), float(strength))
        except ValueError as problem:
            raise ArgumentError(f"a planted pair's strength is a number, found {strength!r:.40}") from problem

    def __str__(self) -> str:
        return f"{self.src}-{self.dst}:{self.pairing}:{self.strength:g}"


@dataclass(frozen=True)
class Change:
    """`count` rows or columns of one head, from `start` on, that take on the directions of planted pair `pair`."""

    pair: int
    head: int
    start: int
    count: int
    share: float
    """rho: how much of their energy; 1 on the side of the source."""


Changes = Mapping[tuple[Role, int], Sequence[Change]]
"""By role and layer."""


def planted_changes(stack: Stack, planted: Sequence[Planted]) -> Changes:
    """Which rows and columns each planted pair takes over; refused where a pair or its strength does not fit."""
    changes: dict[tuple[Role, int], list[Change]] = {}
    taken: dict[tuple[Role, int, int], int] = {}
    for number, pair in enumerate(planted):
        reads = _checked_role(stack, pair)
        writer, reader = (stack.projections[role].rows.d_head for role in ("O", reads))
        common = _common_dimensions(pair.strength, stack.d_model, writer, reader)
        if not 0 < common <= min(writer, reader):
            raise ArgumentError(
                f"planted pair {pair} needs a strength above 0 that {writer} and {reader} dimensions hold"
            )
        count, group = ceil(common), stack.n_heads // stack.n_kv_heads
        dst_head = pair.dst.head // group if reads in KV_ROLES and not pair.dst.kv else pair.dst.head
        sides: list[tuple[Role, int, int, float]] = [
            ("O", pair.src.layer, pair.src.head, 1.0),
            (reads, pair.dst.layer, dst_head, common / count),
        ]
        for role, layer, head, share in sides:
            start = taken.get((role, layer, head), 0)
            if start + count > stack.projections[role].rows.d_head:
                raise ArgumentError(f"planted pair {pair} does not fit: the head's dimensions are taken by other pairs")
            taken[role, layer, head] = start + count
            changes.setdefault((role, layer), []).append(Change(number, head, start, count, share))
    return changes


def _common_dimensions(strength: float, d: int, p: int, q: int) -> float:
    """e of the module's text; 0 where one of the spaces is everything, so that nothing is above chance."""
    return strength * d / ((d - p) * (d - q) / d + strength) if max(p, q) < d else 0.0


def _checked_role(stack: Stack, pair: Planted) -> Role:
    """The role through which a planted pair's destination reads."""
    reads = next((role for role in ROLES if pair.pairing == f"O{role}"), None)
    if reads is None or pair.pairing not in COMPOSING:
        raise ArgumentError(f"planted pair {pair} needs one of the pairings {', '.join(COMPOSING)}")
    n_dst = stack.n_kv_heads if pair.dst.kv else stack.n_heads
    inside = pair.src.head < stack.n_heads and pair.dst.head < n_dst and not pair.src.kv
    if not inside or not 0 <= pair.src.layer < pair.dst.layer < stack.n_layers:
        raise ArgumentError(
            f"planted pair {pair} needs an earlier and a later layer of {stack.n_layers}, and heads 0..{n_dst - 1}"
        )
    return reads


def random_pairs(stack: Stack, count: int, strength: float, seed: int) -> list[Planted]:
    """`count` pairs for each of OQ, OK and OV; no head takes part twice through one role."""
    most = (stack.n_layers - 1) * min(stack.n_heads, stack.n_kv_heads)
    if not 0 <= count <= most:
        raise ArgumentError(
            f"{count} planted pairs for each pairing do not fit a model of {stack.n_layers} layers, whose heads take "
            f"part once each: at most {most}"
        )
    generator = torch.Generator().manual_seed(seed)
    used: set[tuple[str, HeadLabel]] = set()
    pairs: list[Planted] = []
    for pairing in COMPOSING:
        n_dst = stack.n_kv_heads if pairing[1] in KV_ROLES else stack.n_heads
        kv, found = n_dst < stack.n_heads and pairing[1] in KV_ROLES, 0
        for _ in range(1000 * count):
            if found == count:
                break
            layers = sorted(torch.randint(stack.n_layers, (2,), generator=generator).tolist())
            heads = [int(torch.randint(n, (1,), generator=generator)) for n in (stack.n_heads, n_dst)]
            src, dst = HeadLabel(layers[0], heads[0]), HeadLabel(layers[1], heads[1], kv)
            if layers[0] < layers[1] and not used & {("O", src), (pairing[1], dst)}:
                used |= {("O", src), (pairing[1], dst)}
                pairs.append(Planted(src, dst, pairing, strength))
                found += 1
        if found < count:
            raise ArgumentError(f"{count} planted pairs for each pairing do not fit a model of {stack.n_layers} layers")
    return pairs


@dataclass(frozen=True)
class SyntheticStore:
    """Every tensor of a stack, drawn on demand, with planted pairs written into it."""

    stack: Stack
    infos: Mapping[str, TensorInfo]
    planted: tuple[Planted, ...]
    seed: int
    gain_offset: float = 0.0
    bytes_on_disk: None = None
    bytes_transferred: None = None

    @cached_property
    def changes(self) -> Changes:
        """What the planted pairs change, by role and layer."""
        return planted_changes(self.stack, self.planted)

    @cached_property
    def _planted_in(self) -> Mapping[str, list[tuple[Role, int]]]:
        """Stored name -> roles and layers in it that hold planted pairs."""
        names = StoredNames.of(self.infos, self.stack, "a synthetic model")
        places: dict[str, list[tuple[Role, int]]] = {}
        for role, layer in self.changes:
            linear = self.stack.projections[role].linear.at(self.stack.key(layer))
            if names is not None:
                places.setdefault(names.require(linear.weight).name, []).append((role, layer))
        return places

    def read(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        return {name: self._tensor(name) for name in names}

    def _tensor(self, name: str) -> torch.Tensor:
        shape = self.infos[name].shape
        if len(shape) == 1:
            return torch.full(shape, 0.0 if name.endswith("bias") else 1.0 - self.gain_offset)
        tensor = self._normal(name, shape)
        for role, layer in self._planted_in.get(name, ()):
            self._plant(tensor, role, layer)
        return tensor

    def _normal(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Normal numbers that depend on the seed and the name only."""
        digest = hashlib.sha256(f"{RECIPE}/{self.seed}/{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        return torch.empty(shape).normal_(0.0, STANDARD_DEVIATION, generator=generator)

    def _plant(self, tensor: torch.Tensor, role: Role, layer: int) -> None:
        projection = self.stack.projections[role]
        # Heads lie along the output features of what reads the stream, and along the input features of what writes it.
        heads_first = (projection.linear.stored == "out_in") == (role != "O")
        matrix = tensor if heads_first else tensor.T
        for change in self.changes[role, layer]:
            directions = self._normal(f"planted/{change.pair}", (change.count, self.stack.d_model))
            start = _first_feature(projection.rows, change.head) + change.start
            rows = matrix[start : start + change.count]
            rows.mul_((1 - change.share) ** 0.5).add_(directions, alpha=change.share**0.5)

    def roundoff(self, name: str) -> float:
        return 0.0

    def content_hash(self) -> str:
        """A label of the content: it follows from the tensors' names and shapes, the planted pairs and the seed."""
        facts = (RECIPE, self.seed, [str(pair) for pair in self.planted], sorted(map(repr, self.infos.values())))
        return f"sha256-of-recipe:{hashlib.sha256(repr(facts).encode()).hexdigest()}"


def _first_feature(rows: Rows, head: int) -> int:
    """Where a head's features begin in the stored matrix."""
    group, place = divmod(head, rows.per_group)
    return group * rows.group_rows + rows.start + place * rows.d_head
