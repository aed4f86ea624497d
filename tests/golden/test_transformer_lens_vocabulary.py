"""Tokens along singular directions and eigenvalues over tokens against TransformerLens, on a small GPT-2."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headspan
from tests.golden import transformer_lens_oracle as oracle
from tests.golden import transformer_lens_vocabulary as script

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("transformer_lens")]  # one environment, built once


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("gpt2")
    torch.manual_seed(3)
    config = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=48, vocab_size=300, n_positions=32)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    try:
        oracle.environment()
    except oracle.NoOracle as reason:
        pytest.skip(str(reason))
    oracle.run_there([str(script.__file__), str(folder), str(folder / "answers.npz")])
    with np.load(folder / "answers.npz") as archive:
        theirs = dict(archive)
    return theirs, headspan.vocabulary(folder, leading=4, count=300, draws=50, fold="none", dtype="float64")


def scores_by_token(tokens, z):
    """Scores of all tokens in the order of their ids, from the whole list of the high end."""
    found = np.empty(len(tokens))
    found[tokens] = z
    return found


def agree(ours, theirs):
    centered = theirs - theirs.mean(0)
    expected = centered / np.sqrt((centered**2).mean(0))
    sign = np.sign((ours * expected).sum(0))
    np.testing.assert_allclose(ours * sign, expected, atol=1e-9)


def test_tokens_along_the_directions_of_heads_are_those_of_the_svd_interpreter(both):
    theirs, ours = both
    node = ours["OV"].sel(side="write", end="high")
    for place in range(8):
        found = [scores_by_token(node.token.values[place, k], node.token_z.values[place, k]) for k in range(4)]
        agree(np.stack(found, 1), theirs["OV"].reshape(-1, 300, 4)[place])


def test_tokens_along_the_directions_of_mlps_are_those_of_the_svd_interpreter(both):
    theirs, ours = both
    node = ours["MLP"].sel(side="W_out", end="high")
    for layer in range(2):
        found = [scores_by_token(node.token.values[layer, k], node.token_z.values[layer, k]) for k in range(4)]
        agree(np.stack(found, 1), theirs["w_out"][layer])


def test_eigenvalues_are_those_of_a_factored_matrix(both):
    theirs, ours = both
    node, expected = ours["copying"], theirs["eigenvalues"].reshape(8, -1)
    found = node.copying_eigenvalue_real.values + 1j * node.copying_eigenvalue_imag.values
    for mine, other in zip(found, expected / 300, strict=True):
        assert np.abs(mine[:, None] - other).min(0).max() < 1e-12 + 1e-9 * np.abs(other).max()
    positivity = expected.real.sum(-1) / np.abs(expected).sum(-1)
    np.testing.assert_allclose(node.copying.values, positivity, rtol=1e-8)
