"""What makes position directions sparse: the optimiser, norm gains, or positions themselves?

Adam moves every coordinate at its own rate and norm gains act coordinate by coordinate; both single out the axes of the
stream, which SGD without gains does not. Models with learned positions are trained under each combination, and the
leading directions of their position tables are compared by how few coordinates they live on.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.lab.model import LabModel
from headspan.lab.recipe import Recipe
from headspan.lab.source import Source
from headspan.lab.trainer import begun, train_step
from headspan.statistics.sparsity import sparsity_against_null

LEADING = 4
VARIANTS: Mapping[str, Mapping[str, object]] = {
    "adamw, gains": {"optimizer": "adamw", "norm_gains": True},
    "adamw, no gains": {"optimizer": "adamw", "norm_gains": False},
    "sgd, gains": {"optimizer": "sgd", "norm_gains": True, "learning_rate": 0.3},
    "sgd, no gains": {"optimizer": "sgd", "norm_gains": False, "learning_rate": 0.3},
}


def table_sparsity(table: Float[Tensor, "row d"], leading: int = LEADING) -> tuple[float, float]:
    """Mean participation of the leading right singular directions of a table without its mean row, and chance's.

    Returns
    -------
    tuple
        In [1, d], how many coordinates share a direction's mass; second, the same of random directions, about d/3.
    """
    centred = table.detach().double().cpu() - table.detach().double().cpu().mean(0)
    directions = torch.linalg.svd(centred, full_matrices=False).Vh[:leading].T.numpy()
    found = sparsity_against_null(directions, seed=0)
    return float(found["participation"].mean()), float(found["participation_null"].mean())


def trained_sparsity(recipe: Recipe, steps: int) -> dict[str, dict[str, float]]:
    """Sparsity of position and token directions after training under each variant, and before training.

    Returns
    -------
    dict
        By variant: `positions`, `tokens` (participation, in [1, d]), `chance` of it, and `loss` at the end.
    """
    found: dict[str, dict[str, float]] = {}
    for name, options in VARIANTS.items():
        chosen = recipe.changed(positions="learned", **options)
        source, progress, loss = Source.of(chosen), begun(chosen), torch.tensor(float("nan"))
        if not found:
            found["before training"] = _sparsities(progress.model) | {"loss": float("nan")}
        while progress.step < steps:
            loss, _, _ = train_step(chosen, source, progress)
        found[name] = _sparsities(progress.model) | {"loss": loss.item()}
    return found


def _sparsities(model: LabModel) -> dict[str, float]:
    positions, chance = table_sparsity(model.embed_positions.weight)
    return {"positions": positions, "tokens": table_sparsity(model.embed_tokens.weight)[0], "chance": chance}
