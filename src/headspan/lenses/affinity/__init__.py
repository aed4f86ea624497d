"""Which heads can talk to which. `compute` is the lens; graphs, hubs, classes and tables are made from its result."""

from headspan.lenses.affinity.lens import FLOAT64_WIDTH, METRICS, NULLS, VARIABLES, compute

__all__ = ["FLOAT64_WIDTH", "METRICS", "NULLS", "VARIABLES", "compute"]
