"""What can write to what: sequential and parallel blocks, cross-attention, tables and logits."""

from __future__ import annotations

import pytest

from headspan.checkpoint.config import Config
from headspan.checkpoint.families import FAMILIES, Stack, default_fields
from headspan.checkpoint.families.order import can_compose, step


def stack(model_type: str, name: str | None = None, **fields: object) -> Stack:
    described = FAMILIES[model_type](Config({**default_fields(model_type), **fields, "model_type": model_type}, "test"))
    return next(one for one in described if name is None or one.name == name)


SEQUENTIAL = (
    "gpt2",
    "llama",
    "bert",
    "bloom",
    "gpt_neo",
    "mistral",
    "gemma2",
    "olmo2",
    "stablelm",
    "opt",
    "starcoder2",
)
PARALLEL = ("gptj", "codegen", "gpt_neox", "falcon", "phi", "cohere")


@pytest.mark.parametrize("model_type", SEQUENTIAL)
def test_in_a_sequential_block_the_mlp_reads_its_own_layers_heads(model_type: str) -> None:
    one = stack(model_type)
    assert can_compose(one, "O", 1, "MLP", 1)
    assert not can_compose(one, "MLP", 1, "Q", 1)


@pytest.mark.parametrize("model_type", PARALLEL)
def test_in_a_parallel_block_nothing_composes_within_a_layer(model_type: str) -> None:
    one = stack(model_type)
    assert not can_compose(one, "O", 1, "MLP", 1)
    assert not can_compose(one, "MLP", 1, "K", 1)
    assert can_compose(one, "O", 1, "MLP", 2)
    assert can_compose(one, "MLP", 1, "V", 2)


def test_the_config_can_put_blocks_in_a_row_or_side_by_side() -> None:
    assert not stack("gpt_neox", use_parallel_residual=False).parallel
    assert not stack("falcon", parallel_attn=False).parallel
    assert stack("stablelm", use_parallel_residual=True).parallel


@pytest.mark.parametrize("model_type", ["gpt2", "gptj"])
def test_order_between_layers(model_type: str) -> None:
    one = stack(model_type)
    for role in ("Q", "K", "V"):
        assert can_compose(one, "O", 0, role, 1)
        assert not can_compose(one, "O", 1, role, 1)
        assert not can_compose(one, "O", 2, role, 1)
        assert can_compose(one, "W_E", 0, role, 0)
        assert can_compose(one, "W_pos", 0, role, one.n_layers - 1)
    assert can_compose(one, "MLP", 0, "MLP", 1)
    assert not can_compose(one, "MLP", 1, "MLP", 1)
    for part in ("O", "MLP", "W_E"):
        assert can_compose(one, part, one.n_layers - 1, "logits", 0)


@pytest.mark.parametrize("model_type", ["t5", "bart", "whisper"])
def test_keys_and_values_of_cross_attention_read_nothing_of_the_decoders_stream(model_type: str) -> None:
    cross = stack(model_type, "cross")
    assert step(cross, "K", 3) is None
    assert not can_compose(cross, "O", 0, "K", 3)
    assert not can_compose(cross, "W_E", 0, "V", 3)
    assert can_compose(cross, "O", 0, "Q", 3)
    assert can_compose(cross, "W_E", 0, "Q", 0)
    # Cross-attention stands between the attention and the MLP of its layer.
    decoder = stack(model_type, "decoder")
    times = [step(decoder, "O", 1), step(cross, "O", 1), step(decoder, "MLP", 1)]
    assert times == sorted(times, key=lambda time: -1 if time is None else time)
    assert len(set(times)) == 3


def test_passes_through_shared_layers_come_before_the_logits() -> None:
    albert = stack("albert", num_hidden_layers=12)
    assert can_compose(albert, "O", 11, "logits", 0)
