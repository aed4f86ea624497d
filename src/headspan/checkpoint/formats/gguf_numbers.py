"""Numbers out of GGUF's blocks, by the `gguf` package, and how much the packing has blurred them.

A number x is stored as one of the points that its group's scales allow. Numbers spread evenly between neighboring
points lose, on average, the square of a cell's width over 12. Three kinds of types differ in what a cell is:

- even steps: the width is the step, which is what unpacking codes of 1 gives more than unpacking codes of 0;
- a book of uneven points: the cell around the point, times the scale, which is unpacking one code over its point;
- books of vectors (IQ1, IQ2, IQ3): points of four or eight numbers at once. Their loss is that of normal numbers under
  the book at its best scale, `VECTOR_LOSS`; `tests` draw them again.

Only the package knows how a block is laid out, but for where its codes are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from headspan.checkpoint.formats.gguf_types import BlockType
from headspan.checkpoint.formats.tensors import TensorInfo
from headspan.errors import CheckpointError, HeadspanError, UnsupportedModel

if TYPE_CHECKING:
    import torch

    Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]

NUMBERS_AT_ONCE = 2**17
"""Unpacking takes several times the memory of its result, which stays in the cache for so many numbers at a time."""
SAMPLED_BLOCKS = 4096
NUMPY_NAMES = {"bfloat16": "int16"}


@dataclass(frozen=True)
class Codes:
    """Where the codes of a block are, and a byte that sets all codes in `low` (a part of them) to 1."""

    first: int
    last: int
    low: tuple[int, int]
    ones: int


def _codes(first: int, last: int, ones: int, low: tuple[int, int] | None = None) -> Codes:
    return Codes(first, last, (first, last) if low is None else low, ones)


EVEN: Mapping[str, Codes] = {
    "Q4_0": _codes(2, 18, 0x11),
    "Q4_1": _codes(4, 20, 0x11),
    "Q5_0": _codes(2, 22, 0x11, (6, 22)),
    "Q5_1": _codes(4, 24, 0x11, (8, 24)),
    "Q8_0": _codes(2, 34, 0x01),
    "Q2_K": _codes(16, 80, 0x55),
    "Q3_K": _codes(0, 96, 0x55, (32, 96)),
    "Q4_K": _codes(16, 144, 0x11),
    "Q5_K": _codes(16, 176, 0x11, (48, 176)),
    "Q6_K": _codes(0, 192, 0x11, (0, 128)),
    "TQ2_0": _codes(0, 64, 0x55),
}
FP4 = (-6.0, -4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
TRITS = (-1.0, 0.0, 1.0)
BOOKS: Mapping[str, tuple[Codes, tuple[float, ...], float]] = {
    "IQ4_NL": (_codes(2, 18, 0x00), IQ4, -127.0),
    "IQ4_XS": (_codes(8, 136, 0x00), IQ4, -127.0),
    "MXFP4": (_codes(1, 17, 0x77), FP4, 6.0),
    "NVFP4": (_codes(4, 36, 0x77), FP4, 6.0),
    "TQ1_0": (_codes(0, 52, 0x00), TRITS, -1.0),
}
"""Codes, the points they may mean, and the point that the byte `ones` means."""
VECTOR_LOSS: Mapping[str, float] = {
    "IQ1_S": 0.445,
    "IQ1_M": 0.422,
    "IQ2_XXS": 0.326,
    "IQ2_XS": 0.283,
    "IQ2_S": 0.237,
    "IQ3_XXS": 0.177,
    "IQ3_S": 0.129,
}


def unpacked(raw: Bytes, info: TensorInfo, kind: BlockType) -> torch.Tensor:
    """The tensor that the bytes of `raw` hold."""
    import torch

    if kind.packing is None:
        own = np.frombuffer(raw, dtype=NUMPY_NAMES.get(kind.dtype, kind.dtype)).copy()
        return torch.from_numpy(own).view(getattr(torch, kind.dtype)).reshape(info.shape)
    rows = raw.reshape(-1, info.shape[-1] // kind.numbers * kind.n_bytes)
    found = np.empty((len(rows), info.shape[-1]), dtype=np.float32)
    step = max(1, NUMBERS_AT_ONCE // max(info.shape[-1], 1))
    for start in range(0, len(rows), step):
        found[start : start + step] = _dequantized(rows[start : start + step], kind)
    return torch.from_numpy(found).reshape(info.shape)


def block_roundoff(raw: Bytes, kind: BlockType) -> float:
    """rms error of a number over the rms of the numbers, from up to 4096 blocks spread over the tensor."""
    if kind.packing is None or len(raw) == 0:
        return 0.0
    if kind.name in VECTOR_LOSS:
        return VECTOR_LOSS[kind.name]
    blocks = raw.reshape(-1, kind.n_bytes)
    chosen = np.unique(np.linspace(0, len(blocks) - 1, SAMPLED_BLOCKS).astype(np.int64))
    blocks = np.ascontiguousarray(blocks[chosen])
    x = _dequantized(blocks, kind).astype(np.float64)
    error = _even_error(blocks, kind) if kind.name in EVEN else _book_error(blocks, x, kind)
    with np.errstate(all="ignore"):
        ratio = sqrt(error) / sqrt(float(np.mean(x**2))) if np.any(x) else 0.0
    # Scales that are not numbers are refused when the tensor is taken; they have no roundoff.
    return ratio if isfinite(ratio) else 0.0


def _even_error(blocks: np.ndarray[Any, Any], kind: BlockType) -> float:
    codes = EVEN[kind.name]
    zeros = blocks.copy()
    zeros[:, codes.first : codes.last] = 0
    ones = zeros.copy()
    ones[:, slice(*codes.low)] = codes.ones
    step = _dequantized(ones, kind).astype(np.float64) - _dequantized(zeros, kind)
    return float(np.mean(step**2)) / 12


def _book_error(blocks: np.ndarray[Any, Any], x: np.ndarray[Any, Any], kind: BlockType) -> float:
    if kind.name not in BOOKS:
        raise _not_unpacked(kind)
    codes, book, meant = BOOKS[kind.name]
    same = blocks.copy()
    same[:, codes.first : codes.last] = codes.ones
    scale = _dequantized(same, kind).astype(np.float64) / meant
    points = np.array(book, dtype=np.float64)
    halves = np.diff(points) / 2
    below, above = np.r_[halves[0], halves], np.r_[halves, halves[-1]]
    losses = (below**3 + above**3) / (3 * (below + above))
    with np.errstate(all="ignore"):
        place = np.where(scale == 0, 0.0, x / scale)
    # Which point each number is: the number of midpoints below it.
    which = np.searchsorted((points[1:] + points[:-1]) / 2, place)
    return float(np.mean(losses[which] * scale**2))


def _dequantized(blocks: np.ndarray[Any, Any], kind: BlockType) -> np.ndarray[Any, np.dtype[np.float32]]:
    if blocks.size == 0:
        return np.empty((len(blocks), 0), dtype=np.float32)
    try:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError as problem:
        raise HeadspanError(f"unpacking GGUF weights needs gguf: pip install 'headspan[gguf]' ({problem})") from problem
    try:
        with np.errstate(all="ignore"):
            # As one row: the package unpacks sixteen rows at a time, which for short rows is all overhead.
            row = dequantize(blocks.reshape(1, -1), GGMLQuantizationType[kind.name])
            found: np.ndarray[Any, np.dtype[np.float32]] = row.reshape(len(blocks), -1)
    except (KeyError, NotImplementedError) as problem:
        raise _not_unpacked(kind) from problem
    except (ValueError, IndexError) as problem:
        raise CheckpointError(f"blocks of type {kind.name} cannot be unpacked: {problem}") from problem
    return found


def _not_unpacked(kind: BlockType) -> UnsupportedModel:
    return UnsupportedModel(
        f"weights of the GGUF type {kind.name} are not unpacked by the installed gguf package; upgrade it "
        "(pip install -U gguf), or open the original checkpoint"
    )
