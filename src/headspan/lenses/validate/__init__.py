"""Whether geometry predicts behaviour. `compute` is the lens, the rest its parts and tables."""

from headspan.lenses.validate.lens import compute
from headspan.lenses.validate.tables import as_json, distance_table, invariance_table, pairs, ranking, table

__all__ = ["as_json", "compute", "distance_table", "invariance_table", "pairs", "ranking", "table"]
