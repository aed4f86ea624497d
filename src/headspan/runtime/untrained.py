"""The untrained twin of a running model: the same config, with weights as its family draws them before training.

What an analysis finds in the twin is owed to the architecture and to the analysis, not to what the model has learned.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch

from headspan.runtime.budget import require_copies
from headspan.runtime.model import RunnableModel, open_runnable
from headspan.runtime.module import quiet_transformers


def untrained_twin(model: RunnableModel, seed: int = 0) -> RunnableModel:
    """A model of the same kind, size, dtype, device and tokenizer whose weights are drawn anew.

    Parameters
    ----------
    model
        Left as it is.
    seed
        Fixes the weights; the state of torch's own generator is as before afterwards.
    """
    require_copies(model, 3, "its untrained twin")
    with quiet_transformers(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        kind: Any = type(model.module)
        module = kind._from_config(deepcopy(model.module.config), attn_implementation="eager")
    return open_runnable(
        module,
        dtype=str(model.module.dtype).removeprefix("torch."),
        device=str(model.device),
        stack=model.stack.name,
        tokenizer=model.tokenizer,
    )
