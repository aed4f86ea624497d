"""Four-bit floating numbers (E2M1), two in a byte, low half first: MXFP4 and NVFP4.

- gpt-oss: `X_blocks` [expert, out, groups, 16] and `X_scales`, exponents of two for groups of 32; the model keeps the
  weight as [expert, in, out].
- compressed-tensors: `weight_packed` with `weight_scale`; exponents for groups of 32 (MXFP4), or fp8 for groups of 16
  divided by a `weight_global_scale` (NVFP4).
- modelopt: `weight` with `weight_scale` in fp8, times `weight_scale_2` (NVFP4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headspan.checkpoint.formats.packed.scaled import matrix_shape
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

if TYPE_CHECKING:
    import torch

EXPONENTS = ("uint8", "float8_e8m0fnu")
FP8 = "float8_e4m3fn"


@dataclass(frozen=True)
class FourBitFloats(PackedWeight):
    """E2M1 codes times the scales of groups along the last axis."""

    group: int
    experts: bool
    """Whether the model keeps the last two axes the other way round."""

    def unpack(self, parts: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, float]:
        import torch

        from headspan.checkpoint.formats.packed.arithmetic import E2M1, Grid, code_pairs, dequantize, scale_numbers

        scale = scale_numbers(parts["scale"], self.parts["scale"].name, may_be_zero=True)
        if "divisor" in parts:
            scale = scale / scale_numbers(parts["divisor"], self.parts["divisor"].name)
        if "factor" in parts:
            scale = scale * scale_numbers(parts["factor"], self.parts["factor"].name)
        shape = self.info.shape
        stored = (*shape[:-2], shape[-1], shape[-2]) if self.experts else shape
        table = matrix_shape(stored)
        codes = parts["codes"].reshape(table[0], table[1] // 2)
        grid = Grid(scale.reshape(table[0], -1), Groups(1, self.group))
        weight, error = dequantize(table, code_pairs(codes, torch.tensor(E2M1), low_first=True), grid)
        weight = weight.reshape(stored)
        return (weight.mT if self.experts else weight), error


def find_four_bit_floats(infos: Infos, codes: TensorInfo) -> PackedWeight | None:
    """The weight that a tensor of two codes in a byte holds; None for any other tensor."""
    if codes.dtype != "uint8" or 0 in codes.shape:
        return None
    stem, _, last = codes.name.rpartition(".")
    if last.endswith("_blocks") and len(codes.shape) >= 3:
        return _experts(infos, codes, codes.name.removesuffix("_blocks"))
    if last == "weight_packed":
        return _matrix(infos, codes, f"{stem}.weight", "divisor", f"{stem}.weight_global_scale")
    if last == "weight" and f"{codes.name}_scale" in infos:
        return _matrix(infos, codes, codes.name, "factor", f"{codes.name}_scale_2")
    return None


def _experts(infos: Infos, codes: TensorInfo, name: str) -> FourBitFloats | None:
    scale = require_part(infos, f"{name}_scales", codes.name, EXPONENTS)
    check_part(scale, codes.shape[:-1])
    *outer, n_out, n_groups, n_bytes = codes.shape
    shape = (*outer, n_groups * n_bytes * 2, n_out)
    packing = Packing("MXFP4", 4, str(2 * n_bytes))
    info = logical_info(name, shape, codes.place, packing)
    return FourBitFloats(info, {"codes": codes, "scale": scale}, False, 2 * n_bytes, experts=True)


def _matrix(infos: Infos, codes: TensorInfo, name: str, kind: str, whole: str) -> FourBitFloats:
    """A weight with one scale for groups along its rows, and in NVFP4 one for all of them."""
    nvidia = whole in infos
    dtypes = {FP8, *FLOATS} if nvidia else EXPONENTS
    scale = require_part(infos, f"{name}_scale", codes.name, dtypes)
    width, group = 2 * codes.shape[-1], 16 if nvidia else 32
    check_part(scale, (*codes.shape[:-1], -(-width // group)))
    parts = {"codes": codes, "scale": scale}
    if nvidia:
        parts[kind] = require_part(infos, whole, codes.name, FLOATS)
        check_part(parts[kind], (1,) if parts[kind].shape else ())
    packing = Packing("NVFP4" if nvidia else "MXFP4", 4, str(group))
    info = logical_info(name, (*codes.shape[:-1], width), codes.place, packing)
    return FourBitFloats(info, parts, False, group, experts=False)
