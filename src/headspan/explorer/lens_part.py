"""What one lens brings to a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headspan.finding import Finding
from headspan.lenses import Lens

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class LensPart:
    """A lens, what it found, and its result, out of which figures and tables of the page are made."""

    lens: Lens
    findings: Sequence[Finding] = ()
    result: xr.Dataset | xr.DataTree | None = None
    obstacle: str = ""
    """Why the lens found nothing to compute; empty where it did."""
