"""Which heads do what. `compute` is the lens, the rest its parts and tables."""

from headspan.lenses.detect.classes import detected_classes
from headspan.lenses.detect.identity import identity_chance_sd, identity_scores
from headspan.lenses.detect.lens import REPEATED, TEXT, compute, weights_only
from headspan.lenses.detect.tables import as_json, labelled_heads, table

__all__ = [
    "REPEATED",
    "TEXT",
    "as_json",
    "compute",
    "detected_classes",
    "identity_chance_sd",
    "identity_scores",
    "labelled_heads",
    "table",
    "weights_only",
]
