"""The Gaussian picture of a model's logits: `compute` predicts and measures, `table` and `as_json` tell."""

from headspan.lenses.gaussian.lens import compute
from headspan.lenses.gaussian.pairs import PAIRS
from headspan.lenses.gaussian.tables import as_json, table

__all__ = ["PAIRS", "as_json", "compute", "table"]
