"""The distance of Kolmogorov and Smirnov between draws and a law."""

from __future__ import annotations

import torch
from torch import Tensor


def ks_distance(share: Tensor) -> float:
    """Largest gap between the steps of draws and their law, given F(draw) of all; in [0, 1], 0 for a perfect fit."""
    ordered = share.flatten().sort().values
    steps = torch.arange(len(ordered) + 1, dtype=torch.float64) / len(ordered)
    return float(torch.maximum((ordered - steps[:-1]).max(), (steps[1:] - ordered).max()))
