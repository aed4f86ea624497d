"""Reversible changes to a running model: `with intervened(model, ScaledLogits(2.0)): ...`."""

from headspan.runtime.interventions.ablation import AblatedHeads, WithoutSubspace, head_space, mean_values
from headspan.runtime.interventions.channels import WithoutChannel
from headspan.runtime.interventions.edits import Edits, Intervention, intervened
from headspan.runtime.interventions.replacement import Reinitialized, SwappedHeads
from headspan.runtime.interventions.scaling import ScaledHeads
from headspan.runtime.interventions.spectral import HeadSpectra, ScaledLogits, SpectrumChange

__all__ = [
    "AblatedHeads",
    "Edits",
    "HeadSpectra",
    "Intervention",
    "Reinitialized",
    "ScaledHeads",
    "ScaledLogits",
    "SpectrumChange",
    "SwappedHeads",
    "WithoutChannel",
    "WithoutSubspace",
    "head_space",
    "intervened",
    "mean_values",
]
