"""The spectrum of every weight matrix beside random ones. `compute` is the lens, the rest its parts and tables."""

from headspan.lenses.spectra.histograms import histogram
from headspan.lenses.spectra.kinds import KINDS
from headspan.lenses.spectra.lens import along_steps, compute
from headspan.lenses.spectra.tables import alignment_table, as_json, kind_means, kinds_in, layer_table, table

__all__ = [
    "KINDS",
    "alignment_table",
    "along_steps",
    "as_json",
    "compute",
    "histogram",
    "kind_means",
    "kinds_in",
    "layer_table",
    "table",
]
