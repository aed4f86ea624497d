"""What a model does when its weights are changed. `compute` is the lens, the rest its parts and tables."""

from headspan.lenses.intervene.lens import compute
from headspan.lenses.intervene.settings import (
    UNMODIFIED,
    Setting,
    alpha_grid,
    default_settings,
    parsed_grid,
    parsed_removal,
    setting,
)
from headspan.lenses.intervene.tables import as_json, layer_table, setting_table, table

__all__ = [
    "UNMODIFIED",
    "Setting",
    "alpha_grid",
    "as_json",
    "compute",
    "default_settings",
    "layer_table",
    "parsed_grid",
    "parsed_removal",
    "setting",
    "setting_table",
    "table",
]
