"""Positions and tokens: two tables and the matrices that read and write beside them. `compute` is the lens."""

from headspan.lenses.positions.lens import compute
from headspan.lenses.positions.tables import as_json, table

__all__ = ["as_json", "compute", "table"]
