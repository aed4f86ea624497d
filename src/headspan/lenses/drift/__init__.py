"""What moved between two checkpoints of one shape. `compute` is the lens, the rest its parts and tables."""

from headspan.lenses.drift.lens import compute
from headspan.lenses.drift.tables import as_json, role_view, table

__all__ = ["as_json", "compute", "role_view", "table"]
