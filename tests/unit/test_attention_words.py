"""Tokens become words, whatever cut them: byte-level BPE, SentencePiece style, WordPiece; and words are pooled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headspan.errors import ArgumentError
from headspan.lenses.words import LEFT_OUT, Groups, left_out_mass, pooled, shown, token_groups, word_groups, word_spans
from headspan.runtime import Prompt, encoded, forward, open_runnable
from tests.unit.running_models import KINDS, TEXT, running

WORDS = [
    *(
        "The",
        "café's",
        "naïve",
        "owner",
        "didn't",
        "tokenize",
        "“",
        "日本語",
        "”",
        "—",
        "🙂👍🏽",
        "the",
        "café",
        "re",
        "-",
    ),
    *("opened", ";", "the", "the", "."),
]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  \n ", []),
        ("one", ["one"]),
        ("don't 'quote' it's'", ["don't", "'", "quote", "'", "it's", "'"]),
        ("हिन्दी शब्द", ["हिन्दी", "शब्द"]),
        ("x_1=2.5!?", ["x_1", "=", "2", ".", "5", "!?"]),
        ("a\u200db", ["a\u200db"]),
        ("\u2019twas ", ["\u2019", "twas"]),
        (TEXT, WORDS),
    ],
)
def test_a_text_is_cut_into_words(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in word_spans(text)] == words


@pytest.mark.parametrize("kind", KINDS)
def test_every_tokenizer_gives_the_same_words(kind: str) -> None:
    prompt = encoded(running(kind), TEXT)
    groups = word_groups(prompt)
    assert len(prompt) > len(WORDS) + 5, "the tokenizer does not cut words, so the test shows nothing"
    assert list(groups.texts) == ["<s>", *WORDS]
    assert sorted(set(groups.of_token)) == list(range(len(groups)))
    # Tokens of a word stand together, in the order of the text.
    assert list(groups.of_token) == sorted(groups.of_token)


def test_the_words_of_a_real_encoder(minilm: Path) -> None:
    prompt = encoded(open_runnable(minilm), "Unbelievable tokenization, isn't it?")
    groups = word_groups(prompt)
    assert groups.texts == ("[CLS]", "Unbelievable", "tokenization", ",", "isn't", "it", "?", "[SEP]")
    assert len(prompt) > len(groups)


def test_line_breaks_stand_alone_and_spaces_go_with_what_follows(stories: Path) -> None:
    prompt = encoded(open_runnable(stories), "one  two\n\nthree ")
    groups = word_groups(prompt)
    texts = [text.strip(" ") for text in groups.texts]
    assert [text for text in texts if text.strip()] == ["<s>", "one", "two", "three"]
    assert any("\n" in text for text in texts)
    assert "⏎" in "".join(shown(groups).texts)


def test_a_token_across_words_joins_them() -> None:
    prompt = Prompt((1, 2, 3), ("a", " b c", " d"), (False,) * 3, "a b c d", ((0, 1), (1, 5), (5, 7)))
    groups = word_groups(prompt)
    assert groups.texts == ("a", "b c", "d")
    assert groups.of_token == (0, 1, 2)


def test_words_need_a_text_and_offsets() -> None:
    with pytest.raises(ArgumentError, match="word level needs a text"):
        word_groups(Prompt((1,), ("a",), (False,)))
    with pytest.raises(ArgumentError, match=r"needs a fast tokenizer.*use level token"):
        word_groups(Prompt((1,), ("a",), (False,), "a"))


def test_words_of_interest_are_found_at_every_place_whatever_their_case() -> None:
    prompt = encoded(running(), TEXT)
    chosen = word_groups(prompt).chosen(["THE", "owner"])
    assert chosen.texts == ("The", "owner", "the", "the", "the")
    with pytest.raises(ArgumentError, match="'cat' does not occur in the prompt; it reads '<s>', 'The'"):
        word_groups(prompt).chosen(["the", "cat"])


def test_special_tokens_are_dropped_when_asked() -> None:
    prompt = encoded(running(), TEXT)
    kept = word_groups(prompt).without(prompt.special)
    assert list(kept.texts) == WORDS
    assert kept.of_token[0] == LEFT_OUT


# Pooling


def naive_pooled(pattern: np.ndarray, groups: Groups, average: bool) -> np.ndarray:
    """The definition, entry by entry."""
    out = np.zeros((len(groups), len(groups)))
    for i in range(len(groups)):
        queries = [q for q, group in enumerate(groups.of_token) if group == i]
        for j in range(len(groups)):
            keys = [k for k, group in enumerate(groups.of_token) if group == j]
            total = sum(pattern[q, k] for q in queries for k in keys)
            out[i, j] = total / len(queries) if average else total
    return out


def random_pattern(n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, n, generator=generator, dtype=torch.float64).softmax(-1)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=6), st.booleans(), st.integers(0, 5))
def test_pooling_is_its_definition(sizes: list[int], average: bool, left_out: int) -> None:
    of_token = [group for group, size in enumerate(sizes) for _ in range(size)] + [LEFT_OUT] * left_out
    groups = Groups(tuple(f"w{i}" for i in range(len(sizes))), tuple(of_token))
    pattern = random_pattern(len(of_token))
    found = pooled(pattern, groups, "mean" if average else "sum")
    np.testing.assert_allclose(found, naive_pooled(pattern.numpy(), groups, average), atol=1e-14)
    if average:
        np.testing.assert_allclose(found.sum(-1) + left_out_mass(pattern, groups), 1, atol=1e-12)
    else:
        np.testing.assert_allclose(found.sum(), float(pattern[: sum(sizes), : sum(sizes)].sum()), atol=1e-12)


def test_pooling_tokens_by_themselves_changes_nothing() -> None:
    prompt = encoded(running(), TEXT)
    pattern = random_pattern(len(prompt))
    assert torch.equal(pooled(pattern, token_groups(prompt)), pattern)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_word_maps_sum_to_one(kind: str) -> None:
    model = running(kind)
    prompt = encoded(model, TEXT)
    found = pooled(forward(model, prompt.tokens).pattern()[0], word_groups(prompt))
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-6)


def test_uniform_attention_gives_a_word_its_share_of_the_tokens() -> None:
    groups = Groups(("a", "b"), (0, 0, 0, 1))
    found = pooled(torch.full((4, 4), 0.25, dtype=torch.float64), groups)
    np.testing.assert_allclose(found, [[0.75, 0.25], [0.75, 0.25]])
