"""Which heads do what, from their attention: scores of five kinds of head on prompts made for it, and on text.

Each kind names the keys that such a head attends to. With the tokens t, for query i:

- `previous_token`: the position before, i - 1;
- `duplicate_token`: earlier positions with the same token, t_j = t_i (in an encoder, later ones too);
- `induction`: positions right after an earlier occurrence of the token, t_(j-1) = t_i (likewise);
- `identity`: the position itself;
- `first_token`: the first position (a sink).

A score is the attention to these keys, averaged over the queries that have any: in [0, 1]. Under the null, a head that
looks at all positions in reach alike, it is the share of the reach that these keys make up. On repeated random tokens
(no corpus needed), an induction head alone can know where to look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headspan.errors import ArgumentError
from headspan.runtime.forward_pass import Forward, forward
from headspan.runtime.model import RunnableModel
from headspan.runtime.prompt import encoded, warn_of_unknown

SAMPLE = "a"
"""A text that every tokenizer can spell, to see what is put around it."""

Targets = Bool[Tensor, "batch query key"]


@dataclass(frozen=True, eq=False)
class Detection:
    """Scores of one kind of prompt."""

    scores: Float[Tensor, "draw detector depth head"]
    """One row per seed or piece of text; NaN where a draw holds nothing that a detector could see."""
    chance: Float[Tensor, "draw detector"]


def previous_token(tokens: Int[Tensor, "batch position"], causal: bool) -> Targets:
    """The position before each."""
    n = tokens.shape[1]
    return torch.eye(n, dtype=torch.bool).roll(-1, dims=1).tril(-1).expand(len(tokens), n, n)


def duplicate_token(tokens: Int[Tensor, "batch position"], causal: bool) -> Targets:
    """Earlier positions with the same token; without a causal mask, all others."""
    same = tokens[:, :, None] == tokens[:, None, :]
    return same.tril(-1) if causal else same & ~torch.eye(tokens.shape[1], dtype=torch.bool)


def induction(tokens: Int[Tensor, "batch position"], causal: bool) -> Targets:
    """Positions right after an earlier occurrence of the token; without a causal mask, after any other."""
    duplicate = duplicate_token(tokens, causal)
    after = torch.zeros_like(duplicate)
    after[:, :, 1:] = duplicate[:, :, :-1]
    return after


def identity(tokens: Int[Tensor, "batch position"], causal: bool) -> Targets:
    """The position itself; the first has no choice if causal, and does not count."""
    n = tokens.shape[1]
    own = torch.eye(n, dtype=torch.bool)
    own[0] = False
    return own.expand(len(tokens), n, n)


def first_token(tokens: Int[Tensor, "batch position"], causal: bool) -> Targets:
    """The first position, from all others."""
    n = tokens.shape[1]
    sink = torch.zeros(n, n, dtype=torch.bool)
    sink[1:, 0] = True
    return sink.expand(len(tokens), n, n)


DETECTORS: Mapping[str, Callable[[Tensor, bool], Tensor]] = {
    "previous_token": previous_token,
    "duplicate_token": duplicate_token,
    "induction": induction,
    "identity": identity,
    "first_token": first_token,
}


def target_mass(pattern: Float[Tensor, "batch head query key"], targets: Targets) -> Float[Tensor, " head"]:
    """Attention to the targets, averaged over the queries that have one; in [0, 1], NaN where none has."""
    on_target = torch.einsum("bhqk,bqk->bh", pattern.double(), targets.double()).sum(0)
    counted = targets.any(-1).sum()
    return on_target / counted if counted else torch.full_like(on_target, torch.nan)


def uniform_mass(targets: Targets, causal: bool) -> float:
    """What `target_mass` is for a head that looks at all positions in reach alike."""
    n = targets.shape[-1]
    reach = torch.arange(1, n + 1) if causal else torch.full((n,), n)
    counted = targets.any(-1)
    return float((targets.sum(-1) / reach)[counted].double().mean()) if bool(counted.any()) else float("nan")


def detect(run: Forward) -> tuple[Float[Tensor, "detector depth head"], Float[Tensor, " detector"]]:
    """Every detector's score for every head of one run, and its value under the null."""
    tokens = run.tokens.cpu()
    scores, chance = [], []
    for targets in (find(tokens, run.model.causal) for find in DETECTORS.values()):
        placed = targets.to(run.tokens.device)
        scores.append(torch.stack([target_mass(attention.pattern, placed).cpu() for attention in run.runs]))
        chance.append(uniform_mass(targets, run.model.causal))
    return torch.stack(scores), torch.tensor(chance, dtype=torch.float64)


def repeated_tokens(model: RunnableModel, length: int, batch: int, seed: int) -> Int[Tensor, "batch position"]:
    """Random segments of `length` tokens, each repeated once, between the special tokens that the model expects.

    Tokens of a segment differ from one another where the vocabulary is large enough, so that each has one duplicate.
    """
    before, after = surrounding_tokens(model)
    room = None if model.max_context is None else (model.max_context - len(before) - len(after)) // 2
    if length < 2 or batch < 1 or (room is not None and length > room):
        limit = "" if room is None else f" and at most {room} for this model"
        raise ArgumentError(
            f"segments have a length of at least 2{limit}, found {length}; and batches at least 1 of them"
        )
    generator = torch.Generator().manual_seed(seed)
    plain = plain_tokens(model)
    weights = torch.ones(batch, len(plain))
    drawn = torch.multinomial(weights, length, replacement=len(plain) < length, generator=generator)
    segment = plain[drawn]
    edges = [torch.tensor(part, dtype=torch.int64).expand(batch, len(part)) for part in (before, after)]
    return torch.cat([edges[0], segment, segment, edges[1]], dim=1)


def plain_tokens(model: RunnableModel) -> Int[Tensor, " token"]:
    """All tokens that the model has and the tokenizer knows, but the special ones."""
    special = set() if model.tokenizer is None else set(model.tokenizer.all_special_ids)
    size = model.n_tokens if model.tokenizer is None else min(model.n_tokens, len(model.tokenizer))
    found = [each for each in range(size) if each not in special]
    # A model of special tokens alone still has tokens to draw from.
    return torch.tensor(found or range(model.n_tokens))


def surrounding_tokens(model: RunnableModel) -> tuple[list[int], list[int]]:
    """The special tokens that the tokenizer puts before and after a text."""
    if model.tokenizer is None:
        return [], []
    bare, whole = (list(model.tokenizer(SAMPLE, add_special_tokens=added)["input_ids"]) for added in (False, True))
    starts = range(len(whole) - len(bare) + 1)
    place = next((start for start in starts if bare and whole[start : start + len(bare)] == bare), None)
    if place is None or not all(0 <= each < model.n_tokens for each in whole):
        return [], []
    return whole[:place], whole[place + len(bare) :]


def detect_repeated(model: RunnableModel, seeds: Sequence[int], length: int, batch: int) -> Detection:
    """Scores on repeated random tokens, one draw per seed."""
    return _detection(model, [repeated_tokens(model, length, batch, seed) for seed in seeds])


def detect_text(model: RunnableModel, texts: Sequence[str], length: int) -> Detection:
    """Scores on text, cut into pieces of `length` tokens, one draw per piece."""
    pieces = [piece for text in texts for piece in _pieces(model, text, length)]
    if not pieces:
        raise ArgumentError(f"the text holds no piece of {length} tokens; give more text, or shorter pieces")
    return _detection(model, [torch.tensor([piece]) for piece in pieces])


def _detection(model: RunnableModel, draws: Sequence[Int[Tensor, "batch position"]]) -> Detection:
    scores, chance = zip(*(detect(forward(model, tokens, scores=False)) for tokens in draws), strict=True)
    return Detection(torch.stack(scores), torch.stack(chance))


def _pieces(model: RunnableModel, text: str, length: int) -> list[list[int]]:
    if not text.strip():
        raise ArgumentError("the text is empty")
    if model.tokenizer is None:
        raise ArgumentError(f"{model.tokenizer_problem}, so text cannot be read; leave out --text")
    before, after = surrounding_tokens(model)
    body = length - len(before) - len(after)
    ids = model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    warn_of_unknown(model, ids)
    whole = [ids[start : start + body] for start in range(0, len(ids) - body + 1, body)]
    for piece in whole[:1]:
        encoded(model, [*before, *piece, *after])
    return [[*before, *piece, *after] for piece in whole]
