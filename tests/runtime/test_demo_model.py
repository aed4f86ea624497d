"""The demo model does what its scores say, and can be made again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from demo_model.card import CLEAR_SCORE, model_card, score_record
from demo_model.task import DISTRIBUTIONS, Distribution, copying_accuracy, head_scores, open_demo, tiled_sequences
from demo_model.train import Recipe, untrained_model, write_demo
from headspan.demo import demo_folder

MEGABYTE = 1_000_000
FEW_SEEDS = (7, 8, 9)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def demo() -> LlamaForCausalLM:
    return open_demo(demo_folder())


@pytest.fixture(scope="module")
def scores() -> dict[str, Any]:
    record: dict[str, Any] = json.loads((demo_folder() / "scores.json").read_text(encoding="utf-8"))
    return record


def assert_same_scores(measured: dict[str, Any], recorded: dict[str, Any]) -> None:
    assert measured.keys() == recorded.keys()
    for name, score in recorded.items():
        assert measured[name] == pytest.approx(score, abs=1e-4), name


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_demo_copies_repeated_tokens(demo: LlamaForCausalLM, kind: Distribution) -> None:
    score = copying_accuracy(demo, kind, seeds=FEW_SEEDS)
    assert score.value > 0.95 > score.chance


def test_an_untrained_model_does_not_copy() -> None:
    model = untrained_model(seed=0)
    model.set_attn_implementation("eager")
    assert copying_accuracy(model, "uniform", seeds=FEW_SEEDS).value < 0.1
    for layer in head_scores(model, seeds=FEW_SEEDS).induction:
        for score in layer:
            assert score.value == pytest.approx(score.chance, abs=0.01)


def test_named_heads_score_what_scores_json_says(demo: LlamaForCausalLM, scores: dict[str, Any]) -> None:
    measured = score_record(demo, scores["recipe"])
    for table in ("accuracy", "previous_token_score", "induction_score"):
        assert_same_scores(measured[table], scores[table])
    assert measured["previous_token_heads"] == scores["previous_token_heads"]
    assert measured["induction_heads"] == scores["induction_heads"]


def test_previous_token_heads_sit_in_layer_0_and_induction_heads_in_layer_1(scores: dict[str, Any]) -> None:
    for kind, layer in (("previous_token", "L0"), ("induction", "L1")):
        named = scores[f"{kind}_heads"]
        assert named
        assert all(label.startswith(layer) for label in named)
        assert all(scores[f"{kind}_score"][label]["value"] > CLEAR_SCORE for label in named)


def test_model_card_says_what_scores_json_says(scores: dict[str, Any]) -> None:
    assert (demo_folder() / "README.md").read_text(encoding="utf-8") == model_card(scores)


def test_tokenizer_round_trips() -> None:
    tokenizer = AutoTokenizer.from_pretrained(demo_folder(), local_files_only=True)
    ids = tokenizer("abcabc")["input_ids"]
    assert ids == [0, 1, 2, 0, 1, 2]
    assert tokenizer.decode(ids) == "abcabc"
    assert len(tokenizer) == 64


def test_config_and_tokenizer_agree_on_the_special_tokens() -> None:
    tokenizer = AutoTokenizer.from_pretrained(demo_folder(), local_files_only=True)
    config = AutoModelForCausalLM.from_pretrained(demo_folder(), local_files_only=True).config
    assert (tokenizer.bos_token_id, tokenizer.pad_token_id) == (config.bos_token_id, config.pad_token_id)
    assert config.eos_token_id is None
    assert config.vocab_size == len(tokenizer)


def test_demo_weighs_less_than_a_megabyte() -> None:
    assert sum(file.stat().st_size for file in demo_folder().iterdir()) < MEGABYTE


def test_no_file_names_a_place_on_the_machine_that_made_it() -> None:
    for file in demo_folder().iterdir():
        content = file.read_bytes()
        for place in (str(Path(__file__).parents[2]).encode(), b"/home/", b"/tmp/", b"/root/", b"_name_or_path"):
            assert place not in content, (file.name, place)


@pytest.mark.slow
def test_retraining_is_deterministic(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for output in (first, second):
        write_demo(output, Recipe(seed=3, steps=4))
    names = sorted(file.name for file in first.iterdir())
    assert names == sorted(file.name for file in demo_folder().iterdir())
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_sequences_repeat_with_their_period(kind: Distribution) -> None:
    sequences = tiled_sequences(32, torch.Generator().manual_seed(0), kind)
    for tokens, period in zip(sequences.tokens, sequences.period.tolist(), strict=True):
        assert torch.equal(tokens[period:], tokens[:-period])
        assert int(tokens.max()) < 62


def test_demo_folder_is_found_without_loading_torch() -> None:
    code = "import sys, headspan.demo as d; d.demo_folder(); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
