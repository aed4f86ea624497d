"""GPTQ and AWQ: integers of 2 to 8 bits in 32-bit words (`qweight`), scales and zero points for groups of inputs.

GPTQ packs along the inputs: words [in bits / 32, out], `qzeros` [groups, out bits / 32], `scales` [groups, out];
`g_idx` says which group an input belongs to, in any order (act-order). Its first format stores zero points less one.
AWQ packs along the outputs, even codes of a word before odd ones (0 2 4 6 1 3 5 7 with four bits, 0 2 1 3 with eight):
words [in, out bits / 32] ("gemm"); or four-bit codes along the inputs in plain order: words [out, in / 8] ("gemv").

The shapes of the tensors say which it is, bits and groups; a config that says otherwise is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from headspan.checkpoint.formats.packed.settings import Settings
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
from headspan.errors import CheckpointError, UnsupportedModel

if TYPE_CHECKING:
    import torch

AWQ_ORDERS = {4: (0, 4, 1, 5, 2, 6, 3, 7), 8: (0, 2, 1, 3)}
"""By bits: which field of a word holds its first code, its second, ..."""
GPTQ_BITS = (2, 3, 4, 8)
V2 = "gptq_v2"
KNOWN_METHODS = ("", "gptq", "awq")
KNOWN_FORMS = ("", "gptq", V2, "gemm", "gemv")


@dataclass(frozen=True)
class GPTQWeight(PackedWeight):
    """Codes packed along the inputs."""

    bits: int
    group: int
    zero_offset: int
    """What the stored zero points lack: 1 in the first format."""

    def unpack(self, parts: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, float]:
        from headspan.checkpoint.formats.packed.arithmetic import (
            Grid,
            dequantize,
            fields,
            group_order,
            packed_integers,
            scale_numbers,
        )

        n_out, n_in = self.coded_shape
        scales = scale_numbers(parts["scales"], self.parts["scales"].name)
        words = parts["zeros"]
        if self.zero_offset and 32 % self.bits == 0:
            # Added to whole words, as it was taken away: a borrow between fields comes back.
            words = words + sum(1 << shift for shift in range(0, 31, self.bits))
        zeros = fields(words, self.bits, n_out)
        if self.zero_offset and 32 % self.bits:
            zeros = (zeros + 1) & ((1 << self.bits) - 1)
        order = None
        if "order" in parts:
            order = group_order(parts["order"], self.parts["order"].name, scales.shape[0], self.group)
        groups = Groups(1, self.group)
        grids = [Grid(numbers.T.float().contiguous(), groups, order) for numbers in (scales, zeros)]
        return dequantize((n_out, n_in), packed_integers(parts["codes"].T, self.bits, n_in), *grids)


@dataclass(frozen=True)
class AWQWeight(PackedWeight):
    """Codes packed along the outputs, or along the inputs in plain order."""

    bits: int
    group: int
    along_inputs: bool

    def unpack(self, parts: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, float]:
        import torch

        from headspan.checkpoint.formats.packed.arithmetic import (
            Grid,
            dequantize,
            fields,
            ordered,
            packed_integers,
            scale_numbers,
        )

        n_out, n_in = self.coded_shape
        scales, zeros = parts["scales"], fields(parts["zeros"], self.bits, 32 // self.bits * parts["zeros"].shape[1])
        if self.along_inputs:
            n_groups = ceil(n_in / self.group)
            numbers = scale_numbers(scales[:, :n_groups], self.parts["scales"].name)
            grids = [Grid(each.float(), Groups(1, self.group)) for each in (numbers, zeros[:, :n_groups])]
            return dequantize((n_out, n_in), packed_integers(parts["codes"], self.bits, n_in), *grids)
        order = torch.tensor(AWQ_ORDERS[self.bits])
        numbers = scale_numbers(scales, self.parts["scales"].name)
        grids = [Grid(each.float(), Groups(self.group, 1)) for each in (numbers, ordered(zeros, order))]
        weight, error = dequantize((n_in, n_out), packed_integers(parts["codes"], self.bits, n_out, order), *grids)
        return weight.T, error


def find_word_weight(infos: Infos, codes: TensorInfo, settings: Settings, turned: bool) -> PackedWeight | None:
    """The weight that `X.qweight` holds; None for any other tensor."""
    stem, _, last = codes.name.rpartition(".")
    if last != "qweight":
        return None
    if settings.method not in KNOWN_METHODS:
        raise UnsupportedModel(
            f"'{codes.name}' is packed by {settings.method!r}, which headspan does not read; "
            "open the original checkpoint"
        )
    if settings.form not in KNOWN_FORMS or (settings.form == "gemv" and not settings.groups):
        raise UnsupportedModel(
            f"'{codes.name}' is packed in the format {settings.form!r}, which headspan does not read; "
            "open the original checkpoint"
        )
    require_part(infos, codes.name, codes.name, ("int32",))
    parts = {
        "codes": codes,
        "scales": require_part(infos, f"{stem}.scales", codes.name, FLOATS),
        "zeros": require_part(infos, f"{stem}.qzeros", codes.name, ("int32",)),
    }
    for part in parts.values():
        if len(part.shape) != 2 or 0 in part.shape:
            raise CheckpointError(f"tensor '{part.name}' has shape {part.shape}; quantized weights need a matrix there")
    if f"{stem}.g_idx" in infos:
        parts["order"] = require_part(infos, f"{stem}.g_idx", codes.name, ("int32", "int64"))
    plain = codes.shape[1] == parts["scales"].shape[1] and settings.form != "gemv"
    find = _gptq if plain and settings.method != "awq" else _awq
    return find(f"{stem}.weight", parts, settings, turned)


def _gptq(name: str, parts: dict[str, TensorInfo], settings: Settings, turned: bool) -> GPTQWeight:
    codes, scales = parts["codes"], parts["scales"]
    n_groups, n_out = scales.shape
    fitting = [bits for bits in GPTQ_BITS if ceil(n_out * bits / 32) == parts["zeros"].shape[1]]
    if "order" in parts:
        fitting = [bits for bits in fitting if ceil(parts["order"].n_items * bits / 32) == codes.shape[0]]
    bits = _bits(codes, fitting, settings)
    n_in = parts["order"].n_items if "order" in parts else codes.shape[0] * 32 // bits
    check_part(codes, (ceil(n_in * bits / 32), n_out))
    check_part(parts["zeros"], (n_groups, ceil(n_out * bits / 32)))
    group = _group(scales, n_in, n_groups, settings)
    if "order" in parts:
        check_part(parts["order"], (n_in,))
    packing = Packing("GPTQ", bits, Groups(1, group).text((n_out, n_in)))
    info = logical_info(name, (n_out, n_in), codes.place, packing, turned)
    return GPTQWeight(info, parts, turned, bits, group, 0 if settings.form == V2 else 1)


def _awq(name: str, parts: dict[str, TensorInfo], settings: Settings, turned: bool) -> AWQWeight:
    codes, scales, zeros = parts["codes"], parts["scales"], parts["zeros"]
    parts.pop("order", None)
    along_inputs, bits = settings.form == "gemv", 4
    if along_inputs:
        n_out, n_in = codes.shape[0], codes.shape[1] * 8
        group = min(*settings.groups, n_in)
        check_part(scales, (n_out, zeros.shape[1] * 8))
        if ceil(n_in / group) > scales.shape[1]:
            raise CheckpointError(f"tensor '{scales.name}' has shape {scales.shape}, too few for groups of {group}")
    else:
        bits = next((each for each in AWQ_ORDERS if codes.shape[1] * 32 == scales.shape[1] * each), 4)
        n_in, n_out = codes.shape[0], codes.shape[1] * 32 // bits
        check_part(scales, (scales.shape[0], n_out))
        check_part(zeros, (scales.shape[0], codes.shape[1]))
        group = _group(scales, n_in, scales.shape[0], settings)
    packing = Packing("AWQ", _bits(codes, (bits,), settings), Groups(1, group).text((n_out, n_in)))
    info = logical_info(name, (n_out, n_in), codes.place, packing, turned)
    return AWQWeight(info, parts, turned, bits, group, along_inputs)


def _bits(codes: TensorInfo, fitting: Sequence[int], settings: Settings) -> int:
    """Bits of a code: of those that fit the tensors, the one that the config states where it does."""
    if not fitting:
        raise CheckpointError(f"the tensors of '{codes.name}' fit no packing of 2, 3, 4 or 8 bits; the file is damaged")
    stated = [bits for bits in fitting if bits in settings.bits]
    if settings.bits and not stated and not settings.mixed:
        raise CheckpointError(
            f"the config states {min(settings.bits)} bits, but '{codes.name}' is packed in {fitting[0]}; "
            "the config belongs to another model"
        )
    return (stated or fitting)[0]


def _group(scales: TensorInfo, n_in: int, n_groups: int, settings: Settings) -> int:
    """Inputs of a group."""
    for group in settings.groups:
        if ceil(n_in / group) == n_groups:
            return group
    if n_in % n_groups or (settings.groups and not settings.mixed):
        stated = f"groups of {min(settings.groups)}" if settings.groups else "no group size"
        raise CheckpointError(
            f"tensor '{scales.name}' holds scales of {n_groups} groups for {n_in} inputs; the config states {stated}"
        )
    return n_in // n_groups
