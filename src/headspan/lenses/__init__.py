"""Heads to labelled results, each with its chance baseline. One lens, one file."""

from headspan.lenses.registry import LENSES, Lens, lens, obstacles

__all__ = ["LENSES", "Lens", "lens", "obstacles"]
