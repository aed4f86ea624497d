"""Two models run on the same tokens: numbers are those of the models, and a random change says nothing."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch

import headspan
from tests.conftest import Program
from tests.families.tiny_models import COMMON, Case
from tests.unit.test_compare import page
from tests.unit.test_drift import gpt2, noisy

RUN = {"run": True, "sequences": 6, "length": 12, "draws": 6}


def language_model() -> torch.nn.Module:
    shape = {"n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 16}
    return Case("gpt2", "gpt2", {**COMMON, **shape}).model(head=True)


def changed(scale: float, seed: int) -> torch.nn.Module:
    """All linear layers with Gaussian noise."""
    model, generator = language_model(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".c_" in name and weight.ndim == 2:
                weight += scale * weight.std() * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return model


@pytest.fixture(scope="module")
def result() -> headspan.Result:
    return headspan.compare(language_model(), changed(0.1, 1), **RUN)


def test_losses_and_divergence_are_those_of_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    from headspan.lenses.compare import behavior

    tokens = torch.randint(40, (6, 12), generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(behavior, "token_buffers", lambda *_: ("sampled", tokens))
    pair = [language_model(), changed(0.3, 1)]
    node = headspan.compare(*pair, **RUN)["behavior"]
    outputs = []
    for model in pair:
        model.set_attn_implementation("eager")
        with torch.no_grad():
            outputs.append(model(tokens, labels=tokens, output_attentions=True))
    assert float(node.loss_before) == pytest.approx(float(outputs[0].loss), rel=1e-4)
    assert float(node.loss_change) == pytest.approx(float(outputs[1].loss - outputs[0].loss), rel=1e-2, abs=1e-4)
    p, q = (torch.stack(output.attentions).double()[:, :, :, 1:] for output in outputs)
    middle = (p + q) / 2
    parts = [torch.where(one > 0, one * (one / middle).log(), 0.0).sum(-1) for one in (p, q)]
    divergence = ((parts[0] + parts[1]) / 2).mean((1, 3))
    np.testing.assert_allclose(node.divergence, divergence.flatten(), rtol=1e-2)


def test_a_random_change_does_what_a_random_change_does(result: headspan.Result) -> None:
    node = result["behavior"]
    assert (node.divergence_q > 0.01).all()
    assert float(node.loss_change_p) > 0.01
    assert float(node.state_change_p) > 0.01
    assert float(node.loss_change_low) < float(node.loss_change) < float(node.loss_change_high)
    assert result.attrs["behavior_on"] == "tokens that the first model writes, 6 sequences of 12 tokens"
    (attention,) = [one for one in result.findings if one.statement.startswith("Attention of L")]
    assert "none of 6 heads departs from a random change" in attention.statement
    assert [one for one in result.findings if one.statement.startswith("The loss goes from ")]


def test_a_change_that_keeps_away_from_a_head_is_told_from_a_random_one() -> None:
    base, other = language_model(), language_model()
    with torch.no_grad():
        other.transformer.h[1].attn.c_attn.weight[:, 24:48] *= 1.5  # keys of one layer grow: its attention sharpens
    node = headspan.compare(base, other, **RUN)["behavior"]
    first = node.divergence.where(node.head_layer == 0, drop=True)
    assert (first == 0).all()
    assert node.divergence_p.where(node.head_layer == 0, drop=True).isnull().all()
    assert (node.divergence.where(node.head_layer == 1, drop=True) > 0).all()


def test_a_model_and_itself_behave_alike_and_nothing_is_said() -> None:
    same = headspan.compare(language_model(), language_model(), **RUN)
    node = same["behavior"]
    assert (node.divergence == 0).all()
    assert float(node.loss_change) == float(node.state_change) == 0
    assert node.divergence_p.isnull().all()
    (only,) = same.findings
    assert "bit for bit" in only.statement


def test_weights_of_the_models_are_left_as_they_were() -> None:
    base, other = language_model(), changed(0.1, 1)
    kept = [deepcopy(model.state_dict()) for model in (base, other)]
    headspan.compare(base, other, **{**RUN, "draws": 3})
    for model, before in zip((base, other), kept, strict=True):
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_an_encoder_has_divergence_and_states_but_no_loss() -> None:
    case = Case("bert", "bert", {**COMMON, "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2})
    pair = [case.model(), case.model()]
    with torch.no_grad():
        for weight in pair[1].parameters():
            if weight.ndim == 2:
                weight += 0.05 * weight.std() * torch.randn(weight.shape, dtype=weight.dtype)
    result = headspan.compare(*pair, **RUN)
    assert "loss_change" not in result["behavior"]
    assert float(result["behavior"].state_change) > 0
    assert result.attrs["behavior_on"].startswith("repeated random tokens")
    assert "Both models, run" in page(result)


def test_nothing_is_run_unless_asked_for_and_what_cannot_run_says_why() -> None:
    assert "behavior" not in headspan.compare(gpt2(), gpt2(noisy), draws=3)
    case = Case("t5", "t5", {"d_model": 24, "num_heads": 3, "d_kv": 8, "d_ff": 32, "num_layers": 2, "vocab_size": 40})
    model = case.model()
    result = headspan.compare(model, model, stack="encoder", **RUN)
    assert "headspan runs causal language models and text encoders" in result.attrs["behavior_left_out"]
    assert "Left out: headspan runs causal" in page(result)


def test_the_command_runs_both_models(program: Program) -> None:
    arguments = ["compare", "demo", "demo", "--run", "--sequences", "4", "--length", "8", "--draws", "3"]
    done = program(*arguments, "--noise", "rounding")
    assert done.returncode == 0, done.stderr
    assert "bit for bit" in done.stdout
    wrong = program("compare", "demo", "demo", "--noise", "loud")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "headspan: noise='loud' is unknown; random changes are gaussian and rounding\n"
