"""A real GGUF file, written by llama.cpp: SmolLM2 135M from the file is the model that transformers makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import headspan
from headspan.runtime import RunnableModel, continuation, encoded, open_runnable
from headspan.runtime.interventions.ablation import head_space
from tests.families.proof import our_output, our_pattern, run

slow = pytest.mark.slow
pytestmark = [pytest.mark.xdist_group("smollm2")]


def test_its_header_says_everything_but_the_weights(smollm2_file: Path) -> None:
    checkpoint = headspan.open(smollm2_file).checkpoint
    assert len(checkpoint.store.infos) == 272
    assert sum(info.n_items for info in checkpoint.store.infos.values()) == 134_515_008
    stored = checkpoint.stack()
    assert (stored.missing(), stored.unclaimed()) == ([], [])
    assert len(list(stored.claimed())) == len(set(stored.claimed())) == 4 * 30
    assert stored.stored_as() == {
        "Attention": ["Q4_1 (4 bits, groups of 32)"],
        "MLP": ["Q4_1 (4 bits, groups of 32)"],
        "W_E": ["Q8_0 (8 bits, groups of 32)"],
        "W_U": ["Q8_0 (8 bits, groups of 32)"],
    }


def test_its_heads_have_full_rank_in_spite_of_four_bits(smollm2_file: Path) -> None:
    block = headspan.open(smollm2_file).heads().layer(0)
    noise = block.noise("Q") / block.W_Q.square().mean((-2, -1)).sqrt()
    assert float(noise.max()) == pytest.approx(0.090, abs=0.002)
    assert block.spaces("O").rank.tolist() == [[64] * 9]


@slow
def test_every_tensor_is_bit_for_bit_that_of_transformers(smollm2: Any, smollm2_file: Path) -> None:
    store, theirs = headspan.open(smollm2_file).checkpoint.store, smollm2.state_dict()
    assert set(store.infos) == set(theirs) - {"lm_head.weight"}
    for name in store.infos:
        assert torch.equal(store.read([name])[name], theirs[name].float())


@slow
def test_our_heads_reproduce_pattern_and_output(smollm2: Any, smollm2_file: Path) -> None:
    checkpoint = headspan.open(smollm2_file).checkpoint
    tokens = torch.randint(0, 49152, (1, 12), generator=torch.Generator().manual_seed(0))
    smollm2.set_attn_implementation("eager")
    seen = run(smollm2, "decoder", {"input_ids": tokens}, checkpoint)
    for layer in (0, 14, 29):
        torch.testing.assert_close(our_pattern(seen[layer], checkpoint.heads(), layer), seen[layer].pattern,
                                   rtol=1e-3, atol=1e-5)  # fmt: skip
        torch.testing.assert_close(our_output(seen[layer], checkpoint.heads(), layer), seen[layer].output,
                                   rtol=1e-3, atol=1e-4)  # fmt: skip


@pytest.fixture(scope="module")
def running(smollm2_file: Path) -> RunnableModel:
    return open_runnable(smollm2_file)


@slow
def test_the_capital_of_france_is_paris(running: RunnableModel) -> None:
    assert running.tokenizer is not None
    prompt = encoded(running, "The capital of France is")
    assert running.tokenizer.decode(continuation(running, prompt, length=1)) == " Paris"


@slow
def test_the_rank_of_a_running_head_is_decided_by_its_packing(running: RunnableModel) -> None:
    heads = running.heads()
    for label in ("L0H0", "L29H8"):
        layer, head = (int(part) for part in label[1:].split("H"))
        assert head_space(running, label, "Q").rank == heads.layer(layer).spaces("Q").rank[0, head]
