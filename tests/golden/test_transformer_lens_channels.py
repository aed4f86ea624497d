"""Channels between heads against TransformerLens' factored products of circuits, on a small GPT-2."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headspan
from tests.golden import transformer_lens_channels as script
from tests.golden import transformer_lens_oracle as oracle

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("transformer_lens")]  # one environment, built once
HEADS = 4


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("gpt2")
    torch.manual_seed(3)
    config = transformers.GPT2Config(n_layer=2, n_head=HEADS, n_embd=48, vocab_size=300, n_positions=32)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    try:
        oracle.environment()
    except oracle.NoOracle as reason:
        pytest.skip(str(reason))
    oracle.run_there([str(script.__file__), str(folder), str(folder / "answers.npz")])
    with np.load(folder / "answers.npz") as archive:
        return dict(archive), headspan.open(folder).heads()


@pytest.mark.parametrize("pairing", ["OQ", "OK", "OV"])
def test_channels_of_a_pair_are_the_factored_decomposition_up_to_sign(both, pairing: str) -> None:
    theirs, heads = both
    for src in range(HEADS):
        for dst in range(HEADS):
            options = {"pairings": pairing, "fold": "none", "vocabulary": False, "draws": 50, "top": 12}
            result = headspan.channels(heads, f"L0H{src}", f"L1H{dst}", **options)
            S, U, V = (theirs[f"{pairing}_{part}"][src * HEADS + dst] for part in "SUV")
            node = result[f"top/{pairing}"]
            np.testing.assert_allclose(node.strength, S, rtol=1e-7, atol=1e-12 * S[0])
            ours = node.direction.sel(side=["source", "target"]).transpose("side", "channel", "feature").values
            # The sign of a channel is free, that of its two ends together is not.
            cosines = np.stack([(ours[0] * U.T).sum(-1), (ours[1] * V.T).sum(-1)])
            np.testing.assert_allclose(np.abs(cosines), 1, atol=1e-8)
            np.testing.assert_allclose(cosines[0] * cosines[1], 1, atol=1e-8)


@pytest.mark.parametrize("pairing", ["OQ", "OK", "OV"])
def test_leading_strengths_of_all_pairs_are_those_of_the_factored_products(both, pairing: str) -> None:
    theirs, heads = both
    result = headspan.channels(heads, pairings=pairing, fold="none", vocabulary=False, null="haar")
    ours = result.grid(pairing)["strength"].sel(src_layer=0, dst_layer=1).values
    np.testing.assert_allclose(ours.ravel(), theirs[f"{pairing}_S"][:, 0], rtol=1e-7)
