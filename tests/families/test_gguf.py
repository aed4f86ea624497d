"""GGUF files of every architecture: the model that was written is the model that is read, and runs as it did."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch

import headspan
from headspan.checkpoint.families import FAMILIES
from headspan.checkpoint.families.gguf import ARCHITECTURES
from headspan.runtime import checkpoint_obstacle, open_runnable
from tests.families.gguf_models import GGUF_CASES, write_gguf
from tests.families.tiny_models import TOKENS

NAMES = list(GGUF_CASES)


@cache
def model(name: str) -> Any:
    _, case = GGUF_CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return case.model(head=True, dtype=torch.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


def written(name: str, folder: Path, kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32) -> Path:
    path = folder / f"{NAMES.index(name)}-{kind.name}.gguf"
    if not path.exists():
        write_gguf(path, GGUF_CASES[name][0], model(name), kind)
    return path


def test_every_architecture_is_proven_and_its_family_known() -> None:
    assert {arch for arch, _ in GGUF_CASES.values()} == set(ARCHITECTURES)
    for architecture in ARCHITECTURES.values():
        assert architecture.model_type in FAMILIES


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_is_that_of_the_original(name: str, folder: Path) -> None:
    checkpoint = headspan.open(written(name, folder)).checkpoint
    original = model(name).state_dict()
    read = checkpoint.store.read(list(checkpoint.store.infos))
    tied = {"lm_head.weight"} if model(name).config.tie_word_embeddings else set()
    repeated = {
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
        "pooler.dense.weight",
        "pooler.dense.bias",
    }
    assert set(read) == set(original) - tied - repeated
    shifted = GGUF_CASES[name][0].startswith("gemma")
    for key, tensor in read.items():
        assert tuple(tensor.shape) == checkpoint.store.infos[key].shape
        # A gain that was stored with 1 added has lost its last digits.
        slack = 1e-6 if shifted and "norm" in key else 0.0
        torch.testing.assert_close(tensor, original[key], rtol=0, atol=slack)


@pytest.mark.parametrize("name", NAMES)
def test_heads_norms_and_positions_are_those_of_the_original(name: str, folder: Path) -> None:
    opened, original = headspan.open(written(name, folder)), headspan.open(model(name))
    assert opened.stacks == original.stacks
    for stack in opened.stacks:
        ours, theirs = (one.checkpoint.stack(stack).stack for one in (opened, original))
        for fact in ("n_layers", "n_heads", "n_kv_heads", "d_model", "d_head", "d_value", "rotary", "softcap", "clip"):
            assert getattr(ours, fact) == getattr(theirs, fact), fact
        assert ours.scale == pytest.approx(theirs.scale)
        assert ours.norm.eps == pytest.approx(theirs.norm.eps)
        assert opened.checkpoint.stack(stack).missing() == original.checkpoint.stack(stack).missing()
        assert opened.checkpoint.stack(stack).unclaimed() == []
        a, b = opened.heads(stack=stack), original.heads(stack=stack)
        for role in ("W_Q", "W_K", "W_V", "W_O"):
            assert torch.equal(getattr(a, role), getattr(b, role)), role


@pytest.mark.parametrize("name", NAMES)
def test_what_runs_gives_the_logits_of_the_original(name: str, folder: Path) -> None:
    checkpoint = headspan.open(written(name, folder)).checkpoint
    if checkpoint_obstacle(checkpoint, None) is not None:
        assert name.startswith("t5"), "only models of two stacks do not run"
        return
    running = open_runnable(checkpoint)
    with torch.no_grad():
        ours, theirs = running.module(TOKENS)[0], model(name)(TOKENS)[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
