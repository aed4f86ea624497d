r"""Schemes of quantization, each as a round trip of a weight matrix: quantized, and back to floats.

GGUF types go through the `gguf` package. The others are written here from their published descriptions:

- nf4: blocks of 64 entries along a row, scaled by their largest size; the 16 levels are quantiles of a normal law, with
  0 and both ends among them (Dettmers et al. 2023, QLoRA, appendix E). Scales stay in float32 (no double quantization).
- int8: one scale per row, its largest size over 127 (Dettmers et al. 2022, LLM.int8(), without its outlier columns).
- fp8: e4m3 with one scale per 128 x 128 block, its largest size over 448, as DeepSeek V3 is published; and with one
  scale for the whole matrix.

A row is what a GGUF file calls a row: one output of a linear layer, over its inputs.
"""

from __future__ import annotations

from collections.abc import Callable

import gguf
import torch
from torch import Tensor

GGUF = ("F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "MXFP4")
"""The types that the package writes and whose groups divide the rows of small models; TQ1_0 and TQ2_0 need rows of 256.
"""
NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
"""The levels as QLoRA prints them."""
BLOCK, SQUARE, LARGEST_FP8 = 64, 128, 448.0
RoundTrip = Callable[[Tensor], Tensor]


def gguf_type(name: str) -> RoundTrip:
    """A type of GGUF files; refuses rows that its groups do not divide."""
    kind = gguf.GGMLQuantizationType[name]

    def round_trip(W: Tensor) -> Tensor:
        group = gguf.GGML_QUANT_SIZES[kind][0]
        if W.shape[-1] % group:
            raise ValueError(f"rows of {W.shape[-1]} do not fit groups of {group}")
        packed = gguf.quants.quantize(W.float().contiguous().numpy(), kind)
        return torch.from_numpy(gguf.quants.dequantize(packed, kind).copy()).to(W)

    return round_trip


def nf4_blocks(W: Tensor) -> Tensor:
    """Blocks of 64 entries, scaled by their largest size, each entry to the nearest level."""
    if W.numel() % BLOCK:
        raise ValueError(f"{W.numel()} entries do not fit blocks of {BLOCK}")
    blocks, levels = W.float().reshape(-1, BLOCK), torch.tensor(NF4)
    scale = blocks.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    found = torch.bucketize(blocks / scale, (levels[1:] + levels[:-1]) / 2)
    return (levels[found] * scale).reshape(W.shape).to(W)


def int8_rows(W: Tensor) -> Tensor:
    """Each row in steps of its largest size over 127."""
    step = W.float().abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / 127
    return ((W.float() / step).round() * step).to(W)


def fp8_squares(side: int | None) -> RoundTrip:
    """e4m3 with one scale for every square block, or for the whole matrix."""

    def round_trip(W: Tensor) -> Tensor:
        out = W.float().clone()
        rows, columns = (W.shape[0], W.shape[1]) if side is None else (side, side)
        for block in (part for strip in out.split(rows, 0) for part in strip.split(columns, 1)):
            scale = block.abs().amax().clamp(min=torch.finfo(torch.float32).tiny) / LARGEST_FP8
            block.copy_((block / scale).to(torch.float8_e4m3fn).float() * scale)
        return out.to(W)

    return round_trip


def _bits(name: str) -> float:
    group, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    return 8 * size / group


def dithered(W: Tensor) -> Tensor:
    """No rounding at all: uniform noise of the steps that Q4_0 has here, the control."""
    groups = W.float().reshape(-1, 32)
    steps = groups.abs().amax(1, keepdim=True) / 8
    noise = torch.rand(groups.shape, generator=torch.Generator().manual_seed(0)) - 0.5
    return (groups + steps * noise).reshape(W.shape).to(W)


SCHEMES: dict[str, tuple[float, RoundTrip]] = {
    **{name: (_bits(name), gguf_type(name)) for name in GGUF},
    "fp8, 128 x 128": (8 + 32 / SQUARE**2, fp8_squares(SQUARE)),
    "fp8, per tensor": (8.0, fp8_squares(None)),
    "int8, per row": (8.0, int8_rows),
    "nf4": (4 + 32 / BLOCK, nf4_blocks),
    "noise in steps of Q4_0": (32.0, dithered),
}
"""Bits per weight, scales included, and the round trip, by name."""


def rounded(model: torch.nn.Module, scheme: str) -> list[str]:
    """Round the linear layers of a model in place; the names of those whose rows do not fit, which stay as they are."""
    unfit = []
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or module is model.get_output_embeddings():
            continue
        try:
            module.weight.data = SCHEMES[scheme][1](module.weight.data)
        except ValueError:
            unfit.append(name)
    return unfit
