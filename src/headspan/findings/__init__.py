"""Results to findings: `headspan.findings.<lens>.findings(result)` for each lens."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headspan.finding import Finding

if TYPE_CHECKING:
    import xarray as xr


def findings_of(lens: str, result: xr.Dataset | xr.DataTree) -> list[Finding]:
    """What a lens's result says, strongest first."""
    found: list[Finding] = import_module(f"headspan.findings.{lens}").findings(result)
    return sorted(found, key=lambda finding: -finding.weight)


__all__ = ["Finding", "findings_of"]
