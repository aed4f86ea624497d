"""Quantized checkpoints that someone broke. Each case changes the tensors or the config of a small intact one."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.families.quantized import SCHEMES, Tensors, quantize_tensors

WIDTH = 64
CONFIG = {
    "model_type": "llama",
    "hidden_size": WIDTH,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 1,
    "intermediate_size": 96,
    "vocab_size": 40,
}
MODULE = "model.layers.0.self_attn.q_proj"
Change = Callable[[Tensors, dict[str, Any]], None]
"""What is done to the tensors and to the quantization part of the config."""


def plain() -> Tensors:
    generator = torch.Generator().manual_seed(0)
    rows = {"q": WIDTH, "k": WIDTH // 2, "v": WIDTH // 2, "o": WIDTH}
    return {
        f"model.layers.0.self_attn.{role}_proj.weight": torch.randn(n, WIDTH, generator=generator)
        for role, n in rows.items()
    }


def nf4(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
    """A weight in bitsandbytes' layout of four bits with nested largest values, of random codes."""
    generator = torch.Generator().manual_seed(1)
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": list(weight.shape)}
    state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.5}
    book, n_blocks = torch.linspace(-1, 1, 16), weight.numel() // 64
    parts = {
        "weight": torch.randint(0, 256, (weight.numel() // 2, 1), dtype=torch.uint8, generator=generator),
        "weight.absmax": torch.randint(0, 256, (n_blocks,), dtype=torch.uint8, generator=generator),
        "weight.quant_map": book,
        "weight.nested_absmax": torch.ones(-(-n_blocks // 256)),
        "weight.nested_quant_map": torch.linspace(-1, 1, 256),
        "weight.quant_state.bitsandbytes__nf4": text(json.dumps(state)),
    }
    return parts, weight


def int8(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
    largest = weight.abs().amax(1)
    return {"weight": (weight / largest[:, None] * 127).to(torch.int8), "SCB": largest}, weight


def text(content: str) -> torch.Tensor:
    return torch.tensor(list(content.encode()), dtype=torch.uint8)


BITSANDBYTES = {"nf4": nf4, "LLM.int8": int8}


def tensors_and_settings(scheme: str) -> tuple[Tensors, dict[str, Any]]:
    """An intact checkpoint's tensors, and the quantization part of its config."""
    if scheme in BITSANDBYTES:
        return quantize_tensors(plain(), BITSANDBYTES[scheme])[0], {"quant_method": "bitsandbytes"}
    return quantize_tensors(plain(), SCHEMES[scheme].make)[0], deepcopy(dict(SCHEMES[scheme].config))


def write(folder: Path, tensors: Tensors, settings: object) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    config = {**CONFIG, **({"quantization_config": settings} if settings else {})}
    (folder / "config.json").write_text(json.dumps(config))


def broken(scheme: str, change: Change) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        tensors, settings = tensors_and_settings(scheme)
        change(tensors, settings)
        write(folder, tensors, settings)

    return make


def entry(part: str, value: float) -> Change:
    """One number of a tensor replaced."""

    def change(tensors: Tensors, settings: dict[str, Any]) -> None:
        tensors[f"{MODULE}.{part}"].view(-1)[0] = value

    return change


def without(part: str) -> Change:
    return lambda tensors, settings: tensors.__delitem__(f"{MODULE}.{part}")


def replaced(part: str, tensor: torch.Tensor) -> Change:
    return lambda tensors, settings: tensors.__setitem__(f"{MODULE}.{part}", tensor)


def stated(**fields: object) -> Change:
    return lambda tensors, settings: settings.update(fields)


def state(**fields: object) -> Change:
    """Fields of bitsandbytes' JSON replaced."""
    own = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [WIDTH, WIDTH]}
    own |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.5}
    return replaced("weight.quant_state.bitsandbytes__nf4", text(json.dumps({**own, **fields})))


def groups_stated(**weights: object) -> Change:
    return lambda tensors, settings: settings["config_groups"]["group_0"]["weights"].update(weights)


STATE = "weight.quant_state.bitsandbytes__nf4"
NAN, INF = float("nan"), float("inf")


def other_method(method: str, part: str) -> Change:
    """Weights under names that only that method uses."""

    def change(tensors: Tensors, settings: dict[str, Any]) -> None:
        for name in list(tensors):
            tensors[name.rpartition(".")[0] + f".{part}"] = tensors.pop(name).to(torch.uint8)
        settings.clear()
        settings["quant_method"] = method

    return change


CASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "GPTQ scale NaN": (
        broken("GPTQ 4 bits", entry("scales", NAN)),
        r"q_proj\.scales' holds a scale that is NaN",
    ),
    "GPTQ scale Inf": (
        broken("GPTQ 4 bits", entry("scales", INF)),
        r"q_proj\.scales' holds a scale that is NaN",
    ),
    "GPTQ scale 0": (broken("GPTQ 4 bits", entry("scales", 0)), r"q_proj\.scales' holds a scale of 0"),
    "GPTQ without scales": (broken("GPTQ 4 bits", without("scales")), r"qweight' has no '.*q_proj\.scales'"),
    "GPTQ without zeros": (broken("GPTQ 4 bits", without("qzeros")), r"qweight' has no '.*q_proj\.qzeros'"),
    "GPTQ group that does not divide": (
        broken("GPTQ 4 bits", stated(group_size=24)),
        r"holds scales of 2 groups for 64 inputs; the config states groups of 24",
    ),
    "GPTQ other bits": (broken("GPTQ 4 bits", stated(bits=8)), r"config states 8 bits, but '.*qweight' is packed in 4"),
    "GPTQ five bits": (broken("GPTQ 4 bits", stated(bits=5)), r"config states 5 bits"),
    "GPTQ 10^9 bits": (broken("GPTQ 4 bits", stated(bits=10**9)), r"'bits' is 1000000000, not a whole number"),
    "GPTQ bits in words": (broken("GPTQ 4 bits", stated(bits="four")), r"'bits' is 'four', not a whole number"),
    "GPTQ unknown format": (
        broken("GPTQ 4 bits", stated(checkpoint_format="marlin")),
        r"packed in the format 'marlin', which headspan does not read",
    ),
    "GPTQ g_idx too large": (broken("GPTQ 4 bits", entry("g_idx", 2)), r"q_proj\.g_idx' names a group outside 0\.\.1"),
    "GPTQ g_idx negative": (broken("GPTQ 4 bits", entry("g_idx", -1)), r"names a group outside 0\.\.1"),
    "GPTQ g_idx too short": (
        broken("GPTQ 4 bits", replaced("g_idx", torch.zeros(40, dtype=torch.int32))),
        r"fit no packing of 2, 3, 4 or 8 bits",
    ),
    "GPTQ zeros of another shape": (
        broken("GPTQ 4 bits", replaced("qzeros", torch.zeros(3, 8, dtype=torch.int32))),
        r"q_proj\.qzeros' has shape \(3, 8\), but the quantized weight beside it needs \(2, 8\)",
    ),
    "GPTQ codes of another type": (
        broken("GPTQ 4 bits", replaced("qweight", torch.zeros(8, 64, dtype=torch.uint8))),
        r"qweight' is stored as uint8; a quantized weight needs int32 there",
    ),
    "GPTQ codes without axes": (
        broken("GPTQ 4 bits", replaced("qweight", torch.zeros((), dtype=torch.int32))),
        r"has shape \(\); quantized weights need a matrix there",
    ),
    "GPTQ and plain": (
        broken("GPTQ 4 bits", replaced("weight", torch.zeros(64, 64))),
        r"q_proj\.weight' is stored twice, quantized and plain",
    ),
    "AWQ scales of another shape": (
        broken("AWQ", replaced("scales", torch.ones(2, 63, dtype=torch.float16))),
        r"q_proj\.scales' has shape \(2, 63\)",
    ),
    "AWQ gemv with few scales": (
        broken("AWQ gemv", stated(group_size=4)),
        r"k_proj\.scales' has shape \(32, 8\), too few for groups of 4",
    ),
    "fp8 without scales": (broken("fp8 blocks", without("weight_scale_inv")), r"weight' has no '.*weight_scale_inv'"),
    "fp8 scale NaN": (broken("fp8 blocks", entry("weight_scale_inv", NAN)), r"holds a scale that is NaN or Inf"),
    "fp8 code NaN": (broken("fp8 blocks", entry("weight", NAN)), r"q_proj\.weight' holds NaN or Inf"),
    "fp8 blocks that do not divide": (
        broken("fp8 blocks", stated(weight_block_size=[40, 40])),
        r"weight_scale_inv' holds 3 scales for 64 numbers, which does not divide",
    ),
    "fp8 blocks of 0": (
        broken("fp8 blocks", stated(weight_block_size=[0, 128])),
        r"a block of weights is \[0, 128\], not two whole numbers above 0",
    ),
    "fp8 blocks that are text": (broken("fp8 blocks", stated(weight_block_size="128x128")), r"a block of weights is"),
    "fp8 scales in three axes": (
        broken("fp8 blocks", replaced("weight_scale_inv", torch.ones(3, 3, 3))),
        r"weight_scale_inv' has shape \(3, 3, 3\), which cannot be scales of \(64, 64\)",
    ),
    "fp8 scales of integers": (
        broken("fp8 blocks", replaced("weight_scale_inv", torch.ones(3, 3, dtype=torch.int64))),
        r"weight_scale_inv' is stored as int64",
    ),
    "int4 shape that is too large": (
        broken("int4 groups", replaced("weight_shape", torch.tensor([2**40, 64]))),
        r"weight_shape' does not hold the two sizes of a matrix",
    ),
    "int4 shape of another matrix": (
        broken("int4 groups", replaced("weight_shape", torch.tensor([32, 64]))),
        r"weight_packed' has shape \(64, 8\), which cannot hold a weight of \(32, 64\)",
    ),
    "int4 shape of three": (
        broken("int4 groups", replaced("weight_shape", torch.tensor([1, 64, 64]))),
        r"weight_shape' does not hold the two sizes",
    ),
    "int4 shape of a megabyte": (
        broken("int4 groups", replaced("weight_shape", torch.zeros(2**17, dtype=torch.int64))),
        r"weight_shape' is 1,048,576 bytes long; no real one exceeds 4,096",
    ),
    "int4 other bits": (
        broken("int4 groups", groups_stated(num_bits=3)),
        r"weight_packed' has 8 words in a row for 64 numbers, which fits 4 bits; the config states 3",
    ),
    "int4 without scales": (broken("int4 groups", without("weight_scale")), r"weight_packed' has no '.*weight_scale'"),
    "int4 without shape": (broken("int4 groups", without("weight_shape")), r"weight_packed' has no '.*weight_shape'"),
    "int4 zeros of another shape": (
        broken("int4 asymmetric", replaced("weight_zero_point", torch.zeros(8, 3, dtype=torch.int32))),
        r"weight_zero_point' has shape \(8, 3\)",
    ),
    "int4 group numbers out of range": (
        broken("int4 groups", replaced("weight_g_idx", torch.full((64,), 7))),
        r"weight_g_idx' names a group outside 0\.\.1",
    ),
    "int8 zero points out of range": (
        broken("int8 asymmetric", replaced("weight_zero_point", torch.full((64, 1), 300.0))),
        r"weight_zero_point' holds a zero point outside -128\.\.127",
    ),
    "NVFP4 without scales": (broken("NVFP4", without("weight_scale")), r"weight_packed' has no '.*weight_scale'"),
    "NVFP4 whole scale of 0": (broken("NVFP4", entry("weight_global_scale", 0)), r"global_scale' holds a scale of 0"),
    "MXFP4 scale NaN": (broken("MXFP4", entry("weight_scale", 255)), r"weight_scale' holds a scale that is NaN or Inf"),
    "MXFP4 scales of another shape": (
        broken("MXFP4", replaced("weight_scale", torch.ones(64, 3, dtype=torch.uint8))),
        r"weight_scale' has shape \(64, 3\), but the quantized weight beside it needs \(64, 2\)",
    ),
    "nf4 without largest values": (
        broken("nf4", without("weight.absmax")),
        r"weight' has no '.*weight\.absmax'",
    ),
    "nf4 without nested ones": (broken("nf4", without("weight.nested_absmax")), r"has no '.*weight\.nested_absmax'"),
    "nf4 without state": (broken("nf4", without(STATE)), r"q_proj\.weight' has no '.*quant_state\.bitsandbytes__nf4'"),
    "nf4 state that is no JSON": (broken("nf4", replaced(STATE, text("{,"))), r"bitsandbytes__nf4' cannot be read as"),
    "nf4 state that is a list": (broken("nf4", replaced(STATE, text("[]"))), r"holds a JSON list, not an object"),
    "nf4 state deeply nested": (broken("nf4", replaced(STATE, text("[" * 4000))), r"cannot be read as JSON"),
    "nf4 state of a megabyte": (
        broken("nf4", replaced(STATE, torch.zeros(2**20, dtype=torch.uint8))),
        r"bitsandbytes__nf4' is 1,048,576 bytes long; no real one exceeds 4,096",
    ),
    "nf4 state with an endless shape": (broken("nf4", state(shape=[10**30, 1])), r"'shape' is \[10+, 1\], not a few"),
    "nf4 state with a shape in words": (broken("nf4", state(shape="64x64")), r"'shape' is '64x64', not a few whole"),
    "nf4 state with truth values": (broken("nf4", state(shape=[True, 4096])), r"'shape' is \[True, 4096\]"),
    "nf4 state with another shape": (
        broken("nf4", state(shape=[64, 32])),
        r"holds 2,048 bytes, but its state says a weight of \(64, 32\)",
    ),
    "nf4 blocks of 0": (broken("nf4", state(blocksize=0)), r"'blocksize' is 0, not a whole number in 1\.\."),
    "nf4 blocks that are odd": (broken("nf4", state(blocksize=63)), r"in blocks of 63"),
    "nf4 offset NaN": (broken("nf4", state(nested_offset=NAN)), r"'nested_offset' is nan, which no model has"),
    "nf4 largest value NaN": (broken("nf4", entry("weight.nested_absmax", NAN)), r"absmax' holds a scale that is NaN"),
    "nf4 code book of 15": (
        broken("nf4", replaced("weight.quant_map", torch.ones(15))),
        r"quant_map' has shape \(15,\), but the quantized weight beside it needs \(16,\)",
    ),
    "int8 rows": (broken("LLM.int8", replaced("SCB", torch.ones(63))), r"q_proj\.SCB' has shape \(63,\)"),
    "int8 largest value Inf": (broken("LLM.int8", entry("SCB", INF)), r"q_proj\.SCB' holds a scale that is NaN or Inf"),
    "HQQ": (broken("nf4", other_method("hqq", "W_q")), r"weights are quantized \(HQQ\), .* open the original"),
    "torchao": (
        broken("nf4", other_method("torchao", "weight_qdata")),
        r"weights are quantized \(torchao\), which headspan does not read; open the original",
    ),
    "auto-round": (
        broken("GPTQ 4 bits", stated(quant_method="auto-round")),
        r"qweight' is packed by 'auto-round', which headspan does not read; open the original",
    ),
    "int8 with inverse scales": (
        broken("int8 channel", replaced("weight_scale_inv", torch.ones(64, 1))),
        r"q_proj\.weight' is stored as int8: quantized weights \(compressed-tensors\)",
    ),
    "settings with text for a group": (broken("GPTQ 4 bits", stated(group_size=[])), r"'group_size' is \[\], not a"),
}
