"""The tables behind the figures: for each figure, the table that holds its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headspan.report.tables import PageTable


def figure_tables(
    results: Mapping[str, Any], figures: Mapping[str, Mapping[str, Any]], grouped: bool
) -> tuple[list[PageTable], dict[str, dict[str, str]]]:
    """Tables, and by lens and figure the name of the table."""
    behind = {"affinity": dict.fromkeys(figures.get("affinity", {}), "pairs")}
    return [], behind
