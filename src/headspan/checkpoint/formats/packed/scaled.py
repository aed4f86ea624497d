"""Weights kept as numbers of eight bits or as packed integers, with scales beside them: fp8 and compressed-tensors.

- `X.weight` in fp8 with `weight_scale_inv` (DeepSeek V3: blocks of 128 x 128) or `weight_scale` (compressed-tensors
  "float-quantized", fbgemm, modelopt, MXFP8): of the tensor, of rows, groups or blocks; or with no scale at all.
- `X.weight` in int8 with `weight_scale`, and `weight_zero_point` where it is asymmetric ("int-quantized").
- `X.weight_packed`: integers of 1 to 8 bits in words, along the inputs, offset to be positive; `weight_shape` holds the
  shape, `weight_zero_point` is packed along the outputs ("pack-quantized").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING

from headspan.checkpoint.formats.packed.settings import Settings
from headspan.checkpoint.formats.packed.weight import (
    FLOATS,
    Groups,
    Infos,
    PackedWeight,
    check_part,
    groups_of,
    logical_info,
    require_part,
)
from headspan.checkpoint.formats.tensors import Packing, TensorInfo
from headspan.errors import CheckpointError

if TYPE_CHECKING:
    import torch

FP8 = {"float8_e4m3fn": "fp8 e4m3", "float8_e5m2": "fp8 e5m2"}
SCALES = FLOATS | {"float8_e8m0fnu", "float8_e4m3fn", "uint8"}
ZEROS = FLOATS | {"int8", "int32", "int64"}


@dataclass(frozen=True)
class ScaledWeight(PackedWeight):
    """Numbers of eight bits times scales."""

    groups: Groups

    def unpack(self, parts: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, float]:
        import torch

        from headspan.checkpoint.formats.packed.arithmetic import (
            Grid,
            dequantize,
            scale_numbers,
            small_floats,
            small_integers,
            zero_points,
        )

        codes = parts["codes"].reshape(matrix_shape(self.coded_shape))
        values = small_integers(codes) if codes.dtype == torch.int8 else small_floats(codes)
        numbers = torch.ones(1, 1)
        if "scale" in parts:
            numbers = scale_numbers(parts["scale"], self.parts["scale"].name)
        grids = [numbers]
        if "zero" in parts:
            grids.append(zero_points(parts["zero"], self.parts["zero"].name, 8))
        table = (codes.shape[0], codes.shape[1])
        spread = [Grid(_matrix(each, table, self.groups), self.groups) for each in grids]
        weight, error = dequantize(table, values, *spread)
        return weight.reshape(self.coded_shape), error


@dataclass(frozen=True)
class PackedIntegers(PackedWeight):
    """Integers in words, times scales."""

    bits: int
    groups: Groups

    def unpack(self, parts: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, float]:
        import torch

        from headspan.checkpoint.formats.packed.arithmetic import (
            Grid,
            dequantize,
            fields,
            group_order,
            packed_integers,
            scale_numbers,
            zero_points,
        )

        n_out, n_in = self.coded_shape
        if parts["shape"].tolist() != [n_out, n_in]:
            found = parts["shape"].tolist()
            raise CheckpointError(f"tensor '{self.parts['shape'].name}' says {found!s:.40}, not {[n_out, n_in]}")
        shape, middle = (n_out, n_in), float(1 << (self.bits - 1))
        scale = _matrix(scale_numbers(parts["scale"], self.parts["scale"].name), shape, self.groups)
        zero = torch.full((1, 1), middle).expand(scale.shape)
        if "zero" in parts and self.parts["zero"].dtype == "int32":
            zero = fields(parts["zero"].T, self.bits, n_out).T.float()
        elif "zero" in parts:
            zero = _matrix(zero_points(parts["zero"], self.parts["zero"].name, self.bits) + middle, shape, self.groups)
        order = None
        if "order" in parts and scale.shape[1] > 1:
            order = group_order(parts["order"], self.parts["order"].name, scale.shape[1], self.groups.columns)
        grids = [Grid(each, self.groups, order) for each in (scale, zero)]
        return dequantize(shape, packed_integers(parts["codes"], self.bits, n_in), *grids)


def matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """A tensor's shape with all axes but the last as one."""
    return (prod(shape[:-1]), shape[-1]) if shape else (1, 1)


def _matrix(numbers: torch.Tensor, shape: tuple[int, int], groups: Groups) -> torch.Tensor:
    """Scales as [blocks of rows, blocks of columns]."""
    return numbers.reshape(ceil(shape[0] / groups.rows), ceil(shape[1] / groups.columns))


def find_scaled_weight(infos: Infos, codes: TensorInfo, settings: Settings) -> PackedWeight | None:
    """The weight that a tensor of eight bits holds; None for any other tensor, and for integers without a scale."""
    if codes.dtype not in FP8 and codes.dtype != "int8":
        return None
    names = [f"{codes.name}_{ending}" for ending in ("scale_inv", "scale")]
    if codes.dtype == "int8" and (names[0] in infos or infos.get(names[1], codes).dtype not in FLOATS):
        # Two four-bit numbers in a byte, in one of several orders; or no scale at all.
        return None
    scale = next((infos[name] for name in names if name in infos), None)
    if scale is None and settings.method and codes.name.endswith(".weight"):
        require_part(infos, names[0 if settings.method == "fp8" else 1], codes.name)
    parts = {"codes": codes}
    shape, groups = matrix_shape(codes.shape), Groups(*matrix_shape(codes.shape))
    if 0 in shape:
        return None
    if scale is not None:
        require_part(infos, scale.name, codes.name, SCALES)
        if len(codes.shape) > 2 and scale.n_items > 1:
            return None
        parts["scale"], groups = scale, groups_of(scale, shape, settings.stated_blocks())
    zero = infos.get(f"{codes.name}_zero_point")
    if zero is not None and codes.dtype == "int8" and scale is not None:
        check_part(require_part(infos, zero.name, codes.name, ZEROS), scale.shape)
        parts["zero"] = zero
    packing = Packing(FP8.get(codes.dtype, "int8"), 8, groups.text(shape))
    return ScaledWeight(logical_info(codes.name, codes.shape, codes.place, packing), parts, False, groups)


def find_packed_integers(
    infos: Infos, codes: TensorInfo, settings: Settings, shapes: Mapping[str, tuple[int, ...]]
) -> PackedWeight | None:
    """The weight that `X.weight_packed` holds in words; None for any other tensor."""
    stem, _, last = codes.name.rpartition(".")
    if last != "weight_packed" or codes.dtype != "int32":
        return None
    parts = {
        "codes": codes,
        "scale": require_part(infos, f"{stem}.weight_scale", codes.name, FLOATS),
        "shape": require_part(infos, f"{stem}.weight_shape", codes.name, ("int64", "int32")),
    }
    shape = shapes[parts["shape"].name]
    bits = _bits(codes, shape, settings)
    groups = groups_of(parts["scale"], shape, settings.stated_blocks())
    zero = infos.get(f"{stem}.weight_zero_point")
    if zero is not None:
        grid = (ceil(shape[0] / groups.rows), ceil(shape[1] / groups.columns))
        if zero.dtype == "int32" and grid[0] == shape[0]:
            check_part(zero, (ceil(shape[0] * bits / 32), grid[1]))
        else:
            check_part(require_part(infos, zero.name, codes.name, ZEROS - {"int32"}), parts["scale"].shape)
        parts["zero"] = zero
    if f"{stem}.weight_g_idx" in infos:
        parts["order"] = require_part(infos, f"{stem}.weight_g_idx", codes.name, ("int32", "int64"))
        check_part(parts["order"], (shape[1],))
    packing = Packing(f"int{bits}", bits, groups.text(shape))
    info = logical_info(f"{stem}.weight", shape, codes.place, packing)
    return PackedIntegers(info, parts, False, bits, groups)


def _bits(codes: TensorInfo, shape: tuple[int, ...], settings: Settings) -> int:
    """Bits of a code, from the words that a row takes; from the config where several would take as many."""
    if len(shape) != 2 or codes.shape[:-1] != shape[:1]:
        raise CheckpointError(f"tensor '{codes.name}' has shape {codes.shape}, which cannot hold a weight of {shape}")
    fitting = [bits for bits in range(1, 9) if ceil(shape[1] * bits / 32) == codes.shape[1]]
    stated = [bits for bits in fitting if bits in settings.bits]
    if not fitting or (settings.bits and not stated):
        raise CheckpointError(
            f"tensor '{codes.name}' has {codes.shape[1]} words in a row for {shape[1]} numbers, which fits "
            f"{'no number of' if not fitting else f'{fitting[0]}'} bits"
            + (f"; the config states {', '.join(map(str, sorted(settings.bits)))}" if settings.bits else "")
        )
    if len(stated or fitting) > 1:
        raise CheckpointError(f"'{codes.name}' may have {fitting[0]} or {fitting[-1]} bits; the config does not say")
    return (stated or fitting)[0]
