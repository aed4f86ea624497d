"""Parts of one model put into another of the same shape: which part carries what was learned?

Layer 0 of the model after the transition in the model before it, and the reverse. Where both swaps fail, neither part
works alone: the two were learned together.
"""

from __future__ import annotations

import copy

import torch

from headspan.errors import HeadspanError
from headspan.lab.ablation import scores_of
from headspan.lab.geometry import group_of
from headspan.lab.model import LabModel
from headspan.lab.sequences import Sequences


@torch.no_grad()
def swapped(receiver: LabModel, donor: LabModel, prefix: str) -> LabModel:
    """A copy of `receiver` with those parameters of `donor` whose group starts with `prefix`: `L0`, `L0 O`, `W_E`."""
    if receiver.shape != donor.shape:
        raise HeadspanError("parts can be swapped between models of one shape only, and these differ")
    changed, names = copy.deepcopy(receiver), [name for name, _ in receiver.named_parameters()]
    wanted = [name for name in names if group_of(name).startswith(prefix)]
    if not wanted:
        known = ", ".join(sorted(set(map(group_of, names))))
        raise HeadspanError(f"the model has no part {prefix!r}; parts are {known}")
    for name in wanted:
        changed.get_parameter(name).copy_(donor.get_parameter(name))
    return changed


def swap_scores(before: LabModel, after: LabModel, test: Sequences) -> dict[str, dict[str, float]]:
    """Scores of both models, and of each with the other's layers or tables, by description."""
    found = {"before": scores_of(before, test), "after": scores_of(after, test)}
    for part in (*(f"L{layer}" for layer in range(before.shape.layers)), "W_E", "W_U"):
        if part == "W_U" and before.shape.tied:
            continue
        found[f"before, {part} from after"] = scores_of(swapped(before, after, part), test)
        found[f"after, {part} from before"] = scores_of(swapped(after, before, part), test)
    return found
