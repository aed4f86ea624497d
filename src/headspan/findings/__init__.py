"""Results to findings: `headspan.findings.<lens>.findings(result)` for each lens."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headspan.finding import Finding

if TYPE_CHECKING:
    import xarray as xr


def findings_of(lens: str, result: xr.Dataset | xr.DataTree) -> list[Finding]:
    """What a lens's result says, strongest first."""
    found: list[Finding] = import_module(_module(lens)).findings(result)
    return sorted(found, key=lambda finding: -finding.weight)


def _module(lens: str) -> str:
    own = {"lab": "headspan.lab", "evolution": "headspan.sweeps.evolution"}
    return f"{own.get(lens, f'headspan.lenses.{lens}')}.findings"


__all__ = ["Finding", "findings_of"]
