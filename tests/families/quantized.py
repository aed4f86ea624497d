"""Checkpoints quantized in every scheme that headspan reads, and the weights that they stand for.

compressed-tensors' layouts are written and read back by that library. GPTQ, AWQ and block-scaled fp8 are written from
their published layout with whole numbers of Python, entry by entry, because their libraries need a GPU or a newer
torch; what they stand for is computed from the codes before packing. bitsandbytes has a test of its own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

Tensors = dict[str, Tensor]
LINEARS = (
    *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    *("query", "key", "value", "dense", "c_attn", "c_proj", "c_fc", "query_key_value"),
)
Maker = Callable[[Tensor], tuple[Tensors, Tensor]]
"""A weight [out, in] -> tensors by what follows the module's name, and the weight that they stand for."""


def words(codes: list[list[int]], bits: int) -> Tensor:
    """Rows of whole numbers as rows of 32-bit words: one long number in base 2 to the bits, cut."""
    packed = []
    for row in codes:
        number = sum(code << (bits * place) for place, code in enumerate(row))
        n_words = -(-len(row) * bits // 32)
        cut = [(number >> (32 * place)) & 0xFFFFFFFF for place in range(n_words)]
        packed.append([word - 2**32 if word >= 2**31 else word for word in cut])
    return torch.tensor(packed, dtype=torch.int32)


def integer_codes(weight: Tensor, bits: int, group: Tensor, symmetric: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Codes [out, in], scales and zero points [out, groups] of groups of columns, scales in half precision."""
    n_groups, most = int(group.max()) + 1, 2**bits - 1
    scales, zeros = torch.empty(len(weight), n_groups), torch.empty(len(weight), n_groups)
    for index in range(n_groups):
        own = weight[:, group == index]
        low, high = own.amin(1).clamp(max=0), own.amax(1).clamp(min=0)
        if symmetric:
            high = own.abs().amax(1)
            low = -high
        scales[:, index] = ((high - low) / most).half().float()
        zeros[:, index] = 2 ** (bits - 1) if symmetric else (-low / scales[:, index]).round().clamp(1, most)
    codes = (weight / scales[:, group] + zeros[:, group]).round().clamp(0, most)
    return codes.int(), scales, zeros.int()


def gptq(bits: int, group_size: int, act_order: bool = False, version: int = 1, with_order: bool = True) -> Maker:
    def make(weight: Tensor) -> tuple[Tensors, Tensor]:
        n_in = weight.shape[1]
        group = torch.arange(n_in) // group_size
        if act_order:
            group = group[torch.randperm(n_in, generator=torch.Generator().manual_seed(n_in))]
        codes, scales, zeros = integer_codes(weight, bits, group)
        tensors = {
            "qweight": words(codes.tolist(), bits).T.contiguous(),
            "qzeros": words((zeros - int(version == 1)).T.tolist(), bits),
            "scales": scales.T.contiguous().half(),
        }
        if with_order:
            tensors["g_idx"] = group.int()
        return tensors, (codes - zeros[:, group]) * scales[:, group]

    return make


def awq(group_size: int, gemv: bool = False, bits: int = 4) -> Maker:
    def make(weight: Tensor) -> tuple[Tensors, Tensor]:
        group = torch.arange(weight.shape[1]) // group_size
        codes, scales, zeros = integer_codes(weight, bits, group)
        value = (codes - zeros[:, group]) * scales[:, group]
        if gemv:
            padding = (0, -scales.shape[1] % 8)
            wide, high = (torch.nn.functional.pad(each, padding) for each in (scales, zeros))
            packed = {"qweight": words(codes.tolist(), 4), "qzeros": words(high.tolist(), 4), "scales": wide.half()}
            return packed, value
        order = {4: [0, 2, 4, 6, 1, 3, 5, 7], 8: [0, 2, 1, 3]}[bits]

        def interleaved(rows: Tensor) -> Tensor:
            return words(rows.unflatten(1, (-1, len(order)))[:, :, order].flatten(1).tolist(), bits)

        return {"qweight": interleaved(codes.T), "qzeros": interleaved(zeros.T), "scales": scales.T.half()}, value

    return make


def fp8_blocks(size: int) -> Maker:
    def make(weight: Tensor) -> tuple[Tensors, Tensor]:
        grid = [-(-length // size) for length in weight.shape]
        scales, codes = torch.empty(grid), torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
        value = torch.empty(weight.shape)
        for row in range(grid[0]):
            for column in range(grid[1]):
                block = (slice(row * size, (row + 1) * size), slice(column * size, (column + 1) * size))
                scales[row, column] = weight[block].abs().max() / 448
                codes[block] = (weight[block] / scales[row, column]).to(torch.float8_e4m3fn)
                value[block] = codes[block].float() * scales[row, column]
        return {"weight": codes, "weight_scale_inv": scales}, value

    return make


def fp8_plain(weight: Tensor) -> tuple[Tensors, Tensor]:
    codes = weight.to(torch.float8_e5m2)
    return {"weight": codes}, codes.float()


def compressed(form: str, **arguments: Any) -> Maker:
    """A module in one of compressed-tensors' layouts, written and read back by that library."""

    def make(weight: Tensor) -> tuple[Tensors, Tensor]:
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
        from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

        args = QuantizationArgs(**arguments)
        strategy, blocks = str(getattr(args.strategy, "value", args.strategy)), weight
        if "group" in strategy:
            blocks = weight.unflatten(1, (-1, args.group_size or 1))
        dims = {"tensor": (0, 1), "channel": (1,)}.get(strategy, (2,))
        keep = "group" not in strategy
        low, high = blocks.amin(dims, keepdim=keep), blocks.amax(dims, keepdim=keep)
        module = {"weight": weight}
        if strategy == "tensor_group":
            module["weight_global_scale"] = generate_gparam(weight.amin(), weight.amax())
        scale, zero = calculate_qparams(low, high, args, module.get("weight_global_scale"))
        if args.scale_dtype == torch.uint8:
            # The library rounds exponents to bytes before it raises two to them; small weights need the scale itself.
            scale = 2.0 ** torch.floor(torch.log2(torch.maximum(-low, high)) - (2 if args.num_bits == 4 else 8))
        module["weight_scale"] = scale.reshape(1) if strategy == "tensor" else scale
        if not args.symmetric:
            module["weight_zero_point"] = zero
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        library: Any = BaseCompressor.get_value_from_registry(form)
        stored = library.compress(module, scheme)
        value = library.decompress(dict(stored), scheme)["weight"]
        return {name: tensor.detach().clone() for name, tensor in stored.items()}, value

    return make


def compressed_config(form: str, **weights: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }


@dataclass(frozen=True)
class Scheme:
    """How to quantize a weight, the config that goes with it, and what headspan should call it."""

    make: Maker
    config: Mapping[str, Any]
    text: str


def _compressed(form: str, text: str, **weights: Any) -> Scheme:
    stated = {name: value for name, value in weights.items() if name != "scale_dtype"}
    return Scheme(compressed(form, **weights), compressed_config(form, **stated), text)


PACK, NAIVE_INT, NAIVE_FLOAT = "pack-quantized", "int-quantized", "float-quantized"
GPTQ = {"quant_method": "gptq", "desc_act": False, "sym": False}
INT4 = {"num_bits": 4, "type": "int"}
FLOAT8 = {"num_bits": 8, "type": "float"}
SCHEMES: dict[str, Scheme] = {
    "GPTQ 2 bits": Scheme(gptq(2, 16), {**GPTQ, "bits": 2, "group_size": 16}, "GPTQ (2 bits, groups of 16)"),
    "GPTQ 3 bits": Scheme(gptq(3, 32), {**GPTQ, "bits": 3, "group_size": 32}, "GPTQ (3 bits, groups of 32)"),
    "GPTQ 4 bits": Scheme(gptq(4, 32), {**GPTQ, "bits": 4, "group_size": 32}, "GPTQ (4 bits, groups of 32)"),
    "GPTQ 8 bits": Scheme(gptq(8, 10**6), {**GPTQ, "bits": 8, "group_size": -1}, "GPTQ (8 bits, groups of one row)"),
    "GPTQ act-order": Scheme(
        gptq(4, 16, act_order=True), {**GPTQ, "bits": 4, "group_size": 16}, "GPTQ (4 bits, groups of 16)"
    ),
    "GPTQ v2": Scheme(
        gptq(4, 32, version=2),
        {**GPTQ, "bits": 4, "group_size": 32, "checkpoint_format": "gptq_v2"},
        "GPTQ (4 bits, groups of 32)",
    ),
    "GPTQ without g_idx": Scheme(
        gptq(4, 32, with_order=False), {**GPTQ, "bits": 4, "group_size": 32}, "GPTQ (4 bits, groups of 32)"
    ),
    "AWQ": Scheme(
        awq(32), {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}, "AWQ (4 bits, groups of 32)"
    ),
    "AWQ 8 bits": Scheme(
        awq(32, bits=8),
        {"quant_method": "awq", "bits": 8, "group_size": 32, "version": "gemm"},
        "AWQ (8 bits, groups of 32)",
    ),
    "AWQ gemv": Scheme(
        awq(32, gemv=True),
        {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemv"},
        "AWQ (4 bits, groups of 32)",
    ),
    "fp8 blocks": Scheme(
        fp8_blocks(24),
        {"quant_method": "fp8", "weight_block_size": [24, 24]},
        "fp8 e4m3 (8 bits, groups of 24 x 24)",
    ),
    "fp8 plain": Scheme(fp8_plain, {}, "fp8 e5m2 (8 bits)"),
    "fp8 tensor": _compressed(NAIVE_FLOAT, "fp8 e4m3 (8 bits)", **FLOAT8, strategy="tensor"),
    "fp8 channel": _compressed(NAIVE_FLOAT, "fp8 e4m3 (8 bits, groups of one row)", **FLOAT8, strategy="channel"),
    "int8 channel": _compressed(NAIVE_INT, "int8 (8 bits, groups of one row)", num_bits=8, strategy="channel"),
    "int8 asymmetric": _compressed(
        NAIVE_INT, "int8 (8 bits, groups of one row)", num_bits=8, strategy="channel", symmetric=False
    ),
    "int4 groups": _compressed(PACK, "int4 (4 bits, groups of 32)", **INT4, strategy="group", group_size=32),
    "int4 asymmetric": _compressed(
        PACK, "int4 (4 bits, groups of 32)", **INT4, strategy="group", group_size=32, symmetric=False
    ),
    "int3 channel": _compressed(PACK, "int3 (3 bits, groups of one row)", num_bits=3, strategy="channel"),
    "int8 packed": _compressed(PACK, "int8 (8 bits, groups of one row)", num_bits=8, strategy="channel"),
    "NVFP4": _compressed(
        "nvfp4-pack-quantized",
        "NVFP4 (4 bits, groups of 16)",
        num_bits=4,
        type="float",
        strategy="tensor_group",
        group_size=16,
    ),
    "MXFP4": _compressed(
        "mxfp4-pack-quantized",
        "MXFP4 (4 bits, groups of 32)",
        num_bits=4,
        type="float",
        strategy="group",
        group_size=32,
        scale_dtype=torch.uint8,
    ),
    "MXFP8": _compressed(
        "mxfp8-quantized",
        "fp8 e4m3 (8 bits, groups of 32)",
        **FLOAT8,
        strategy="group",
        group_size=32,
        scale_dtype=torch.uint8,
    ),
}


def quantize_tensors(tensors: Mapping[str, Tensor], make: Maker, transposed: bool = False) -> tuple[Tensors, Tensors]:
    """A state dict with its linear layers quantized, where 32 divides inputs and 8 outputs; and their values."""
    stored: Tensors = {}
    values: Tensors = {}
    for name, tensor in tensors.items():
        module, _, last = name.rpartition(".")
        weight = tensor.float().mT.contiguous() if transposed and tensor.ndim == 2 else tensor.float()
        if last != "weight" or module.rpartition(".")[2] not in LINEARS or weight.shape[1] % 32 or weight.shape[0] % 8:
            stored[name] = tensor
            continue
        parts, value = make(weight)
        stored |= {f"{module}.{part}": content.contiguous() for part, content in parts.items()}
        values[name] = value.T if transposed else value
    return stored, values


def quantize_folder(source: Path, target: Path, scheme: Scheme) -> Tensors:
    """A checkpoint's folder with its weights quantized; returns what they stand for."""
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        if path.is_file() and path.suffix != ".safetensors":
            shutil.copy(path, target)
    stored, values = quantize_tensors(load_file(source / "model.safetensors"), scheme.make)
    save_file(stored, target / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    if scheme.config:
        config["quantization_config"] = dict(scheme.config)
    (target / "config.json").write_text(json.dumps(config))
    return values
