"""Checkpoints without files: tensors of any shape, made from a seed when they are asked for."""

from headspan.checkpoint.synthetic.opening import open_synthetic, synthetic
from headspan.checkpoint.synthetic.planting import Planted

__all__ = ["Planted", "open_synthetic", "synthetic"]
