"""Queries and keys from what a layer reads, against the running model's own scores."""

from __future__ import annotations

import pytest
import torch

from headspan.checkpoint import open_checkpoint
from headspan.errors import ShapeError, UnsupportedModel
from headspan.heads.logits import projection_obstacle, queries_or_keys, relative_rotation
from headspan.runtime import forward, open_runnable
from tests.families.tiny_models import CASES, TOKENS


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3", "bert", "olmo2"])
def test_queries_and_keys_give_the_running_models_scores(family: str) -> None:
    case = next(case for case in CASES if case.name == family)
    model = open_runnable(case.model(head=True).float(), dtype="float64")
    heads = model.heads().to("float64")
    run = forward(model, TOKENS).runs[1]
    q, k = (queries_or_keys(heads, role, 1, run.read)[0] for role in ("Q", "K"))
    k = k.repeat_interleave(heads.n_heads // len(k), dim=0)
    for delta in (0, 1, 4):
        R = relative_rotation(heads, delta, [1])
        turned = q if R is None else q @ R[0]
        ours = heads.stack.scale[1] * (turned[:, delta:] * k[:, : k.shape[1] - delta]).sum(-1)
        theirs = run.scores[0].diagonal(offset=-delta, dim1=-2, dim2=-1)
        # Some families take the norm of queries and keys in float32 whatever the model runs in.
        assert torch.allclose(ours, theirs, rtol=0, atol=2e-6)


def test_latent_attention_is_refused_by_name() -> None:
    case = next(case for case in CASES if case.name == "deepseek_v3")
    heads = open_checkpoint(case.model().float()).heads()
    assert "latent attention" in str(projection_obstacle(heads))
    with pytest.raises(UnsupportedModel, match="latent attention"):
        queries_or_keys(heads, "Q", 0, torch.zeros(3, heads.d_model))


def test_reads_of_another_width_are_refused() -> None:
    heads = open_checkpoint("demo").heads()
    with pytest.raises(ShapeError, match="d_model"):
        queries_or_keys(heads, "Q", 0, torch.zeros(3, heads.d_model + 1))
