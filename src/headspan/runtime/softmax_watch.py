"""Catching what a model's attention feeds to its softmax, in any family, without changing a line of it.

`transformers` hands out attention probabilities only. Their logarithms are wanted too: a probability that rounds to
zero has lost its logarithm, and with it exact entropies and divergences. While the watch is on, every call of a softmax
inside an attention module is noted, argument and result; nothing is computed twice and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

SOFTMAXES = frozenset({torch.nn.functional.softmax, torch.softmax, Tensor.softmax})

Noted = Callable[[Tensor, Tensor], None]


class SoftmaxWatch(TorchFunctionMode):
    """A context in which `noted(scores, probabilities)`, where one is set, hears of every softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: Noted | None = None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        result = func(*args, **given)
        if self.noted is not None and func in SOFTMAXES:
            self.noted(args[0] if args else given["input"], result)
        return result
