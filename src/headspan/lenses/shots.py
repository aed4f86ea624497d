"""Few-shot prompts: pairs of word and clue written out one after another, then a word whose clue is to come.

Pairs are read from a table of two columns, or from a small one that headspan brings; some are shown, the others held
out. A preamble may stand before the first shot: in a chat it is what the user says first, and the answer is "Ok.".

Where the model has a chat template, every word is what the user says and every clue what the assistant answers;
otherwise a plain template with `{word}` and `{clue}` is filled in. The place of every shot, word and clue in the text
is kept, and carried over to tokens by the tokenizer's offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan.errors import ArgumentError, HeadspanError, UnsupportedModel
from headspan.input_files import csv_rows, file_text
from headspan.runtime import Prompt, RunnableModel, encoded

TEMPLATE = "Word: {word}\nClue: {clue}\n\n"
OUTSIDE = -1
Labels = npt.NDArray[np.int64]
Span = tuple[int, int]
COLUMNS = ["word", "clue"]
BUNDLED = "bundled"
"""In place of a file: headspan's own words and clues."""
OWN_PAIRS = Path(__file__).with_name("words_and_clues.csv")
PREAMBLE = "You write crossword clues. For every word, answer with one short clue that does not contain the word."
"""An instruction of our own for words and clues."""
READY = "Ok."
"""What the assistant answers to a preamble."""


@dataclass(frozen=True)
class Pair:
    """A word and what is said of it."""

    word: str
    clue: str


@dataclass(frozen=True)
class Split:
    """Pairs to show, in order, and pairs to ask for; what is said before them."""

    shots: tuple[Pair, ...]
    held_out: tuple[Pair, ...]
    preamble: str = ""


def read_pairs(source: str | Path | Sequence[Pair]) -> tuple[Pair, ...]:
    """The pairs of a table with the header `word;clue`: a CSV file in UTF-8, its text (of several lines), or ours."""
    if source == BUNDLED or source == Path(BUNDLED):
        return _pairs(file_text(OWN_PAIRS), OWN_PAIRS.name)
    if not isinstance(source, str | Path):
        return tuple(source)
    if isinstance(source, str) and "\n" in source:
        return _pairs(source, "few_shot")
    return _pairs(file_text(Path(source)), str(source))


def pair_lists(given: Any) -> list[tuple[Pair, ...]]:
    """The pairs of every few-shot prompt of a batch; of one where a single table was given."""
    if isinstance(given, str | Path) or (len(given) and isinstance(given[0], Pair)):
        return [read_pairs(given)]
    if not len(given):
        raise ArgumentError("few_shot is an empty list; give one CSV file of word;clue pairs at least")
    return [read_pairs(each) for each in given]


def _pairs(text: str, name: str) -> tuple[Pair, ...]:
    rows = csv_rows(text, name, delimiter=";")
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    if header != COLUMNS:
        raise HeadspanError(f"'{name}' needs the columns word;clue in its first line, found {';'.join(header)!r:.60}")
    pairs = []
    for number, row in enumerate(rows[1:], start=2):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) != 2 or not all(cells):
            raise HeadspanError(f"line {number} of '{name}' needs a word and a clue, found {';'.join(row)!r:.60}")
        pairs.append(Pair(*cells))
    return tuple(pairs)


def split_pairs(pairs: Sequence[Pair], shots: int, seed: int, targets: Sequence[str] = (), preamble: str = "") -> Split:
    """Choose `shots` pairs at random to show; the rest, or the `targets` among all pairs, are held out.

    A target word never is a shot; one that has no pair is asked for all the same, without a clue to compare with.
    """
    wanted = {word.strip().casefold() for word in targets}
    free = [pair for pair in pairs if pair.word.casefold() not in wanted]
    if shots < 1 or len(free) < shots or (not wanted and len(free) == shots):
        need = shots if wanted else shots + 1
        raise ArgumentError(
            f"{shots} shots need at least {max(need, 2)} pairs (targets not counted), found {len(free)}; "
            "give more pairs or ask for fewer shots, at least 1"
        )
    order = np.random.default_rng(seed).permutation(len(free))
    shown = tuple(free[place] for place in order[:shots])
    known = {pair.word.casefold(): pair for pair in pairs}
    asked = tuple(known.get(word.strip().casefold(), Pair(word.strip(), "")) for word in targets)
    return Split(shown, asked if wanted else tuple(free[place] for place in order[shots:]), preamble)


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


def shot_text(
    model: RunnableModel, shots: Sequence[Pair], target: str, template: str | None = None, preamble: str = ""
) -> ShotText:
    """The text that shows `shots` and asks for `target`.

    Parameters
    ----------
    model
        Its chat template is used where it has one and no template is given.
    shots, target
        What to show, and the word to ask for.
    template
        Text with `{word}` before `{clue}`.
    preamble
        What stands before the first shot and belongs to none.
    """
    if template is None and model.tokenizer is not None and getattr(model.tokenizer, "chat_template", None):
        return _chat_text(model, shots, target, preamble)
    before, between, after = _template_parts(TEMPLATE if template is None else template)
    text = f"{preamble}\n\n" if preamble else ""
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
        raise ArgumentError(f"a template holds {{word}}, some text, then {{clue}}, each once; found {template!r:.60}")
    return before, between, after


def _chat_text(model: RunnableModel, shots: Sequence[Pair], target: str, preamble: str) -> ShotText:
    turns = [
        turn
        for pair in (*([Pair(preamble, READY)] if preamble else []), *shots)
        for turn in ({"role": "user", "content": pair.word}, {"role": "assistant", "content": pair.clue})
    ]
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise UnsupportedModel(f"{model.tokenizer_problem}; few-shot prompts need one")
    asked = [*turns, {"role": "user", "content": target}]
    text = str(tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True))
    starts: list[int] = []
    words: list[Span] = []
    clues: list[Span] = []
    cursor = 0
    for number, turn in enumerate(asked):
        place = text.find(turn["content"], cursor)
        if place < 0:
            raise UnsupportedModel(f"the chat template changes {turn['content']!r:.40}; give a plain one as template")
        span = (place, place + len(turn["content"]))
        if number >= 2 or not preamble:
            if number % 2 == 0:
                starts.append(cursor)
            (clues if number % 2 else words).append(span)
        cursor = span[1]
    return ShotText(text, tuple(starts), tuple(words), tuple(clues), chat=True)


def shot_tokens(model: RunnableModel, text: ShotText) -> ShotTokens:
    """The tokens of a few-shot text and which shot, word and clue each belongs to."""
    prompt = encoded(model, text.text, special=not text.chat)
    if prompt.offsets is None:
        raise UnsupportedModel(
            "few-shot maps need a fast tokenizer, which says where each token stands; this one is slow"
        )
    centers = np.array([(start + end) / 2 for start, end in prompt.offsets])
    outside = np.array(prompt.special) & ~np.array([end > start for start, end in prompt.offsets])
    shot = np.searchsorted(np.array(text.starts), centers, side="right") - 1
    return ShotTokens(
        prompt,
        np.where(outside, OUTSIDE, shot),
        np.where(outside, OUTSIDE, _inside(centers, text.words)),
        np.where(outside, OUTSIDE, _inside(centers, text.clues)),
    )


def _inside(centers: npt.NDArray[np.float64], spans: Sequence[Span]) -> Labels:
    found = np.full(len(centers), OUTSIDE)
    for number, (start, end) in enumerate(spans):
        found[(centers >= start) & (centers <= end)] = number
    return found
