"""Weights whose stored numbers are not the weights: quantized and packed formats, refused by name."""

from __future__ import annotations

from collections.abc import Mapping

from headspan.checkpoint.config import Config
from headspan.checkpoint.formats.tensors import READABLE, TensorInfo
from headspan.errors import UnsupportedModel

PACKED_SUFFIXES: Mapping[str, str] = {
    ".qweight": "GPTQ or AWQ",
    ".qzeros": "GPTQ or AWQ",
    ".SCB": "bitsandbytes 8-bit",
    ".weight.absmax": "bitsandbytes 4-bit",
    ".weight_packed": "compressed-tensors",
    ".weight_scale_inv": "fp8",
}
METHOD_NAMES: Mapping[str, str] = {"gptq": "GPTQ", "awq": "AWQ", "bitsandbytes": "bitsandbytes", "fp8": "fp8"}
REMEDY = "open the original checkpoint, or load this one with transformers, call model.dequantize() and save it"


def packed_format(config: Config, infos: Mapping[str, TensorInfo]) -> str | None:
    """The quantization method of a checkpoint, from its config or its tensor names, or None."""
    quantization = config.get("quantization_config")
    if isinstance(quantization, dict):
        method = str(quantization.get("quant_method", "an unnamed method"))
        return METHOD_NAMES.get(method, method)
    packed = next((name for name in infos if name.endswith(tuple(PACKED_SUFFIXES))), None)
    return None if packed is None else next(m for suffix, m in PACKED_SUFFIXES.items() if packed.endswith(suffix))


def refuse_packed(method: str) -> UnsupportedModel:
    return UnsupportedModel(f"the attention weights are quantized ({method}); {REMEDY}")


def check_readable(info: TensorInfo, method: str | None) -> None:
    """Refuse a tensor whose dtype shows that it is packed."""
    if info.dtype not in READABLE:
        packing = f"quantized weights ({method or 'method not stated'})"
        raise UnsupportedModel(f"tensor '{info.name}' is stored as {info.dtype}: {packing}; {REMEDY}")
