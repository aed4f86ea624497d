"""Prompts are checked before a model sees them, and models write on from them."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from headspan.checkpoint import open_checkpoint
from headspan.errors import ArgumentError, CheckpointError, HeadspanError, UnsupportedModel
from headspan.runtime import (
    RunnableModel,
    continuation,
    encoded,
    forward,
    open_runnable,
    run_obstacle,
    token_ids,
)
from tests.families.tiny_models import CASES


@pytest.fixture(scope="module")
def demo() -> RunnableModel:
    return open_runnable("demo")


@pytest.fixture(scope="module")
def story_teller(stories: Path) -> RunnableModel:
    return open_runnable(stories)


@pytest.fixture(scope="module")
def encoder(minilm: Path) -> RunnableModel:
    return open_runnable(minilm)


def tiny(name: str) -> RunnableModel:
    return open_runnable(next(case for case in CASES if case.name == name).model(head=True).float())


def test_text_becomes_the_tokenizers_tokens_with_their_places(story_teller: RunnableModel, stories: Path) -> None:
    text = "Once upon a time, there was a little girl."
    prompt = encoded(story_teller, text)
    assert list(prompt.ids) == AutoTokenizer.from_pretrained(stories)(text)["input_ids"]
    assert prompt.special == (True,) + (False,) * (len(prompt) - 1)
    assert prompt.offsets is not None
    assert "".join(text[a:b] for a, b in prompt.offsets).replace(" ", "") == text.replace(" ", "")
    assert encoded(story_teller, text, special=False).ids == prompt.ids[1:]


def test_changing_the_running_model_leaves_its_source_alone() -> None:
    source = next(case for case in CASES if case.name == "llama").model(head=True).float()
    before = {name: tensor.clone() for name, tensor in source.state_dict().items()}
    with torch.no_grad():
        for parameter in open_runnable(source).module.parameters():
            parameter.zero_()
    assert all(torch.equal(tensor, before[name]) for name, tensor in source.state_dict().items())


def test_weights_that_are_not_finite_are_refused() -> None:
    source = next(case for case in CASES if case.name == "llama").model(head=True).float()
    with torch.no_grad():
        source.model.layers[1].mlp.up_proj.weight[0, 0] = float("nan")
    with pytest.raises(CheckpointError, match=r"mlp.up_proj.weight' holds NaN or Inf; the model cannot be run"):
        open_runnable(source)


def test_token_ids_need_no_tokenizer() -> None:
    model = tiny("gpt2")
    prompt = encoded(model, token_ids("3, 4 5"))
    assert prompt.ids == (3, 4, 5)
    assert prompt.texts == ("#3", "#4", "#5")
    assert prompt.text is prompt.offsets is None
    assert forward(model, prompt.tokens).pattern().shape == (1, 2, 3, 3, 3)
    with pytest.raises(ArgumentError, match=r"no tokenizer beside the weights of .*; give token ids with --tokens"):
        encoded(model, "text")


@pytest.mark.parametrize("text", ["", "  \n "])
def test_an_empty_prompt_is_refused(demo: RunnableModel, text: str) -> None:
    with pytest.raises(ArgumentError, match="the prompt is empty"):
        encoded(demo, text)
    with pytest.raises(ArgumentError, match="the prompt is empty; give at least one token id"):
        encoded(demo, [])


def test_a_prompt_that_the_tokenizer_drops_is_refused(demo: RunnableModel) -> None:
    with pytest.raises(ArgumentError, match="makes no token of this prompt"):
        encoded(demo, "?!")


def test_a_prompt_beyond_the_context_is_refused_or_cut_as_asked(demo: RunnableModel) -> None:
    with pytest.raises(ArgumentError, match=r"the prompt has 70 tokens and the model's context 64; .*--truncate"):
        encoded(demo, "a" * 70)
    cut = encoded(demo, "a" * 70, truncate=True)
    assert (len(cut), cut.dropped, len(cut.offsets or ())) == (64, 6, 64)


@pytest.mark.parametrize(("ids", "found"), [([64], "token 64"), ([-1], "token -1")])
def test_tokens_that_do_not_exist_are_refused(demo: RunnableModel, ids: list[int], found: str) -> None:
    with pytest.raises(ArgumentError, match=rf"{found} does not exist; this model has tokens 0\.\.63"):
        encoded(demo, ids)


@pytest.mark.parametrize("text", ["", "a,b", "1;2", "-3"])
def test_what_is_no_list_of_token_ids_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="is not a list of token ids"):
        token_ids(text)


@pytest.mark.parametrize(
    ("name", "context"), [("gpt2", 32), ("roberta", 32), ("opt", 32), ("bloom", None), ("llama", 2048)]
)
def test_the_context_is_what_the_positions_allow(name: str, context: int | None) -> None:
    assert tiny(name).max_context == context


def test_without_transformers_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "transformers":
            raise ImportError("No module named 'transformers'")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(HeadspanError, match=r"pip install 'headspan\[run\]'"):
        open_runnable("demo")


def test_obstacles_are_known_before_anything_is_loaded(
    gpt2_attention: Path, stories: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_obstacle(open_checkpoint(stories)) is None
    assert "no W_E and no MLP" in (run_obstacle(open_checkpoint(gpt2_attention)) or "")
    monkeypatch.setattr("headspan.runtime.find_spec", lambda name: None)
    assert "headspan[run]" in (run_obstacle(open_checkpoint(stories)) or "")


@pytest.mark.parametrize(
    ("given", "message"),
    [({"dtype": "int8"}, "dtype needs to be float32 or float64, found 'int8'"), ({"device": "desk"}, "'desk'")],
)
def test_unknown_dtypes_and_devices_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        open_runnable("demo", **given)


def test_greedy_continuations_are_those_of_transformers(story_teller: RunnableModel, stories: Path) -> None:
    prompt = encoded(story_teller, "Once upon a time")
    theirs = AutoModelForCausalLM.from_pretrained(stories, dtype=torch.float32).generate(
        prompt.tokens, attention_mask=torch.ones_like(prompt.tokens), max_new_tokens=60, do_sample=False
    )
    assert list(continuation(story_teller, prompt, 60)) == theirs[0, len(prompt) :].tolist()


def test_stories_are_coherent(story_teller: RunnableModel) -> None:
    prompt = encoded(story_teller, "Once upon a time")
    assert story_teller.tokenizer is not None
    text = str(story_teller.tokenizer.decode(continuation(story_teller, prompt, 80)))
    assert "little girl named Lily" in text
    told = forward(story_teller, encoded(story_teller, "Once upon a time" + text).tokens)
    assert told.loss() < 1.0


def test_draws_follow_the_seed(story_teller: RunnableModel) -> None:
    prompt = encoded(story_teller, "Once upon a time")
    first, again, other = (continuation(story_teller, prompt, 30, temperature=1.0, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_continuation_ends_with_the_context(demo: RunnableModel) -> None:
    assert len(continuation(demo, encoded(demo, "abcdefgh" * 7), 40)) == 8


def test_the_demo_model_copies(demo: RunnableModel) -> None:
    assert demo.tokenizer is not None
    assert demo.tokenizer.decode(continuation(demo, encoded(demo, "kTw9xBq2Lm" * 2), 10)) == "kTw9xBq2Lm"


def test_an_encoder_does_not_write(encoder: RunnableModel) -> None:
    with pytest.raises(UnsupportedModel, match="takes a causal model with a language-model head"):
        continuation(encoder, encoded(encoder, "a word"))
    with pytest.raises(UnsupportedModel, match="a loss needs a causal model"):
        forward(encoder, encoded(encoder, "a word").tokens).loss()


@pytest.mark.parametrize("given", [{"length": 0}, {"temperature": -1.0}, {"temperature": float("nan")}])
def test_a_continuation_refuses_no_length_and_no_temperature(demo: RunnableModel, given: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="a continuation needs a length of at least 1 and a temperature >= 0"):
        continuation(demo, encoded(demo, "abc"), **given)
