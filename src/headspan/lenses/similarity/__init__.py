"""Heads as subspaces: query against key, head against head. `compute` is the lens, the rest its parts and tables."""

from headspan.lenses.similarity.lens import MANY_HEADS, compute
from headspan.lenses.similarity.tables import as_json, closest_pairs, table

__all__ = ["MANY_HEADS", "as_json", "closest_pairs", "compute", "table"]
