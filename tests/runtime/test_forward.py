"""A run of a model shows what `transformers` shows, in every family, and keeps what it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from headspan.checkpoint import open_checkpoint
from headspan.errors import UnsupportedModel
from headspan.runtime import RunnableModel, forward, open_runnable
from headspan.runtime.forward_pass import output_matrices
from tests.families.tiny_models import CASES, TOKENS, Case

RUN = [case for case in CASES if case.kind in ("causal", "masked")]


# Latent norms and clips stand between the read stream and these values; the plain product leaves them out.
PLAIN_VALUES = [case for case in RUN if not {"kv_lora_rank", "clip_qkv", "attn_config"} & set(case.settings)]


def runnable(case: Case) -> RunnableModel:
    """A tiny model as headspan runs it from its tensors."""
    found = open_runnable(case.model(head=True).float(), dtype="float64")
    if "num_experts_per_tok" in case.settings:
        # Mixtures of experts have no grouped product in float64.
        found.module.set_experts_implementation("eager")
    return found


@pytest.fixture(scope="module")
def gpt2() -> RunnableModel:
    return runnable(next(case for case in CASES if case.name == "gpt2"))


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.name)
def test_patterns_are_those_that_transformers_returns(case: Case) -> None:
    model = runnable(case)
    run = forward(model, TOKENS)
    with torch.no_grad():
        theirs = model.module(input_ids=TOKENS, output_attentions=True, output_hidden_states=True)
    pattern = torch.stack([layer for layer in theirs.attentions if layer is not None], dim=1)
    torch.testing.assert_close(run.pattern(), pattern.to(run.pattern().dtype), rtol=0, atol=2e-7)
    torch.testing.assert_close(run.states, torch.stack(theirs.hidden_states[:-1], dim=1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(run.final, theirs.hidden_states[-1], rtol=1e-5, atol=1e-5)
    assert run.states.shape[1] == len(run.runs) == model.depth


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.name)
def test_log_patterns_are_the_logarithms_of_the_patterns(case: Case) -> None:
    model = runnable(case)
    run = forward(model, TOKENS)
    logs = run.log_pattern()
    # Several families take their softmax in float32 whatever the scores are.
    torch.testing.assert_close(logs.exp(), run.pattern().to(logs.dtype), rtol=1e-5, atol=1e-7)
    assert bool((logs <= 0).all())
    if model.causal:
        future = torch.ones(TOKENS.shape[1], TOKENS.shape[1], dtype=torch.bool).triu(1)
        assert bool(torch.isneginf(logs[..., future]).all())


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.name)
def test_what_heads_write_adds_up_to_what_the_attention_writes(case: Case) -> None:
    model = runnable(case)
    outputs: list[torch.Tensor] = []
    hooks = [
        model.linear("O", layer).register_forward_hook(lambda module, args, result: outputs.append(result))
        for layer in model.layers
    ]
    run = forward(model, TOKENS)
    for hook in hooks:
        hook.remove()
    for place, output in enumerate(outputs):
        bias = getattr(model.linear("O", run.runs[place].layer), "bias", None)
        ours = run.head_writes(place).sum(dim=2) + (0 if bias is None else bias)
        torch.testing.assert_close(ours, output, rtol=1e-9, atol=1e-9)
        norms = run.head_writes(place).norm(dim=-1)
        torch.testing.assert_close(run.write_norms()[:, place], norms, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("case", PLAIN_VALUES, ids=lambda case: case.name)
def test_what_was_read_makes_the_pattern_with_the_stored_weights(case: Case) -> None:
    """The read stream times W_V, mixed by the pattern, is what entered the output matrix."""
    model = runnable(case)
    run, heads = forward(model, TOKENS), model.checkpoint.heads(dtype="float64")
    for place, attention in enumerate(run.runs):
        block = heads.layer(attention.layer)
        values = torch.einsum("npd,hde->nhpe", attention.read, block.W_V[0])
        values = values if block.b_V is None else values + block.b_V[0][:, None, :]
        values = values.repeat_interleave(model.n_heads // values.shape[1], dim=1)
        mixed = attention.pattern.double() @ values
        torch.testing.assert_close(run.mixed_values(place), mixed.transpose(1, 2), rtol=1e-4, atol=1e-5)


def test_the_run_from_stored_tensors_is_that_of_the_model_itself(gpt2: RunnableModel) -> None:
    case = next(case for case in CASES if case.name == "gpt2")
    with torch.no_grad():
        theirs = case.model(head=True)(input_ids=TOKENS, labels=TOKENS)
    run = forward(gpt2, TOKENS)
    assert run.logits is not None
    torch.testing.assert_close(run.logits, theirs.logits, rtol=1e-5, atol=1e-5)
    assert run.loss() == pytest.approx(float(theirs.loss), rel=1e-5)


def test_logarithms_survive_where_probabilities_round_to_zero(gpt2: RunnableModel) -> None:
    with torch.no_grad():
        weight = gpt2.linear("Q", 0).get_parameter("weight")
        before = weight.clone()
        weight.mul_(40)
        run = forward(gpt2, TOKENS)
        weight.copy_(before)
    lost = (run.runs[0].pattern == 0) & torch.isfinite(run.log_pattern(0))
    assert bool(lost.any())
    assert bool((run.log_pattern(0)[lost] < -700).all())


def test_scores_need_not_be_kept(gpt2: RunnableModel) -> None:
    run, whole = forward(gpt2, TOKENS, scores=False), forward(gpt2, TOKENS)
    assert all(attention.scores is None for attention in run.runs)
    torch.testing.assert_close(run.pattern(), whole.pattern())
    torch.testing.assert_close(run.log_pattern(), whole.log_pattern(), rtol=1e-9, atol=1e-9)


def test_output_matrices_follow_the_running_module(gpt2: RunnableModel) -> None:
    weight = gpt2.linear("O", 1).get_parameter("weight")
    with torch.no_grad():
        weight.mul_(2)
        doubled = output_matrices(gpt2, 1).clone()
        weight.div_(2)
    np.testing.assert_allclose(doubled, 2 * gpt2.checkpoint.heads(dtype="float64").W_O[1])


def test_hooks_are_gone_after_a_run_and_after_one_that_failed(gpt2: RunnableModel) -> None:
    def hooked() -> int:
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in gpt2.module.modules())

    before = hooked()
    forward(gpt2, TOKENS)
    with pytest.raises(IndexError, match="index out of range"):
        forward(gpt2, torch.tensor([[10_000]]))
    assert hooked() == before
    assert forward(gpt2, TOKENS).pattern().shape == (2, 2, 3, 9, 9)


def test_a_model_that_takes_no_softmax_is_refused(gpt2: RunnableModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headspan.runtime.forward_pass.SOFTMAXES", frozenset())
    with pytest.raises(UnsupportedModel, match="cannot return attentions"):
        forward(gpt2, TOKENS)


def test_a_partial_checkpoint_is_refused_by_what_it_lacks(gpt2_attention: Path) -> None:
    with pytest.raises(UnsupportedModel, match="cannot be run: this checkpoint has no W_E and no MLP"):
        open_runnable(gpt2_attention)


@pytest.mark.parametrize("kind", ["t5", "whisper", "vit", "clip"])
def test_models_that_are_neither_causal_nor_text_encoders_are_refused(kind: str) -> None:
    case = next(case for case in CASES if case.name == kind)
    with pytest.raises(UnsupportedModel, match="runs causal language models and text encoders"):
        open_runnable(case.model(), stack=next(iter(open_checkpoint(case.model()).stacks)))


def test_opening_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    open_runnable("demo")
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
