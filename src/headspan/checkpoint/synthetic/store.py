"""A `TensorStore` whose tensors are drawn from a seed when they are read, and forgotten.

Each tensor has a generator of its own, seeded with a hash of the model's seed and the tensor's name: what is read does
not depend on what was read before. Matrices and tables are normal with one standard deviation, gains are 1, biases 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headspan.checkpoint.families import Rows, Stack
from headspan.checkpoint.names import StoredNames
from headspan.checkpoint.synthetic.planting import Changes, Planted, plant, planted_changes
from headspan.checkpoint.tensors import TensorInfo
from headspan.dims import Role

if TYPE_CHECKING:
    import torch

STANDARD_DEVIATION = 0.02
RECIPE = "1"
"""Changes whenever the same seed would give other numbers."""


@dataclass(frozen=True)
class SyntheticStore:
    """Every tensor of a stack, drawn on demand, with planted pairs written into it."""

    stack: Stack
    infos: Mapping[str, TensorInfo]
    planted: tuple[Planted, ...]
    seed: int
    gain_offset: float = 0.0

    @property
    def bytes_on_disk(self) -> int | None:
        return None

    @property
    def bytes_transferred(self) -> int | None:
        return None

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
        return {name: self._made(name) for name in names}

    def _made(self, name: str) -> torch.Tensor:
        import torch

        shape = self.infos[name].shape
        if len(shape) == 1:
            return torch.full(shape, 0.0 if name.endswith("bias") else 1.0 - self.gain_offset)
        tensor = self._normal(name, shape)
        for role, layer in self._planted_in.get(name, ()):
            self._plant(tensor, role, layer)
        return tensor

    def _normal(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Normal numbers that depend on the seed and the name only."""
        import torch

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
            plant(matrix, change, directions, _first_feature(projection.rows, change.head))

    def content_hash(self) -> str:
        """A label of the content: it follows from the tensors' names and shapes, the planted pairs and the seed."""
        facts = (RECIPE, self.seed, [str(pair) for pair in self.planted], sorted(map(repr, self.infos.values())))
        return f"sha256-of-recipe:{hashlib.sha256(repr(facts).encode()).hexdigest()}"


def _first_feature(rows: Rows, head: int) -> int:
    """Where a head's features begin in the stored matrix."""
    group, place = divmod(head, rows.per_group)
    return group * rows.group_rows + rows.start + place * rows.d_head
