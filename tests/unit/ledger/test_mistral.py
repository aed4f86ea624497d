"""Claims about Mistral-7B run on its build: a small untrained model, and one made to be as described."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from headspan.checkpoint import Checkpoint, open_checkpoint
from headspan.checkpoint.synthetic import synthetic
from headspan.ledger import Examination, all_claims, examine

ABOUT = [claim.id for claim in all_claims() if claim.models[:1] == ("mistral",)]
D, GROUP = 256, 4


def verdict(name: str, model: Checkpoint) -> Examination:
    (claim,) = (claim for claim in all_claims() if claim.id == name)
    return examine(claim, models={"mistral": model})


def small(**fields: Any) -> transformers.MistralForCausalLM:
    sizes = {"hidden_size": D, "num_attention_heads": 8, "num_key_value_heads": 2, "num_hidden_layers": 4}
    config = transformers.MistralConfig(
        **sizes, intermediate_size=96, vocab_size=512, max_position_embeddings=512, sliding_window=None, **fields
    )
    torch.manual_seed(1)
    return transformers.MistralForCausalLM(config)


def with_values(rows: int, values: torch.Tensor) -> torch.Tensor:
    """A matrix [rows, D] with given singular values, on random bases."""
    U, V = (torch.linalg.qr(torch.randn(n, len(values), dtype=torch.float64)).Q for n in (rows, D))
    return (U @ torch.diag(values) @ V.T).float()


def filled(count: int, *groups: tuple[int, float], rest: float) -> torch.Tensor:
    values = torch.full((count,), rest, dtype=torch.float64)
    start = 0
    for size, value in groups:
        values[start : start + size] = value
        start += size
    return values


@pytest.fixture(scope="module")
def untrained(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """With a tokenizer, so that it can be run on text."""
    folder = tmp_path_factory.mktemp("mistral")
    small(bos_token_id=1, eos_token_id=2).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(stories / name, folder / name)
    return open_checkpoint(str(folder))


@pytest.fixture(scope="module")
def as_described() -> Checkpoint:
    """Spectra in the ranges of the thesis, and W_K unrelated to W_Q."""
    module = small()
    for layer in module.model.layers:
        attention = layer.self_attn
        queries = filled(D, (1, 3.5), rest=(6 / 255) ** 0.5)
        keys = filled(64, (1, 3.05), (7, 1.36), rest=0.2)
        values = filled(64, (1, 2.5), (8, 1.5), rest=0.9)
        for linear, rows, spectrum in (
            (attention.q_proj, D, queries),
            (attention.k_proj, 64, keys),
            (attention.v_proj, 64, values),
        ):
            linear.weight.data = with_values(rows, spectrum)
    return open_checkpoint(module)


@pytest.mark.parametrize("name", ABOUT)
def test_every_claim_about_mistral_can_be_tried_on_its_build(name: str, untrained: Checkpoint) -> None:
    found = verdict(name, untrained)
    assert not found.reason
    assert found.evidence is not None
    assert found.on == "mistral"
    assert found.verdict in ("pass", "fail")


@pytest.mark.parametrize("name", ["8.1", "A.20-A.21", "7.2.2a", "8.2b", "4.2.3"])
def test_a_small_untrained_mistral_is_not_the_published_one(name: str, untrained: Checkpoint) -> None:
    assert verdict(name, untrained).verdict == "fail"


@pytest.mark.parametrize("name", ["8.1", "A.20-A.21"])
def test_the_published_shape_is_told_from_its_configuration(name: str) -> None:
    assert verdict(name, synthetic("mistral-7b")).verdict == "pass"
    assert verdict(name, synthetic("mistral-7b", layers=4)).verdict == ("fail" if name == "8.1" else "pass")


def test_spectra_in_the_printed_ranges_pass_and_random_ones_do_not(as_described: Checkpoint) -> None:
    assert verdict("7.2.2a", as_described).verdict == "pass"
    assert verdict("7.2.2a", open_checkpoint(small())).verdict == "fail"


def test_a_trace_of_aligned_matrices_is_noticed(as_described: Checkpoint) -> None:
    assert verdict("A.22", as_described).verdict == "pass"
    module = small()
    for layer in module.model.layers:
        keys = layer.self_attn.k_proj.weight.data
        # Every query head asks with the keys it reads.
        layer.self_attn.q_proj.weight.data = keys.reshape(2, 32, D).repeat_interleave(GROUP, 0).reshape(D, D) * 2
    assert verdict("A.22", open_checkpoint(module)).verdict == "fail"
