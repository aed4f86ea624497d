"""Running a model again from one layer on, where nothing before that layer has changed.

1. Once, with hooks, note what every block of the model hands to the next.
2. A run for a layer lets the blocks before it return what they returned then, instead of computing it, and can end
   behind that layer's attention.

Skipping is possible where the blocks are one list of modules and each reads what the one before it returned. Elsewhere
(shared layers, models that reshape the stream between blocks) the blocks before run as always, with the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from headspan.runtime.forward_pass import AttentionRun, Forward, Recorder, RunEnds, token_losses, without_cache
from headspan.runtime.model import RunnableModel


@dataclass(frozen=True, eq=False)
class Replay:
    """A run that can be repeated from any of its layers on. Made by `Replay.of`."""

    plain: Forward
    blocks: tuple[nn.Module, ...]
    """All blocks in their order; none where they cannot be skipped."""
    outputs: tuple[Any, ...]
    """What each of them returned."""

    @classmethod
    @torch.no_grad()
    def of(cls, plain: Forward) -> Replay:
        """Notes what the blocks of a run return, by running the model once more."""
        blocks = _blocks(plain.model)
        seen: list[tuple[Any, Any]] = []
        hooks = [block.register_forward_hook(lambda _, args, out: seen.append((args, out))) for block in blocks]
        try:
            if blocks:
                _run(plain.model, plain.tokens)
        finally:
            for hook in hooks:
                hook.remove()
        chained = len(seen) == len(blocks) and all(
            bool(args) and args[0] is _stream(before) for (_, before), (args, _) in pairwise(seen)
        )
        return cls(plain, tuple(blocks), tuple(out for _, out in seen)) if chained else cls(plain, (), ())

    @torch.no_grad()
    def run(self, layer: int, copies: int = 1, to_the_end: bool = True) -> tuple[AttentionRun, Tensor | None]:
        """What the attention of a layer does now, and the logits: None where the run ends behind that attention.

        Parameters
        ----------
        layer
            The first layer in which anything differs from the run that is repeated.
        copies
            How many times the tokens are repeated along the batch; interventions may treat each copy differently.
        to_the_end
            Whether to run the layers behind it and the language-model head too.
        """
        model, tokens = self.plain.model, self.plain.tokens.repeat(copies, 1)
        recorder = Recorder(model, True, (layer,), stops=not to_the_end)
        output = None
        with self._skipping(layer, copies), recorder.attach(), suppress(RunEnds):
            output = _run(model, tokens)
        return recorder.runs(len(tokens))[0], getattr(output, "logits", None)

    def loss_changes(self, logits: Tensor) -> Tensor:
        """The mean token loss of every copy less that of the run itself, in nats."""
        copies = len(logits) // len(self.plain.tokens)
        losses = token_losses(logits, self.plain.tokens.repeat(copies, 1)).double()
        return losses.reshape(copies, -1).mean(1) - self._loss

    @cached_property
    def _loss(self) -> float:
        return self.plain.loss()

    @contextmanager
    def _skipping(self, layer: int, copies: int) -> Iterator[None]:
        own = self.plain.model.attention(layer)
        before = 0
        if self.blocks:
            before = next(
                place for place, block in enumerate(self.blocks) if any(own is each for each in block.modules())
            )
        skipped = list(zip(self.blocks[:before], self.outputs, strict=False))
        kept = [vars(block).get("forward") for block, _ in skipped]
        try:
            for block, output in skipped:
                repeated = _repeated(output, len(self.plain.tokens), copies)
                block.forward = lambda *args, found=repeated, **kwargs: found
            yield
        finally:
            for (block, _), forward in zip(skipped, kept, strict=True):
                del block.forward
                if forward is not None:
                    block.forward = forward


def _run(model: RunnableModel, tokens: Tensor) -> Any:
    return model.module(input_ids=tokens.to(model.device), **without_cache(model))


def _blocks(model: RunnableModel) -> list[nn.Module]:
    """The list of modules that holds all attention modules; empty where layers are shared or there is none."""
    if model.stack.repeats > 1:
        return []
    attentions = [model.attention(layer) for layer in model.layers]
    for each in model.module.modules():
        if isinstance(each, nn.ModuleList):
            inside = {id(part) for part in each.modules()}
            if all(id(attention) in inside for attention in attentions):
                return list(each)
    return []


def _stream(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output


def _repeated(output: Any, batch: int, copies: int) -> Any:
    """What a block returned, for as many copies of the batch."""
    if isinstance(output, tuple):
        return tuple(_repeated(each, batch, copies) for each in output)
    if isinstance(output, Tensor) and output.ndim and output.shape[0] == batch:
        return output.repeat(copies, *([1] * (output.ndim - 1)))
    return output
