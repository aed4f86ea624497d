"""A message between two heads is what the source wrote, and taking it from one reader leaves the others alone."""

from __future__ import annotations

import pytest
import torch

from headspan.dims import HeadLabel, Role
from headspan.errors import UnsupportedModel
from headspan.runtime import Forward, RunnableModel, forward
from headspan.runtime.interventions import head_space, intervened
from headspan.runtime.interventions.edits import head_slice
from headspan.runtime.interventions.messages import (
    NormedStream,
    WithoutMessage,
    arriving_message,
    readable_part,
)
from tests.families.tiny_models import CASES, TOKENS
from tests.runtime.test_forward import runnable

BY_NAME = {case.name: case for case in CASES}
SEPARATE = ["gpt2", "llama", "falcon-new-grouped", "gpt_neox", "qwen3", "gemma", "opt", "phi", "starcoder2"]
SOURCE = HeadLabel(0, 1)


def target_of(model: RunnableModel, role: Role) -> HeadLabel:
    return HeadLabel(1, 1, kv=role != "Q" and model.stack.n_kv_heads < model.n_heads)


@pytest.fixture(scope="module", params=SEPARATE)
def run(request: pytest.FixtureRequest) -> Forward:
    return forward(runnable(BY_NAME[request.param]), TOKENS)


@pytest.mark.parametrize("role", ["Q", "K", "V"])
def test_without_the_message_a_target_reads_as_if_the_source_had_written_nothing(run: Forward, role: Role) -> None:
    model, target = run.model, target_of(run.model, role)
    stream = NormedStream.of(run, 1)
    message = arriving_message(run, stream, SOURCE)
    part = readable_part(message, head_space(model, target, role))
    seen: list[torch.Tensor] = []
    with intervened(model, WithoutMessage(target, role, part)):
        hook = model.linear(role, 1).register_forward_hook(lambda module, args, result: seen.append(result))
        forward(model, TOKENS)
        hook.remove()
    # The definition: the norm at its old scale, of a stream that the source never wrote to.
    norm = model.heads().norm(1)
    state = run.states[:, 1].double() - run.head_writes(0)[:, :, 1].double()
    centred = state - state.mean(-1, keepdim=True) if norm.kind == "layernorm" else state
    read = norm.gain * centred * stream.inverse_sigma + (0 if norm.bias is None else norm.bias)
    rows = model.stack.projections[role].rows
    expected = model.linear(role, 1)(read)
    ours, theirs = (head_slice(each, rows, target.head) for each in (seen[0], expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    others = [head for head in range(rows.n_heads) if head != target.head]
    plain = model.linear(role, 1)(run.runs[1].read)
    for head in others:
        torch.testing.assert_close(head_slice(seen[0], rows, head), head_slice(plain, rows, head))


def test_only_the_targets_pattern_changes_in_its_layer(run: Forward) -> None:
    model, target = run.model, target_of(run.model, "K")
    message = arriving_message(run, NormedStream.of(run, 1), SOURCE)
    part = readable_part(message, head_space(model, target, "K"))
    with intervened(model, WithoutMessage(target, "K", part)):
        changed = forward(model, TOKENS)
    group = model.n_heads // model.stack.n_kv_heads if target.kv else 1
    own = set(range(target.head * group, (target.head + 1) * group))
    difference = (changed.runs[1].pattern - run.runs[1].pattern).abs().amax((0, 2, 3))
    for head in range(model.n_heads):
        assert (float(difference[head]) > 1e-8) == (head in own), head
    torch.testing.assert_close(changed.runs[0].pattern, run.runs[0].pattern)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bert", "reads no norm"),
        ("gemma2", "norms what all heads"),
        ("deepseek_v2", "latent spaces"),
        ("olmo2", "reads no norm|norms what all heads"),
    ],
)
def test_where_messages_are_not_defined_that_is_said(name: str, words: str) -> None:
    run = forward(runnable(BY_NAME[name]), TOKENS)
    with pytest.raises(UnsupportedModel, match=words):
        NormedStream.of(run, 1)
