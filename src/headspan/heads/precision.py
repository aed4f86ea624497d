"""Which precision a lens computes in unless it is told: double up to a width, single above it.

Double precision costs twice the time and memory of single. Above FLOAT64_WIDTH that is the difference between a laptop
doing it or not, while kernels and angles lose nothing that matters: a lens that switches measures its error on a sample
against double precision and records it. Singular values through Gram matrices need the digits and stay in double.
"""

from __future__ import annotations

import torch

from headspan.heads.heads import Heads

FLOAT64_WIDTH = 2048
"""Up to this d_model everything is computed in float64 unless told otherwise."""


def computing_dtype(heads: Heads) -> torch.dtype:
    """float64 up to FLOAT64_WIDTH, float32 above."""
    return torch.float64 if heads.d_model <= FLOAT64_WIDTH else torch.float32
