"""Two checkpoints side by side: drift, spectra, wiring. `compute` does all of it, the rest are its parts and tables."""

from headspan.lenses.compare.lens import compute
from headspan.lenses.compare.tables import as_json, edge_changes, spectra_table, table, wiring_pairings

__all__ = ["as_json", "compute", "edge_changes", "spectra_table", "table", "wiring_pairings"]
