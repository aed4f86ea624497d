"""A run from one layer on is the whole run, in every family: patterns of that layer, and logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headspan.runtime import RunnableModel, forward
from headspan.runtime.replay import Replay
from tests.families.tiny_models import CASES, TOKENS, Case
from tests.runtime.test_forward import RUN, runnable

BY_NAME = {case.name: case for case in CASES}


def disturbed(model: RunnableModel, layer: int) -> Any:
    """A hook that adds something to what the value matrix of a layer returns; its handle."""
    return model.linear("V", layer).register_forward_hook(lambda module, args, out: out + out.roll(1, dims=1))


QUICK = {"gpt2", "llama", "bert", "albert", "falcon-new-grouped", "gemma2"}
"""Blocks that return tuples and tensors, shared layers; the other families in the slow suite."""


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.name in QUICK else pytest.mark.slow) for case in RUN],
    ids=lambda case: case.name,
)
def test_a_run_from_the_last_layer_on_is_the_whole_run(case: Case) -> None:
    model = runnable(case)
    plain = forward(model, TOKENS)
    replay, layer = Replay.of(plain), model.layers[-1]
    hook = disturbed(model, layer)
    try:
        changed = forward(model, TOKENS)
        attention, logits = replay.run(layer, copies=2)
    finally:
        hook.remove()
    first = next(run for run in changed.runs if run.layer == layer)
    assert torch.allclose(attention.pattern, first.pattern.repeat(2, 1, 1, 1), atol=1e-6)
    if changed.logits is not None:
        assert logits is not None
        torch.testing.assert_close(logits, changed.logits.repeat(2, 1, 1), rtol=1e-5, atol=1e-6)
        assert not torch.allclose(changed.logits, plain.logits)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "bert"])
def test_blocks_before_the_layer_do_not_run_and_those_behind_it_only_when_asked(name: str) -> None:
    model = runnable(BY_NAME[name])
    replay = Replay.of(forward(model, TOKENS))
    ran: list[int] = []
    hooks = [
        model.linear("Q", layer).register_forward_hook(lambda module, args, out, layer=layer: ran.append(layer))
        for layer in model.layers
    ]
    replay.run(1, to_the_end=False)
    assert ran == [1]
    replay.run(1)
    assert ran == [1, *model.layers[1:]]
    for hook in hooks:
        hook.remove()
    assert not any("forward" in vars(block) for block in replay.blocks)


def test_the_model_runs_as_before_afterwards() -> None:
    model = runnable(BY_NAME["llama"])
    plain = forward(model, TOKENS)
    Replay.of(plain).run(1, copies=3)
    again = forward(model, TOKENS)
    assert plain.logits is not None
    assert again.logits is not None
    assert torch.equal(plain.logits, again.logits)
