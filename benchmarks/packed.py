"""Quantized weights: what unpacking one costs against unpacking it by plain torch, and the peak memory of all heads.

- A matrix of 4096 x 4096 in each layout, against the shortest torch that does the same to the whole matrix at once;
  for bitsandbytes and compressed-tensors, against the library.
- All heads of four layers of Mistral 7B's shape in GPTQ, layer by layer: peak memory, against importing torch.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.measure import process_cost, ratio
from headspan.checkpoint.config import Config
from headspan.checkpoint.formats.packed import unpack_weights
from headspan.checkpoint.formats.tensors import InMemory

SIZE, GROUP = 4096, 128
N_LAYERS = 4
SHIFTS = torch.arange(0, 32, 4, dtype=torch.int32)


def main() -> None:
    """Print every figure with its target."""
    torch.set_num_threads(1)
    for name, make in LAYOUTS.items():
        tensors, settings, plain = make()
        store = unpack_weights(InMemory.of(tensors), Config({"model_type": "llama", **settings}), transposed=False)

        def ours(store: Any = store) -> Tensor:
            return store.read(["a.weight"])["a.weight"]

        assert torch.allclose(ours(), plain().float(), rtol=1e-2, atol=1e-3), name
        took, plain_took, times = ratio(ours, plain, rounds=3)
        speed = f"{SIZE**2 / took / 1e6:.0f} M weights/s"
        print(f"{name}: {took * 1e3:.0f} / {plain_took * 1e3:.0f} ms = {times:.2f} (target <= 2), {speed}")
    _peak()


def _words(rows: int, columns: int) -> Tensor:
    return torch.randint(-(2**31), 2**31 - 1, (rows, columns), dtype=torch.int32)


def _gptq() -> tuple[dict[str, Tensor], dict[str, Any], Callable[[], Tensor]]:
    codes, zeros = _words(SIZE // 8, SIZE), _words(SIZE // GROUP, SIZE // 8) & 0x77777777
    scales, order = torch.rand(SIZE // GROUP, SIZE).half() + 0.5, torch.arange(SIZE, dtype=torch.int32) // GROUP

    def plain() -> Tensor:
        weight = ((codes[:, None, :] >> SHIFTS[None, :, None]) & 15).reshape(SIZE, SIZE)
        zero = (((zeros[:, :, None] >> SHIFTS) & 15).reshape(-1, SIZE) + 1)[order.long()]
        return ((weight - zero) * scales.float()[order.long()]).T

    tensors = {"a.qweight": codes, "a.qzeros": zeros, "a.scales": scales, "a.g_idx": order}
    return tensors, {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": GROUP}}, plain


def _awq() -> tuple[dict[str, Tensor], dict[str, Any], Callable[[], Tensor]]:
    codes, zeros = _words(SIZE, SIZE // 8), _words(SIZE // GROUP, SIZE // 8)
    scales, order = torch.rand(SIZE // GROUP, SIZE).half() + 0.5, [0, 4, 1, 5, 2, 6, 3, 7]

    def numbers(packed: Tensor) -> Tensor:
        return ((packed[:, :, None] >> SHIFTS) & 15)[:, :, order].reshape(packed.shape[0], -1)

    def plain() -> Tensor:
        groups = torch.arange(SIZE) // GROUP
        return ((numbers(codes) - numbers(zeros)[groups]) * scales.float()[groups]).T

    return {"a.qweight": codes, "a.qzeros": zeros, "a.scales": scales}, {}, plain


def _fp8() -> tuple[dict[str, Tensor], dict[str, Any], Callable[[], Tensor]]:
    codes, scales = torch.randn(SIZE, SIZE).to(torch.float8_e4m3fn), torch.rand(SIZE // GROUP, SIZE // GROUP) + 0.5

    def plain() -> Tensor:
        return codes.float() * scales.repeat_interleave(GROUP, 0).repeat_interleave(GROUP, 1)

    return {"a.weight": codes, "a.weight_scale_inv": scales}, {}, plain


def _int4() -> tuple[dict[str, Tensor], dict[str, Any], Callable[[], Tensor]]:
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    args = QuantizationArgs(num_bits=4, strategy="group", group_size=GROUP)
    library: Any = BaseCompressor.get_value_from_registry("pack-quantized")
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    module = {
        "weight_packed": _words(SIZE, SIZE // 8),
        "weight_scale": torch.rand(SIZE, SIZE // GROUP) + 0.5,
        "weight_shape": torch.tensor([SIZE, SIZE]),
    }
    tensors = {f"a.{name}": tensor for name, tensor in module.items()}
    return tensors, {}, lambda: library.decompress(dict(module), scheme)["weight"]


def _nf4() -> tuple[dict[str, Tensor], dict[str, Any], Callable[[], Tensor]]:
    import bitsandbytes as library

    options = {"quant_type": "nf4", "compress_statistics": True}
    layer = library.nn.Linear4bit(SIZE, SIZE, bias=False, **options)
    layer.weight = library.nn.Params4bit(torch.randn(SIZE, SIZE), requires_grad=False, **options).to("cpu")
    tensors = {f"a.{name}": tensor for name, tensor in layer.state_dict().items()}
    return tensors, {}, lambda: library.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)


def _mxfp4() -> tuple[dict[str, Tensor], dict[str, Any], Callable[[], Tensor]]:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    codes = torch.randint(0, 256, (1, SIZE, SIZE // 32, 16), dtype=torch.uint8)
    scales = torch.randint(120, 130, (1, SIZE, SIZE // 32), dtype=torch.uint8)
    return (
        {"a.weight_blocks": codes, "a.weight_scales": scales},
        {},
        lambda: convert_moe_packed_tensors(codes, scales, dtype=torch.float32),
    )


LAYOUTS = {
    "GPTQ 4 bits (plain torch)": _gptq,
    "AWQ (plain torch)": _awq,
    "fp8 blocks (plain torch)": _fp8,
    "int4 groups (compressed-tensors)": _int4,
    "nf4 nested (bitsandbytes)": _nf4,
    "MXFP4 (transformers)": _mxfp4,
}


def _peak() -> None:
    config = {
        "model_type": "mistral",
        "hidden_size": SIZE,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": N_LAYERS,
        "intermediate_size": 14336,
        "vocab_size": 32000,
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": GROUP},
    }
    with tempfile.TemporaryDirectory() as name:
        tensors = {}
        for layer in range(N_LAYERS):
            for role, n_out in {"q": SIZE, "k": SIZE // 4, "v": SIZE // 4, "o": SIZE}.items():
                stem = f"model.layers.{layer}.self_attn.{role}_proj"
                tensors[f"{stem}.qweight"] = _words(SIZE // 8, n_out)
                tensors[f"{stem}.qzeros"] = _words(SIZE // GROUP, n_out // 8)
                tensors[f"{stem}.scales"] = torch.rand(SIZE // GROUP, n_out).half() + 0.5
        save_file(tensors, Path(name) / "model.safetensors")
        (Path(name) / "config.json").write_text(json.dumps(config))
        read = f"heads = headspan.open({name!r}).heads()\nfor block in heads.blocks(memory='400MB'): pass"
        took, peak = process_cost(f"import headspan\n{read}", rounds=1)
        _, before = process_cost("import headspan, torch", rounds=1)
    above = (peak - before) / 1e9
    print(f"all heads of {N_LAYERS} layers of 7B in GPTQ: {took:.1f} s, {above:.2f} GB above torch itself (target < 1)")


if __name__ == "__main__":
    main()
