"""Few-shot prompts: pairs of word and clue written out one after another, then a word whose clue is to come.

Where the model has a chat template, every word is what the user says and every clue what the assistant answers;
otherwise a plain template with `{word}` and `{clue}` is filled in. The place of every shot, word and clue in the text
is kept, and carried over to tokens by the tokenizer's offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headspan.errors import ShapeError
from headspan.lenses.attention.pairs import Pair
from headspan.runtime import Prompt, RunnableModel, encoded

TEMPLATE = "Word: {word}\nClue: {clue}\n\n"
OUTSIDE = -1
Labels = npt.NDArray[np.int64]
Span = tuple[int, int]


@dataclass(frozen=True)
class ShotText:
    """A few-shot text and where its parts lie; the last shot is the one asked for, without clue."""

    text: str
    starts: tuple[int, ...]
    words: tuple[Span, ...]
    clues: tuple[Span, ...]
    chat: bool
    """Written by the model's chat template, which brings its own special tokens."""


@dataclass(frozen=True, eq=False)
class ShotTokens:
    """The prompt of a `ShotText`, every token with its place in it."""

    prompt: Prompt
    shot: Labels
    """[position]: number of the shot, `OUTSIDE` before the first."""
    word: Labels
    """[position]: number of the shot whose word it belongs to, `OUTSIDE` elsewhere."""
    clue: Labels

    @property
    def starts(self) -> tuple[int, ...]:
        """The first token of every shot."""
        return tuple(int(np.flatnonzero(self.shot == number)[0]) for number in range(int(self.shot.max()) + 1))


def shot_text(model: RunnableModel, shots: Sequence[Pair], target: str, template: str | None = None) -> ShotText:
    """The text that shows `shots` and asks for `target`.

    Parameters
    ----------
    model
        Its chat template is used where it has one and no template is given.
    shots, target
        What to show, and the word to ask for.
    template
        Text with `{word}` before `{clue}`.
    """
    if template is None and model.tokenizer is not None and getattr(model.tokenizer, "chat_template", None):
        return _chat_text(model, shots, target)
    before, between, after = _template_parts(TEMPLATE if template is None else template)
    text = ""
    starts, words, clues = [], [], []
    for pair in (*shots, Pair(target, "")):
        starts.append(len(text))
        words.append((len(text) + len(before), len(text) + len(before) + len(pair.word)))
        text += before + pair.word + between
        if pair.clue:
            clues.append((len(text), len(text) + len(pair.clue)))
            text += pair.clue + after
    # A space at the end would be a token of its own; clues begin with theirs.
    return ShotText(text.rstrip(" "), tuple(starts), tuple(words), tuple(clues), chat=False)


def _template_parts(template: str) -> tuple[str, str, str]:
    before, word, rest = template.partition("{word}")
    between, clue, after = rest.partition("{clue}")
    if not word or not clue or "{" in before + between + after or not between:
        raise ShapeError(f"a template holds {{word}}, some text, then {{clue}}, each once; found {template!r:.60}")
    return before, between, after


def _chat_text(model: RunnableModel, shots: Sequence[Pair], target: str) -> ShotText:
    turns = [
        turn
        for pair in shots
        for turn in ({"role": "user", "content": pair.word}, {"role": "assistant", "content": pair.clue})
    ]
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ShapeError(f"{model.tokenizer_problem}; few-shot prompts need one")
    asked = [*turns, {"role": "user", "content": target}]
    text = str(tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True))
    starts: list[int] = []
    words: list[Span] = []
    clues: list[Span] = []
    cursor = 0
    for number, turn in enumerate(asked):
        place = text.find(turn["content"], cursor)
        if place < 0:
            raise ShapeError(f"the chat template changes {turn['content']!r:.40}; give a plain one with --template")
        span = (place, place + len(turn["content"]))
        if number % 2 == 0:
            starts.append(cursor)
        (clues if number % 2 else words).append(span)
        cursor = span[1]
    return ShotText(text, tuple(starts), tuple(words), tuple(clues), chat=True)


def shot_tokens(model: RunnableModel, text: ShotText) -> ShotTokens:
    """The tokens of a few-shot text and which shot, word and clue each belongs to."""
    prompt = encoded(model, text.text, special=not text.chat)
    if prompt.offsets is None:
        raise ShapeError("few-shot maps need a fast tokenizer, which says where each token stands; this one is slow")
    centres = np.array([(start + end) / 2 for start, end in prompt.offsets])
    outside = np.array(prompt.special) & ~np.array([end > start for start, end in prompt.offsets])
    shot = np.searchsorted(np.array(text.starts), centres, side="right") - 1
    return ShotTokens(
        prompt,
        np.where(outside, OUTSIDE, shot),
        np.where(outside, OUTSIDE, _inside(centres, text.words)),
        np.where(outside, OUTSIDE, _inside(centres, text.clues)),
    )


def _inside(centres: npt.NDArray[np.float64], spans: Sequence[Span]) -> Labels:
    found = np.full(len(centres), OUTSIDE)
    for number, (start, end) in enumerate(spans):
        found[(centres >= start) & (centres <= end)] = number
    return found
