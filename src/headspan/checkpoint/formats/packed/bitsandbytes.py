"""bitsandbytes: rows of int8 with their largest values (`SCB`), and four-bit codes (nf4, fp4) of blocks of numbers.

Four-bit codes stand one after another without regard to rows, two in a byte, high half first. Every block has its
largest value (`absmax`), which may itself be coded in eight bits ("nested", double quantization), and a code book
(`quant_map`). What is no tensor, such as the shape, is JSON in `quant_state.bitsandbytes__nf4`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from headspan.checkpoint.config import MAX_WIDTH, Config, json_object
from headspan.checkpoint.formats.packed.weight import (
    FLOATS,
    Groups,
    Infos,
    PackedWeight,
    check_part,
    logical_info,
    require_part,
)
from headspan.checkpoint.formats.tensors import Packing, TensorInfo
from headspan.errors import CheckpointError

if TYPE_CHECKING:
    import torch

KINDS = ("nf4", "fp4")
STATE = ".quant_state.bitsandbytes__"
MAX_AXES = 4


@dataclass(frozen=True)
class State:
    """What the JSON of a four-bit weight says."""

    shape: tuple[int, ...]
    block: int
    nested_block: int
    offset: float

    @classmethod
    def of(cls, content: bytes, name: str) -> State:
        fields = Config({**json_object(content, f"tensor '{name}'"), "model_type": "bitsandbytes"}, f"tensor '{name}'")
        return cls(
            _shape(fields.get("shape"), name),
            fields.integer("blocksize", most=2**20),
            fields.integer("nested_blocksize", most=2**20, default=1),
            fields.number("nested_offset", default=0.0),
        )


def _shape(value: Any, name: str) -> tuple[int, ...]:
    if (
        not isinstance(value, list)
        or not 1 <= len(value) <= MAX_AXES
        or not all(isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= MAX_WIDTH for size in value)
    ):
        raise CheckpointError(f"tensor '{name}': 'shape' is {value!r:.60}, not a few whole numbers above 0")
    return tuple(value)


@dataclass(frozen=True)
class RowsOfBytes(PackedWeight):
    """LLM.int8: an entry is its code times the row's largest value / 127."""

    def unpack(self, parts: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, float]:
        from headspan.checkpoint.formats.packed.arithmetic import Grid, dequantize, scale_numbers, small_integers

        n_out, n_in = self.coded_shape
        scale = scale_numbers(parts["scale"], self.parts["scale"].name, may_be_zero=True)
        grid = Grid(scale.reshape(n_out, 1), Groups(1, n_in))
        weight, error = dequantize((n_out, n_in), small_integers(parts["codes"]), grid)
        return weight.mul_(1 / 127), error / 127


@dataclass(frozen=True)
class BlocksOfCodes(PackedWeight):
    """nf4 and fp4."""

    block: int

    def unpack(self, parts: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, float]:
        import torch

        from headspan.checkpoint.formats.packed.arithmetic import Grid, code_pairs, dequantize, scale_numbers

        state = State.of(parts["state"].numpy().tobytes(), self.parts["state"].name)
        if state.shape != self.coded_shape or state.block != self.block:
            raise CheckpointError(
                f"tensor '{self.parts['state'].name}' says {state.shape} in blocks of {state.block}; its neighbors "
                f"have {self.coded_shape} in blocks of {self.block}"
            )
        count, book = prod(state.shape), parts["book"].float()
        largest = scale_numbers(self._largest(parts, state), self.parts["absmax"].name, may_be_zero=True)
        flat = parts["codes"].reshape(-1)
        # An odd block at the end is read as a whole one: what is beyond the last code is cut off.
        missing = ceil(count / self.block) * self.block // 2 - flat.numel()
        codes = torch.nn.functional.pad(flat, (0, missing)).reshape(-1, self.block // 2)
        grid = Grid(largest.reshape(-1, 1), Groups(1, self.block))
        weight, error = dequantize((codes.shape[0], self.block), code_pairs(codes, book, low_first=False), grid)
        return weight.reshape(-1)[:count].reshape(state.shape), error

    def _largest(self, parts: Mapping[str, torch.Tensor], state: State) -> torch.Tensor:
        if "nested absmax" not in parts:
            return parts["absmax"]
        outer = parts["nested absmax"].float().repeat_interleave(state.nested_block)
        absmax = parts["absmax"]
        if outer.numel() < absmax.numel():
            raise CheckpointError(
                f"tensor '{self.parts['nested absmax'].name}' holds {parts['nested absmax'].numel()} numbers for "
                f"{absmax.numel()} in blocks of {state.nested_block}"
            )
        inner = parts["nested book"].float().index_select(0, absmax.int())
        return inner * outer[: absmax.numel()] + state.offset


def find_bitsandbytes_weight(
    infos: Infos, codes: TensorInfo, turned: bool, states: Mapping[str, State]
) -> PackedWeight | None:
    """The weight of a module in bitsandbytes' layout; None for any other tensor."""
    stem = codes.name.removesuffix(".weight")
    if codes.dtype == "int8" and f"{stem}.SCB" in infos and len(codes.shape) == 2:
        scale = require_part(infos, f"{stem}.SCB", codes.name, FLOATS)
        check_part(scale, codes.shape[:1])
        info = logical_info(codes.name, codes.shape, codes.place, Packing("LLM.int8", 8, "one row"), turned)
        return RowsOfBytes(info, {"codes": codes, "scale": scale}, turned)
    kind = next((kind for kind in KINDS if f"{codes.name}{STATE}{kind}" in infos), None)
    if kind is None:
        if codes.dtype == "uint8" and f"{codes.name}.absmax" in infos:
            require_part(infos, f"{codes.name}{STATE}nf4", codes.name)
        return None
    return _four_bits(infos, codes, kind, turned, states)


def _four_bits(infos: Infos, codes: TensorInfo, kind: str, turned: bool, states: Mapping[str, State]) -> BlocksOfCodes:
    stated = require_part(infos, f"{codes.name}{STATE}{kind}", codes.name, ("uint8",))
    state = states[stated.name]
    require_part(infos, codes.name, codes.name, ("uint8",))
    count, turned = prod(state.shape), turned and len(state.shape) == 2
    if codes.n_items != ceil(count / 2) or state.block % 2:
        raise CheckpointError(
            f"tensor '{codes.name}' holds {codes.n_items:,} bytes, but its state says a weight of {state.shape} "
            f"in blocks of {state.block}"
        )
    parts = {
        "codes": codes,
        "state": stated,
        "absmax": require_part(infos, f"{codes.name}.absmax", codes.name, {"uint8", *FLOATS}),
        "book": require_part(infos, f"{codes.name}.quant_map", codes.name, FLOATS),
    }
    check_part(parts["absmax"], (ceil(count / state.block),))
    check_part(parts["book"], (16,))
    if parts["absmax"].dtype == "uint8":
        for role, ending, shape in (
            ("nested absmax", "nested_absmax", None),
            ("nested book", "nested_quant_map", (256,)),
        ):
            parts[role] = require_part(infos, f"{codes.name}.{ending}", codes.name, FLOATS)
            check_part(parts[role], shape or (ceil(parts["absmax"].n_items / state.nested_block),))
    info = logical_info(codes.name, state.shape, codes.place, Packing(kind, 4, str(state.block)), turned)
    return BlocksOfCodes(info, parts, turned, state.block)
