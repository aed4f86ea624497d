"""Letting a causal model write on, greedily or by sampling from a seed."""

from __future__ import annotations

import torch

from headspan.errors import ShapeError, UnsupportedModel
from headspan.runtime.model import RunnableModel
from headspan.runtime.prompt import Prompt


@torch.no_grad()
def continuation(
    model: RunnableModel, prompt: Prompt, length: int = 40, temperature: float = 0.0, seed: int = 0
) -> tuple[int, ...]:
    """The token ids that the model writes after a prompt.

    Parameters
    ----------
    model
        A causal model with a language-model head.
    prompt
        From `encoded`.
    length
        How many tokens at most; fewer where the model ends its text or its context is full.
    temperature
        0 always takes the likeliest token; above, tokens are drawn from softmax(logits / temperature).
    seed
        Fixes the draws.
    """
    if not model.writes:
        raise UnsupportedModel(
            f"'{model.checkpoint.source}' cannot write on: that takes a causal model with a language-model head"
        )
    if length < 1 or not 0.0 <= temperature < float("inf"):
        raise ShapeError(
            f"a continuation needs a length of at least 1 and a temperature >= 0, found {length}, {temperature}"
        )
    generator = torch.Generator(model.device).manual_seed(seed)
    room = length if model.max_context is None else min(length, model.max_context - len(prompt))
    ends = end_tokens(model)
    written: list[int] = []
    given, cache = prompt.tokens.to(model.device), None
    for _ in range(room):
        output = model.module(input_ids=given, past_key_values=cache, use_cache=True)
        token = _next_token(output.logits[0, -1], temperature, generator)
        if token in ends:
            break
        written.append(token)
        given, cache = torch.tensor([[token]], device=model.device), output.past_key_values
    return tuple(written)


def _next_token(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature == 0.0:
        return int(logits.argmax())
    return int(torch.multinomial(torch.softmax(logits.double() / temperature, dim=-1), 1, generator=generator))


def end_tokens(model: RunnableModel) -> frozenset[int]:
    stated = getattr(model.module.config, "eos_token_id", None)
    ends = stated if isinstance(stated, list) else [stated]
    return frozenset(each for each in ends if isinstance(each, int))
