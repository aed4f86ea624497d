"""Blocks of every GGUF type: what is read is what the package unpacks, and the error is that of the rounding."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize, quantize

from headspan.checkpoint.formats import gguf_numbers
from headspan.checkpoint.formats.gguf_header import TYPES
from headspan.checkpoint.formats.gguf_numbers import BOOKS, EVEN, VECTOR_LOSS, block_roundoff, unpacked
from headspan.checkpoint.formats.tensors import TensorInfo
from headspan.errors import UnsupportedModel

KINDS = {kind.name: kind for kind in TYPES.values()}
PACKED = sorted(name for name, kind in KINDS.items() if kind.packing is not None and name != "Q1_0")
HALVES = {
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ1_S": (0,), "IQ2_XXS": (0,),
    "IQ2_XS": (0,), "IQ2_S": (0,), "IQ3_XXS": (0,), "IQ3_S": (0,), "IQ4_NL": (0,), "IQ4_XS": (0,), "TQ1_0": (52,),
    "TQ2_0": (64,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
}  # fmt: skip
"""Where the half-precision scales of a block begin."""


def random_blocks(name: str, n_rows: int, blocks_in_row: int) -> np.ndarray:
    """Random codes with scales of sensible sizes."""
    generator, kind = np.random.default_rng(0), KINDS[name]
    blocks = generator.integers(0, 256, (n_rows * blocks_in_row, kind.n_bytes), dtype=np.uint8)
    for at in HALVES.get(name, ()):
        scales = generator.uniform(0.5, 1.5, len(blocks)).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    if name == "IQ1_M":
        # A scale of half precision in four pieces, the high bits of four 16-bit words.
        words = blocks[:, 48:56].copy().view(np.uint16)
        scale = np.uint16(np.float16(1.0).view(np.uint16))
        for index in range(4):
            words[:, index] = (words[:, index] & 0x0FFF) | np.uint16(((int(scale) >> (4 * index)) & 0xF) << 12)
        blocks[:, 48:56] = words.view(np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = generator.integers(125, 130, len(blocks))
    if name == "NVFP4":
        blocks[:, :4] = generator.integers(0x30, 0x40, (len(blocks), 4))
    return blocks.reshape(n_rows, -1)


def test_every_packed_type_has_a_rule_for_its_error() -> None:
    assert sorted({*EVEN, *BOOKS, *VECTOR_LOSS}) == PACKED


def test_sizes_of_blocks_are_those_of_the_package() -> None:
    for number, kind in TYPES.items():
        known = gguf.GGMLQuantizationType(number)
        assert known.name == kind.name
        assert gguf.GGML_QUANT_SIZES[known] == (kind.numbers, kind.n_bytes)


@pytest.mark.parametrize("name", PACKED)
def test_blocks_are_unpacked_as_the_package_does_it_row_by_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, kind = random_blocks(name, 6, 2), KINDS[name]
    expected = dequantize(raw, gguf.GGMLQuantizationType[name])
    assert np.isfinite(expected).all()
    assert np.abs(expected).max() > 0
    # Two rows at once: pieces must join to the whole.
    monkeypatch.setattr(gguf_numbers, "NUMBERS_AT_ONCE", 4 * kind.numbers)
    info = TensorInfo("w", "float32", (3, 2, 2 * kind.numbers), "file", kind.packing)
    found = unpacked(raw.reshape(-1), info, kind)
    assert found.dtype == torch.float32
    assert np.array_equal(found.numpy(), expected.reshape(info.shape))


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "F64", "I32"])
def test_plain_numbers_are_read_as_they_are(name: str) -> None:
    kind = KINDS[name]
    original = torch.arange(6).to(getattr(torch, kind.dtype)).reshape(2, 3)
    raw = np.frombuffer(bytes(original.view(torch.uint8).numpy().tobytes()), np.uint8)
    info = TensorInfo("w", kind.dtype, (2, 3), "file")
    assert torch.equal(unpacked(raw, info, kind), original)
    assert block_roundoff(raw, kind) == 0.0


def actual(x: np.ndarray, raw: np.ndarray, name: str) -> float:
    error = dequantize(raw, gguf.GGMLQuantizationType[name]) - x
    return float(np.sqrt(np.mean(error**2) / np.mean(x**2)))


@pytest.mark.parametrize("name", ["Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1", "MXFP4"])
def test_the_error_of_rounding_is_the_one_that_is_named(name: str) -> None:
    x = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    raw = quantize(x, gguf.GGMLQuantizationType[name])
    assert block_roundoff(raw.reshape(-1), KINDS[name]) == pytest.approx(actual(x, raw, name), rel=0.12)


def near(raw: np.ndarray, name: str, book: tuple[float, ...] | None) -> tuple[np.ndarray, float]:
    """Numbers spread evenly over the cells of the points that `raw` holds: whoever rounds them gets `raw` again."""
    kind, generator = KINDS[name], np.random.default_rng(1)
    codes = EVEN[name] if book is None else BOOKS[name][0]
    blocks = raw.reshape(-1, kind.n_bytes)
    x = dequantize(blocks, gguf.GGMLQuantizationType[name]).astype(np.float64)
    other = blocks.copy()
    other[:, codes.first : codes.last] = 0
    if book is None:
        zeros = dequantize(other, gguf.GGMLQuantizationType[name])
        other[:, slice(*codes.low)] = codes.ones
        step = np.abs(dequantize(other, gguf.GGMLQuantizationType[name]) - zeros)
        return x + step * generator.uniform(-0.5, 0.5, x.shape), 0.03
    other[:, codes.first : codes.last] = codes.ones
    scale = dequantize(other, gguf.GGMLQuantizationType[name]) / BOOKS[name][2]
    points, scale = np.array(book), np.where(scale == 0, 1e-30, scale)
    which = np.abs((x / scale)[..., None] - points).argmin(-1)
    middles = (points[1:] + points[:-1]) / 2
    edges = np.r_[2 * points[0] - middles[0], middles, 2 * points[-1] - middles[-1]]
    return scale * generator.uniform(edges[which], edges[which + 1]), 0.03


@pytest.mark.parametrize("name", [*EVEN, *BOOKS])
def test_even_noise_within_the_cells_has_the_error_that_is_named(name: str) -> None:
    raw = random_blocks(name, 40, 4 * 256 // KINDS[name].numbers)
    x, slack = near(raw, name, BOOKS[name][1] if name in BOOKS else None)
    read = dequantize(raw.reshape(-1, KINDS[name].n_bytes), gguf.GGMLQuantizationType[name])
    off = float(np.sqrt(np.mean((read - x) ** 2) / np.mean(read.astype(np.float64) ** 2)))
    assert block_roundoff(raw.reshape(-1), KINDS[name]) == pytest.approx(off, rel=slack)


def drawn_loss(name: str, group: int, shared_signs: bool) -> float:
    """Normal numbers under a book of vectors, each group at its best scale: rms error over rms."""
    kind: Any = gguf.quants._type_traits[gguf.GGMLQuantizationType[name]]
    kind.init_grid()
    book = kind.grid.reshape(kind.grid_shape).astype(np.float64)
    x = np.random.default_rng(0).standard_normal((400, group))
    best = np.full(len(x), np.inf)
    for scale in np.geomspace(0.35, 2.2, 32) / np.sqrt(np.mean(book**2)):
        sizes = np.abs(x / scale).reshape(-1, 8)
        if shared_signs:
            # Seven bits for eight signs: where their product is wrong, the smallest number gets the wrong one.
            odd = (x.reshape(-1, 8) < 0).sum(1) % 2 == 1
            sizes[odd, sizes.argmin(1)[odd]] *= -1
        sizes = sizes.reshape(-1, book.shape[1])
        nearest = book[np.argmin((book**2).sum(1) - 2 * sizes @ book.T, axis=1)]
        best = np.minimum(best, ((sizes - nearest) ** 2).reshape(len(x), -1).sum(1) * scale**2)
    return float(np.sqrt(best.sum() / (x**2).sum()))


@pytest.mark.parametrize(
    ("name", "group", "shared_signs"),
    [("IQ2_XXS", 32, True), ("IQ2_XS", 16, True), ("IQ2_S", 16, False), ("IQ3_XXS", 32, True), ("IQ3_S", 32, False)],
)
def test_the_loss_of_a_book_of_vectors_is_that_of_normal_numbers(name: str, group: int, shared_signs: bool) -> None:
    assert VECTOR_LOSS[name] == pytest.approx(drawn_loss(name, group, shared_signs), rel=0.04)


def test_a_tensor_of_zeros_has_no_error() -> None:
    assert block_roundoff(np.zeros(34 * 4, np.uint8), KINDS["Q8_0"]) == 0.0


def test_a_type_that_the_package_does_not_unpack_is_named() -> None:
    kind = KINDS["Q1_0"]
    info = TensorInfo("w", "float32", (1, 128), "file", kind.packing)
    with pytest.raises(UnsupportedModel, match="the GGUF type Q1_0 are not unpacked by the installed gguf package"):
        unpacked(np.zeros(18, np.uint8), info, kind)
