"""Token buffers to measure behavior on: windows of a text, what the model itself writes, or repeated random tokens."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from headspan.errors import ArgumentError, UnsupportedModel
from headspan.runtime.detectors import plain_tokens, repeated_tokens, surrounding_tokens
from headspan.runtime.model import RunnableModel
from headspan.runtime.prompt import end_tokens

KINDS = ("sampled", "repeated")
FEWEST_WINDOWS = 4


def token_buffers(
    model: RunnableModel, kind: str | None, count: int, length: int, seed: int
) -> tuple[str, Int[Tensor, "batch position"]]:
    """The kind of buffers and the tokens.

    Parameters
    ----------
    model
        Whose tokens they are.
    kind
        `sampled`: drawn from the model itself, token by token, at temperature 1: text as the model knows it.
        `repeated`: random tokens, the second half equal to the first: text on which copying can be seen. By default
        sampled where the model can write.
    count, length
        How many buffers, and of how many tokens; fewer where the context ends before.
    seed
        Fixes them.
    """
    chosen = kind or ("sampled" if model.writes else "repeated")
    if chosen not in KINDS:
        raise ArgumentError(f"buffers = {chosen!r} is not known; it is {' or '.join(KINDS)}")
    room = length if model.max_context is None else min(length, model.max_context)
    if chosen == "repeated":
        edges = sum(map(len, surrounding_tokens(model)))
        return chosen, repeated_tokens(model, (room - edges) // 2, count, seed)
    return chosen, _sampled(model, count, room, seed)


@torch.no_grad()
def _sampled(model: RunnableModel, count: int, length: int, seed: int) -> Int[Tensor, "batch position"]:
    if not model.writes:
        raise UnsupportedModel("an encoder writes nothing; ask for repeated buffers")
    generator = torch.Generator().manual_seed(seed)
    before, plain = surrounding_tokens(model)[0], plain_tokens(model)
    first = plain[torch.randint(len(plain), (count, 1), generator=generator)]
    tokens = torch.tensor(before).expand(count, -1) if before else first
    ends = torch.tensor(sorted(end_tokens(model)), dtype=torch.int64)
    given, cache = tokens.to(model.device), None
    while tokens.shape[1] < length:
        output = model.module(input_ids=given, past_key_values=cache, use_cache=True)
        logits = output.logits[:, -1].double().cpu()
        # All buffers are of one length, so none may end early.
        logits[:, ends] = -torch.inf
        drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator)
        tokens = torch.cat([tokens, drawn], dim=1)
        given, cache = drawn.to(model.device), output.past_key_values
    return tokens


def sampled_tokens(
    model: RunnableModel, text: str | None, count: int, length: int, seed: int
) -> tuple[Int[Tensor, "sequence position"], str]:
    """Sequences of equal length: windows of a text, or tokens drawn uniformly; second, what they are in words."""
    require_context(model, length)
    if text is None:
        return random_tokens(model.n_tokens, count, length, seed), "random tokens"
    return text_windows(model, text, count, length, seed), "a text"


def random_tokens(n_tokens: int, count: int, length: int, seed: int) -> Int[Tensor, "sequence position"]:
    """Tokens drawn uniformly from a vocabulary."""
    return torch.randint(n_tokens, (count, length), generator=torch.Generator().manual_seed(seed))


def text_windows(
    model: RunnableModel, text: str, count: int, length: int, seed: int
) -> Int[Tensor, "sequence position"]:
    """At most `count` windows of `length` tokens out of a text, chosen at random, none overlapping another."""
    if model.tokenizer is None:
        raise ArgumentError(f"{model.tokenizer_problem}; leave the text out to use random tokens")
    ids = model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    windows = len(ids) // length
    if windows < FEWEST_WINDOWS:
        raise ArgumentError(
            f"the text has {len(ids)} tokens, {windows} windows of {length}; needed at least {FEWEST_WINDOWS}: give a "
            "longer text, or shorter windows"
        )
    whole = torch.tensor(ids[: windows * length]).reshape(windows, length)
    return whole[torch.randperm(windows, generator=torch.Generator().manual_seed(seed))[:count]]


def require_context(model: RunnableModel, length: int) -> None:
    """Refuse sequences that are longer than the model's context."""
    limit = model.max_context
    if limit is not None and length > limit:
        raise ArgumentError(f"sequences of {length} tokens exceed the model's context of {limit}; ask for shorter ones")
