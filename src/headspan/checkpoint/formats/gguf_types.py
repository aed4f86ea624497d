"""How GGUF stores numbers: the types of its tensors, by the number that stands for them in a file.

A plain type is a number after another. Any other packs blocks of a row together with the scales that the numbers of a
group share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2

from headspan.checkpoint.formats.tensors import Packing


@dataclass(frozen=True)
class BlockType:
    """One type: the numbers and bytes of a block, and how the numbers read (`dtype`) were packed, if they were."""

    name: str
    numbers: int
    n_bytes: int
    dtype: str = "float32"
    packing: Packing | None = None


def _plain(name: str, n_bytes: int, dtype: str) -> BlockType:
    return BlockType(name, 1, n_bytes, dtype)


def _packed(name: str, numbers: int, n_bytes: int, bits: float, group: int) -> BlockType:
    return BlockType(name, numbers, n_bytes, packing=Packing(name, bits, str(group)))


TERNARY = round(log2(3), 2)
TYPES: Mapping[int, BlockType] = {
    0: _plain("F32", 4, "float32"),
    1: _plain("F16", 2, "float16"),
    2: _packed("Q4_0", 32, 18, 4, 32),
    3: _packed("Q4_1", 32, 20, 4, 32),
    6: _packed("Q5_0", 32, 22, 5, 32),
    7: _packed("Q5_1", 32, 24, 5, 32),
    8: _packed("Q8_0", 32, 34, 8, 32),
    10: _packed("Q2_K", 256, 84, 2, 16),
    11: _packed("Q3_K", 256, 110, 3, 16),
    12: _packed("Q4_K", 256, 144, 4, 32),
    13: _packed("Q5_K", 256, 176, 5, 32),
    14: _packed("Q6_K", 256, 210, 6, 16),
    16: _packed("IQ2_XXS", 256, 66, 2, 32),
    17: _packed("IQ2_XS", 256, 74, 2.125, 16),
    18: _packed("IQ3_XXS", 256, 98, 3, 32),
    19: _packed("IQ1_S", 256, 50, 1.5, 32),
    20: _packed("IQ4_NL", 32, 18, 4, 32),
    21: _packed("IQ3_S", 256, 110, 3.25, 32),
    22: _packed("IQ2_S", 256, 82, 2.25, 16),
    23: _packed("IQ4_XS", 256, 136, 4, 32),
    24: _plain("I8", 1, "int8"),
    25: _plain("I16", 2, "int16"),
    26: _plain("I32", 4, "int32"),
    27: _plain("I64", 8, "int64"),
    28: _plain("F64", 8, "float64"),
    29: _packed("IQ1_M", 256, 56, 1.5, 16),
    30: _plain("BF16", 2, "bfloat16"),
    34: _packed("TQ1_0", 256, 54, TERNARY, 256),
    35: _packed("TQ2_0", 256, 66, TERNARY, 256),
    39: _packed("MXFP4", 32, 17, 4, 32),
    40: _packed("NVFP4", 64, 36, 4, 16),
    41: _packed("Q1_0", 128, 18, 1, 128),
}
"""Types that files hold; those that ggml only computes with, and those it has given up, are not among them."""
