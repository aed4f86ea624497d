"""A row of the record: test scores, attention scores, geometry and, less often, sharpness."""

from __future__ import annotations

import numpy as np
import torch

from headspan.lab.geometry import geometry_row
from headspan.lab.model import LabModel
from headspan.lab.recipe import Recipe
from headspan.lab.run_folder import Row
from headspan.lab.scores import accuracy, attention_scores, next_token_loss
from headspan.lab.source import Tests


@torch.no_grad()
def score_row(model: LabModel, tests: Tests) -> Row:
    """Loss and accuracy on both tests; previous-token and induction scores on the out-of-distribution one."""
    seen = model.seen(tests.ood.tokens)
    inside = model(tests.id.tokens)
    scores = attention_scores(seen, tests.ood)
    row = {
        "id_loss": float(next_token_loss(inside, tests.id)),
        "id_accuracy": accuracy(inside, tests.id),
        "ood_loss": float(next_token_loss(seen.logits, tests.ood)),
        "ood_accuracy": accuracy(seen.logits, tests.ood),
    }
    return {name: np.array(value) for name, value in row.items()} | {
        name: value.cpu().numpy() for name, value in scores.items()
    }


def measured_row(model: LabModel, recipe: Recipe, tests: Tests, step: int) -> Row:
    """Everything that is recorded at a step."""
    row = score_row(model, tests) | geometry_row(model)
    if recipe.sharpness_every and step % recipe.sharpness_every == 0:
        from headspan.lab.sharpness import sharpness_row

        row |= sharpness_row(model, tests.id, recipe.seed)
    return row
