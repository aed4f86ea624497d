"""The axis of time: steps as they are, or their logarithm where checkpoints were kept ever more rarely.

Change points are fitted on this axis (`headspan.statistics.change_points`) and told in steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from headspan.statistics.change_points import FEWEST, WALKS, change_points

WIDENING = 8.0
"""From this ratio of the last gap between steps to the first on, time is taken by its logarithm."""


@dataclass(frozen=True)
class Axis:
    """Between training steps and places on the axis on which curves are fitted and drawn."""

    logarithmic: bool

    @classmethod
    def of(cls, steps: np.ndarray) -> Axis:
        gaps = np.diff(np.asarray(steps, dtype=float))
        return cls(bool(len(gaps) > 1 and gaps[-1] >= WIDENING * gaps[0]))

    @property
    def name(self) -> str:
        return "log" if self.logarithmic else "linear"

    def places(self, steps: np.ndarray) -> np.ndarray:
        """Where steps lie; log(1 + step) on a logarithmic axis, since series begin at step 0."""
        values = np.asarray(steps, dtype=float)
        return np.log1p(values) if self.logarithmic else values

    def step(self, place: float) -> float:
        """The step at a place."""
        return float(np.expm1(place)) if self.logarithmic else float(place)


def step_changes(values: np.ndarray, steps: np.ndarray, walks: int = WALKS, seed: int = 0) -> xr.Dataset:
    """`change_points` of curves [curve, step] over ascending training steps, over `curve`; `change` in steps."""
    axis = Axis.of(steps)
    columns = change_points(values, axis.places(steps), walks, seed)
    for name in ("change", "low", "high"):
        columns[name] = np.array([axis.step(place) for place in columns[name]])
    attributes = {"axis": axis.name, "null": f"{walks} random walks on the same steps", "least_steps": FEWEST}
    return xr.Dataset({name: ("curve", column) for name, column in columns.items()}, attrs=attributes)
