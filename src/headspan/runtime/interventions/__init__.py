"""Reversible changes to a running model: `with intervened(model, ScaledLogits(2.0)): ...`."""

from headspan.runtime.interventions.ablation import AblatedHeads, mean_values
from headspan.runtime.interventions.edits import Edits, Intervention, intervened
from headspan.runtime.interventions.initialising import Reinitialized
from headspan.runtime.interventions.scaling import ScaledLogits
from headspan.runtime.interventions.spectral import HeadSpectra, SpectrumChange
from headspan.runtime.interventions.subspace_removal import WithoutSubspace, head_space
from headspan.runtime.interventions.swapping import SwappedHeads

__all__ = [
    "AblatedHeads",
    "Edits",
    "HeadSpectra",
    "Intervention",
    "Reinitialized",
    "ScaledLogits",
    "SpectrumChange",
    "SwappedHeads",
    "WithoutSubspace",
    "head_space",
    "intervened",
    "mean_values",
]
