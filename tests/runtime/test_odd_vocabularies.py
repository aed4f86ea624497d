"""Models whose config or tokenizer does not fit their vocabulary are run on tokens that they have, and that is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AlbertConfig, AlbertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import headspan
from headspan.errors import ArgumentError, UnknownTokens
from headspan.explorer.reports import Settings, write_report
from headspan.lenses.attention import findings as attention_findings
from headspan.runtime import RunnableModel, continuation, encoded, open_runnable
from headspan.runtime.detectors import plain_tokens, repeated_tokens
from headspan.runtime.prompt import default_prompt, end_tokens
from tests.unit.test_report import only

FEW = {"count": 1, "length": 8, "strong": 1, "random": 1, "group": 2, "permutations": 99}
SPECIAL = {
    "unk_token": "[UNK]",
    "pad_token": "<pad>",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def end_outside() -> GPT2LMHeadModel:
    """A GPT-2 of 33 tokens whose config still says that GPT-2's own token 50256 ends a text."""
    torch.manual_seed(0)
    size = {"vocab_size": 33, "n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 64}
    return GPT2LMHeadModel(GPT2Config(**size, bos_token_id=50256, eos_token_id=50256))


def word_tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    bare = Tokenizer(
        models.WordLevel({word: n for n, word in enumerate([*SPECIAL.values(), *words])}, unk_token="[UNK]")
    )
    bare.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=bare, **SPECIAL)


@pytest.fixture
def few_tokens(tmp_path: Path) -> Path:
    """An ALBERT of 60 tokens beside a tokenizer that knows the five special ones alone."""
    torch.manual_seed(0)
    size = {"vocab_size": 60, "embedding_size": 8, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 3}
    config = AlbertConfig(**size, intermediate_size=24, max_position_embeddings=64)
    AlbertForMaskedLM(config).save_pretrained(tmp_path)
    word_tokenizer([]).save_pretrained(tmp_path)
    return tmp_path


def test_an_end_outside_the_vocabulary_ends_nothing() -> None:
    model = open_runnable(end_outside())
    assert end_tokens(model) == frozenset()
    assert len(continuation(model, encoded(model, [1, 2, 3]), 5)) == 5
    result = headspan.validate(end_outside(), **FEW)  # type: ignore[arg-type]
    assert result.attrs["buffers"] == "sampled"
    assert "cause" in result
    assert headspan.detect(end_outside(), seeds=2, batch=2).findings


def test_a_tokenizer_that_knows_too_few_tokens_is_not_used(few_tokens: Path) -> None:
    with pytest.warns(UnknownTokens, match="it knows 5 tokens, the model has 60"):
        model = open_runnable(few_tokens)
    assert model.tokenizer is None
    assert len(plain_tokens(model)) == 60
    assert repeated_tokens(model, 8, 2, 0).shape == (2, 16)
    with pytest.raises(ArgumentError, match="does not fit: it knows 5 tokens, the model has 60; give token ids"):
        encoded(model, "some text")


@pytest.mark.slow
def test_lenses_and_report_run_on_tokens_that_the_model_has(
    few_tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(UnknownTokens, match="run without tokenizer"):
        found = headspan.detect(few_tokens, seeds=2, batch=2)
    assert found.findings
    with pytest.warns(UnknownTokens, match="run without tokenizer"):
        tested = headspan.validate(few_tokens, **FEW)  # type: ignore[arg-type]
    assert "invariance" in tested
    only(monkeypatch, "attention", "detect")
    with pytest.warns(UnknownTokens, match="run without tokenizer"):
        html = write_report(headspan.open(few_tokens), tmp_path / "report.html").read_text()
    assert "Not computed" not in html


def unknown_words() -> RunnableModel:
    torch.manual_seed(0)
    size = {"vocab_size": 24, "n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 64}
    module = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0))
    return open_runnable(module, tokenizer=word_tokenizer([f"C{n}" for n in range(15)]))


def test_a_prompt_of_unknown_tokens_is_warned_of_and_never_the_default() -> None:
    model = unknown_words()
    with pytest.warns(UnknownTokens, match="100 % of the prompt's tokens are unknown"):
        encoded(model, "Once upon a time")
    assert encoded(model, "C1 C2 oxygen C3").ids == (6, 7, 0, 8)
    prompt = default_prompt(model)
    assert prompt.text is None
    assert not set(prompt.ids) & {0, 1, 2, 3, 4}


def test_a_lens_whose_findings_fail_leaves_the_other_chapters_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "attention", "ranks")

    def broken(result: object) -> None:
        raise IndexError("no such token")

    monkeypatch.setattr(attention_findings, "findings", broken)
    with pytest.warns(UserWarning, match="attention failed: IndexError: no such token"):
        html = write_report(headspan.open("demo"), tmp_path / "report.html", Settings()).read_text()
    assert "Not computed: failed with an internal error (IndexError: no such token)." in html
    assert '<section id="ranks" class="lens">' in html
