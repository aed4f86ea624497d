"""How many dimensions each head really reads and writes."""

from headspan.lenses.ranks.ranks import compute

__all__ = ["compute"]
