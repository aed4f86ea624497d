"""p-values of what a change of weights does to the running model (compare): divergence, states and loss.

Models share nothing (`models`), scaled to run; every matrix is changed by independent normal entries of a size of its
own, as the null draws them.
"""

from __future__ import annotations

import numpy as np
import torch

from docs.calibration.models import Weights, generator_of, gpt2, kinds
from docs.calibration.rows import Row, pooled_rows
from headspan.lenses.compare.behavior import behavior_node
from headspan.runtime import open_runnable

CHANGE, SCALE = 0.1, 0.1
NAMES = ("divergence_p", "state_change_p", "loss_change_p")
COVERS = {"compare": NAMES}


def rates(seed: int, draws: int, stress: bool = True) -> list[Row]:
    """Rates over `draws` pairs of models; heads of one pair are not independent."""
    found: list[Row] = []
    for place, null, kind in kinds(stress):
        p: dict[str, list[np.ndarray]] = {}
        for draw in range(draws):
            generator = generator_of(seed, place, draw)
            before = _scaled(gpt2(kind(generator), 2))
            models = [open_runnable(one) for one in (before, _changed(before, generator))]
            nodes, _ = behavior_node(models, text=None, sequences=4, length=16, noise="gaussian", draws=16, seed=draw)
            for name in NAMES:
                p.setdefault(name, []).append(np.ravel(nodes["behavior"][name].values))
        found += pooled_rows("compare behavior,", null, p)
    return found


def _scaled(model: Weights) -> Weights:
    """Matrices as small as before training, so that attention is spread."""
    matrices = {name: SCALE * one / one.std() for name, one in model[0].items() if one.ndim == 2}
    return {name: matrices.get(name, one).float() for name, one in model[0].items()}, model[1]


def _changed(model: Weights, generator: torch.Generator) -> Weights:
    changed = {
        name: one + CHANGE * one.std() * torch.randn(one.shape, generator=generator)
        for name, one in model[0].items()
        if one.ndim == 2 and name.startswith("h.")
    }
    return model[0] | changed, model[1]
