"""Where TransformerLens 4.3.0 and headspan define the same detector, they give every head the same score."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from headspan.runtime import forward, open_runnable
from headspan.runtime.detectors import DETECTORS, detect
from tests.golden import transformer_lens_detectors as detectors
from tests.golden import transformer_lens_oracle as oracle

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("transformer_lens")]  # one environment, built once


@pytest.fixture(scope="module")
def small_gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random GPT-2 of three layers whose heads look sharply, each at something else."""
    torch.manual_seed(0)
    size = {"n_embd": 48, "n_head": 4, "n_layer": 3, "n_positions": 64, "vocab_size": 100}
    model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.25 * torch.randn_like(parameter))
    folder = tmp_path_factory.mktemp("small") / "gpt2"
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("period", [7, 12])
def test_scores_of_every_head_are_those_of_transformer_lens(small_gpt2: Path, tmp_path: Path, period: int) -> None:
    try:
        oracle.environment()
    except oracle.NoOracle as reason:
        pytest.skip(str(reason))
    segment = torch.randint(1, 20, (period,), generator=torch.Generator().manual_seed(period)).tolist()
    tokens = [0, *segment, *segment, *segment[: period // 2]]
    with np.load(detectors.answers(small_gpt2, tokens, tmp_path / "answers.npz")) as archive:
        theirs = dict(archive)
    given = torch.tensor([tokens])
    ours, _ = detect(forward(open_runnable(small_gpt2), given))
    for number, name in enumerate(DETECTORS):
        if name in theirs:
            counted = int(DETECTORS[name](given, True).any(-1).sum())
            np.testing.assert_allclose(ours[number] * counted / len(tokens), theirs[name], atol=1e-5)
            assert float(ours[number].max() - ours[number].min()) > 0.05, "all heads alike would prove little"
