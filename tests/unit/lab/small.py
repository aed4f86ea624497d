"""Recipes that take a moment."""

from __future__ import annotations

from typing import Any

from headspan.lab.recipe import Recipe, preset


def tiny_recipe(**options: Any) -> Recipe:
    """A few steps of a narrow model."""
    small = {"d_model": 16, "vocabulary": 16, "length": 16, "shortest": 4, "longest": 6, "ood_block": 7, "batch": 8}
    often = {"steps": 12, "cooldown": 0, "track_every": 4, "sharpness_every": 0, "save_every": 4, "test_size": 16}
    often |= {"lenses_every": 0}
    return preset("smoke").with_settings(**{**small, **often, **options})
