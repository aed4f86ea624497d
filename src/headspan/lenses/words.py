"""Words of a text, which tokens make up each, and attention between words.

1. A text is cut into runs of letters, marks and digits (an apostrophe inside belongs to its word) and runs of other
   visible characters. No list of languages is needed; a script without spaces gives long words.
2. A token belongs to the words its characters lie in. A token that reaches into several joins them into one.
3. A space that is a token by itself belongs to the word after it; a line break, and every special token, stand alone.
4. Pooling adds up over the keys of a word and averages over its queries, so that rows of a map still sum to 1; the
   double sum, whose rows sum to the number of a word's tokens, can be asked for.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError
from headspan.runtime import Prompt

Span = tuple[int, int]
APOSTROPHES = "'\u2019"
LEFT_OUT = -1


@dataclass(frozen=True)
class Groups:
    """Tokens taken together: one entry of a map per group."""

    texts: tuple[str, ...]
    of_token: tuple[int, ...]
    """The group of every token, `LEFT_OUT` for one that no group holds."""

    def __len__(self) -> int:
        return len(self.texts)

    def chosen(self, words: Sequence[str]) -> Groups:
        """Only the groups that read like one of `words`, every occurrence, whatever the case."""
        wanted = {word.strip().casefold() for word in words}
        kept = [place for place, text in enumerate(self.texts) if text.strip().casefold() in wanted]
        found = {self.texts[place].strip().casefold() for place in kept}
        absent = next((word for word in words if word.strip().casefold() not in found), None)
        if absent is not None:
            some = ", ".join(repr(text) for text in list(dict.fromkeys(self.texts))[:12])
            raise ArgumentError(f"{absent!r} does not occur in the prompt; it reads {some}")
        return self._only(kept)

    def without(self, tokens: Sequence[bool]) -> Groups:
        """Without the groups that consist of marked tokens."""
        dropped = {group for group, mark in zip(self.of_token, tokens, strict=True) if mark}
        return self._only([place for place in range(len(self)) if place not in dropped])

    def _only(self, kept: Sequence[int]) -> Groups:
        place = {old: new for new, old in enumerate(kept)}
        return Groups(tuple(self.texts[old] for old in kept), tuple(place.get(old, LEFT_OUT) for old in self.of_token))


def token_groups(prompt: Prompt) -> Groups:
    """Every token by itself."""
    return Groups(prompt.texts, tuple(range(len(prompt))))


def word_groups(prompt: Prompt) -> Groups:
    """The tokens of every word of a prompt together, words in the order of the text."""
    if prompt.text is None:
        raise ArgumentError("word level needs a text: token ids alone do not say where words begin; use level token")
    if prompt.offsets is None:
        raise ArgumentError(
            "word level needs a fast tokenizer, which says where each token stands in the text; this one is slow: "
            "use level token"
        )
    owners = _token_words(prompt, word_spans(prompt.text))
    groups: list[int] = []
    texts: list[str] = []
    seen: dict[int, int] = {}
    for place, owner in enumerate(owners):
        if owner is None:
            seen_as, text = len(texts), prompt.texts[place]
        else:
            seen_as = seen.setdefault(owner[0], len(texts))
            text = prompt.text[owner[0] : owner[1]]
        if seen_as == len(texts):
            texts.append(text)
        groups.append(seen_as)
    return Groups(tuple(texts), tuple(groups))


def word_spans(text: str) -> list[Span]:
    """Start and end of every word of a text."""
    kinds: list[str] = []
    for place, character in enumerate(text):
        kinds.append(_kind(character, kinds[-1] if kinds else "space"))
        inside = place - 1 > 0 and kinds[place] == "word" and kinds[place - 2] == "word"
        if inside and text[place - 1] in APOSTROPHES:
            kinds[place - 1] = "word"
    spans, start = [], 0
    for kind, run in groupby(kinds):
        end = start + len(list(run))
        if kind != "space":
            spans.append((start, end))
        start = end
    return spans


def _kind(character: str, before: str) -> str:
    if character.isspace():
        return "space"
    category = unicodedata.category(character)
    # Marks and joiners continue what they stand on: vowel signs, the parts of a composed emoji.
    if category[0] == "M" or category == "Cf":
        return "sign" if before == "space" else before
    return "word" if category[0] in "LN" or character == "_" else "sign"


def _token_words(prompt: Prompt, spans: Sequence[Span]) -> list[Span | None]:
    """The word of every token, joined words as one span; None for what stands alone."""
    text, offsets = prompt.text or "", prompt.offsets or ()
    visible = [
        None if special else _visible(text, *offset) for special, offset in zip(prompt.special, offsets, strict=True)
    ]
    joined = list(_joined(spans, [span for span in visible if span is not None and span[0] < span[1]]))
    owners: list[Span | None] = []
    following: Span | None = None
    for (start, end), span, special in reversed(list(zip(offsets, visible, prompt.special, strict=True))):
        if span is None:
            owner = None
        elif span[0] < span[1]:
            owner = following = next(word for word in joined if word[0] <= span[0] < word[1])
        else:
            owner = None if "\n" in text[start:end] else following
        following = None if special else following
        owners.append(owner)
    return owners[::-1]


def _visible(text: str, start: int, end: int) -> Span:
    """A token's characters without the spaces around them; empty where there are only spaces."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def _joined(spans: Sequence[Span], tokens: Sequence[Span]) -> Iterator[Span]:
    """Words, those that one token reaches into as one."""
    bridges = sorted(token for token in tokens if sum(s < token[1] and token[0] < e for s, e in spans) > 1)
    current: Span | None = None
    for span in spans:
        touching = current is not None and any(a < current[1] and span[0] < b for a, b in bridges)
        if current is not None and touching:
            current = (current[0], span[1])
            continue
        if current is not None:
            yield current
        current = span
    if current is not None:
        yield current


def shown(groups: Groups) -> Groups:
    """The same groups with labels that can be read: spaces and line breaks made visible."""
    texts = (text.strip(" ") or "␣" for text in groups.texts)
    return replace(groups, texts=tuple(text.replace("\n", "⏎").replace("\t", "⇥") for text in texts))


def pooled(
    pattern: Float[Tensor, "*batch query key"], groups: Groups, pooling: str = "mean"
) -> Float[Tensor, "*batch group group"]:
    """Attention between groups of tokens: summed over keys, averaged (or summed) over queries.

    Parameters
    ----------
    pattern
        Attention between tokens.
    groups
        Which tokens belong together; those left out count neither as query nor as key.
    pooling
        "mean" keeps rows that sum to 1 where no key is left out; "sum" gives rows that sum to a group's tokens.

    Returns
    -------
    Tensor
        float64, in [0, 1] for "mean". Under uniform attention: a group's share of the tokens in reach.
    """
    if groups.of_token == tuple(range(pattern.shape[-1])):
        return pattern.double()
    member = membership(groups)
    queries = member / member.sum(dim=0) if pooling == "mean" else member
    return queries.T @ (pattern.double() @ member)


def membership(groups: Groups) -> Float[Tensor, "token group"]:
    """1 where a token belongs to a group, else 0."""
    return (torch.tensor(groups.of_token)[:, None] == torch.arange(len(groups))).to(torch.float64)


def left_out_mass(pattern: Float[Tensor, "*batch query key"], groups: Groups) -> Float[Tensor, "*batch group"]:
    """The share of a group's attention that goes to tokens no group holds, in [0, 1]; 0 where none is left out."""
    member = membership(groups)
    outside = (torch.tensor(groups.of_token) == LEFT_OUT).to(torch.float64)
    return (pattern.double() @ outside) @ (member / member.sum(dim=0))
