"""What every head attends to on a prompt. `compute` is the lens, the rest its parts and tables."""

from headspan.lenses.attention.lens import compute
from headspan.lenses.attention.tables import as_json, head_table, layer_table, table

__all__ = ["as_json", "compute", "head_table", "layer_table", "table"]
