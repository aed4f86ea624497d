"""Text in and text out: from text or token ids to a checked prompt, and what a causal model writes after it.

A prompt holds tokens that the model can run on, and where each is in the text. A continuation is greedy, or sampled
from a seed.

What a model is run on when nothing is given: the beginning of a story, or random tokens.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from headspan.errors import ArgumentError, HeadspanError, UnknownTokens, UnsupportedModel
from headspan.finding import percent
from headspan.runtime.boundary import MOST_CHARACTERS
from headspan.runtime.model import RunnableModel

MOST_UNKNOWN = 0.5
"""Share of unknown tokens above which a prompt is not what was meant."""
Offsets = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Prompt:
    """A sequence of tokens, and the text they came from."""

    ids: tuple[int, ...]
    texts: tuple[str, ...]
    """Each token as it reads; `#17` where there is no tokenizer."""
    special: tuple[bool, ...]
    """Whether the tokenizer put it there by itself (`[CLS]`, `<s>`)."""
    text: str | None = None
    """None where token ids were given."""
    offsets: Offsets | None = None
    """Start and end of every token in `text`; None where token ids were given or the tokenizer does not say."""
    dropped: int = 0
    """Tokens cut off at the end because they exceeded the context."""

    @property
    def tokens(self) -> Int[Tensor, "1 position"]:
        return torch.tensor([self.ids])

    def __len__(self) -> int:
        return len(self.ids)


def encoded(model: RunnableModel, source: str | Sequence[int], truncate: bool = False, special: bool = True) -> Prompt:
    """A prompt from text, or from token ids where `source` is a sequence of numbers.

    Parameters
    ----------
    model
        The model whose tokenizer and context count.
    source
        Text, or token ids.
    truncate
        Cut a prompt that exceeds the context, and say by how much; otherwise that is an error.
    special
        Whether the tokenizer adds its special tokens to text.
    """
    if isinstance(source, str):
        if not source.strip():
            raise ArgumentError("the prompt is empty; give some text, or token ids with --tokens")
        prompt = _from_text(model, source, special)
    else:
        prompt = _from_ids(model, tuple(source))
    return _within_context(model, prompt, truncate)


def token_ids(text: str) -> tuple[int, ...]:
    """Token ids from `"1,5,7"` or `"1 5 7"`."""
    parts = text.replace(",", " ").split()
    if not parts or not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise ArgumentError(f"{text!r:.60} is not a list of token ids; write them like 1,5,7")
    return tuple(map(int, parts))


def _from_text(model: RunnableModel, text: str, special: bool) -> Prompt:
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ArgumentError(f"{model.tokenizer_problem}; give token ids with --tokens")
    if len(text) > MOST_CHARACTERS:
        raise ArgumentError(f"the prompt has {len(text):,} characters; at most {MOST_CHARACTERS:,} are tokenized")
    # verbose=False: a text longer than the context is dealt with here, not by a warning.
    found = tokenizer(
        text, add_special_tokens=special, return_offsets_mapping=tokenizer.is_fast, truncation=False, verbose=False
    )
    ids = tuple(int(each) for each in found["input_ids"])
    if not ids:
        raise ArgumentError("the tokenizer makes no token of this prompt: it drops all its characters")
    _check_known(model, ids)
    offsets = tuple((int(a), int(b)) for a, b in found["offset_mapping"]) if tokenizer.is_fast else None
    marks = tokenizer.get_special_tokens_mask(list(ids), already_has_special_tokens=True)
    warn_of_unknown(model, ids)
    return Prompt(ids, _texts(model, ids), tuple(map(bool, marks)), text, offsets)


def unknown_share(model: RunnableModel, ids: Sequence[int]) -> float:
    """Share of a text's tokens that stand for something the tokenizer does not know; special ones do not count."""
    tokenizer = model.tokenizer
    unknown = getattr(tokenizer, "unk_token_id", None)
    # In GPT-2's tokenizer the token for unknown text is also the one that ends it, and never stands for unknown text.
    if tokenizer is None or unknown is None or unknown in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        return 0.0
    plain = [each for each in ids if each == unknown or each not in set(tokenizer.all_special_ids)]
    return sum(each == unknown for each in plain) / len(plain) if plain else 0.0


def warn_of_unknown(model: RunnableModel, ids: Sequence[int]) -> None:
    """Warn where most of a text is unknown to the tokenizer."""
    share = unknown_share(model, ids)
    if share > MOST_UNKNOWN:
        warnings.warn(
            f"{percent(share)} of the prompt's tokens are unknown to the tokenizer of '{model.checkpoint.source}'; "
            "give text of the kind that the model was trained on, or token ids with --tokens",
            UnknownTokens,
            stacklevel=4,
        )


def _from_ids(model: RunnableModel, ids: tuple[int, ...]) -> Prompt:
    if not ids:
        raise ArgumentError("the prompt is empty; give at least one token id")
    _check_known(model, ids)
    special = set() if model.tokenizer is None else set(model.tokenizer.all_special_ids)
    return Prompt(ids, _texts(model, ids), tuple(each in special for each in ids))


def _check_known(model: RunnableModel, ids: Sequence[int]) -> None:
    wrong = next((each for each in ids if not isinstance(each, int) or not 0 <= each < model.n_tokens), None)
    if wrong is not None:
        raise ArgumentError(f"token {wrong} does not exist; this model has tokens 0..{model.n_tokens - 1}")


def _texts(model: RunnableModel, ids: Sequence[int]) -> tuple[str, ...]:
    if model.tokenizer is None:
        return tuple(f"#{each}" for each in ids)
    return tuple(str(model.tokenizer.decode([each])) for each in ids)


def _within_context(model: RunnableModel, prompt: Prompt, truncate: bool) -> Prompt:
    limit = model.max_context
    if limit is None or len(prompt) <= limit:
        return prompt
    if not truncate:
        raise ArgumentError(
            f"the prompt has {len(prompt)} tokens and the model's context {limit}; shorten it, or cut it with "
            "--truncate"
        )
    offsets = None if prompt.offsets is None else prompt.offsets[:limit]
    return Prompt(
        prompt.ids[:limit], prompt.texts[:limit], prompt.special[:limit], prompt.text, offsets, len(prompt) - limit
    )


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
        raise ArgumentError(
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
    """The tokens that end a text, of those that the model has: a config may state others."""
    stated = getattr(model.module.config, "eos_token_id", None)
    ends = stated if isinstance(stated, list) else [stated]
    return frozenset(each for each in ends if isinstance(each, int) and 0 <= each < model.n_tokens)


STORY = (
    "Once upon a time, there was a little girl named Lily. Lily loved to play in the park with her dog. "
    "One day, her dog ran away, and Lily was very sad."
)
RANDOM_LENGTH = 32
FEWEST = 16


def default_prompt(model: RunnableModel, seed: int = 0) -> Prompt:
    """A short story's beginning where the tokenizer can spell it, else random tokens twice over."""
    if model.tokenizer is not None:
        try:
            with warnings.catch_warnings(action="ignore", category=UnknownTokens):
                prompt = encoded(model, STORY, truncate=True)
        except HeadspanError:
            prompt = None
        # A tokenizer that drops what it does not know can leave too little, or not what was written.
        if prompt is not None and len(prompt) >= FEWEST and _spells(model, prompt):
            return prompt
    length = RANDOM_LENGTH if model.max_context is None else max(1, min(RANDOM_LENGTH, model.max_context // 2))
    generator = torch.Generator().manual_seed(seed)
    special = set() if model.tokenizer is None else set(model.tokenizer.all_special_ids)
    plain = torch.tensor([each for each in range(model.n_tokens) if each not in special])
    half = plain[torch.randint(len(plain), (length,), generator=generator)].tolist()
    return encoded(model, half * 2, truncate=True)


def _spells(model: RunnableModel, prompt: Prompt) -> bool:
    if unknown_share(model, prompt.ids) > MOST_UNKNOWN:
        return False
    if prompt.offsets is None:
        return True
    return sum(end - start for start, end in prompt.offsets) >= 0.7 * len("".join(STORY.split()))
