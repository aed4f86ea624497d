"""A real language model: SmolLM2 135M, whose heads are grouped and whose weights were stored in 4 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import headspan
from headspan.lenses.affinity.wiring import edges
from headspan.result import Result
from headspan.statistics import two_way

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("smollm2")]


@pytest.fixture(scope="module")
def result(smollm2: Any) -> Result:
    return headspan.affinity(smollm2, metrics="pk", draws=2)


def test_some_pairs_stand_out_and_few_are_strong(result: Result) -> None:
    assert result.attrs["null"] == "two-way"
    for pairing, n_pairs in {"OQ": 35235, "OK": 11745, "OV": 11745}.items():
        node = result.to_json()["pairings"][pairing]
        assert node["n_pairs"] == n_pairs
        assert 0.03 < node["n_significant"] / n_pairs < 0.1
        assert node["n_significant_reverse"] < 0.65 * node["n_significant"]
        assert 10 <= node["projection_kernel_n_strong"] <= 60
        # Random subspaces are no filter: a third of all pairs and more beat them.
        assert float((edges(result, pairing)["q_haar"] < 0.05).mean()) > 0.3


def test_the_strongest_pair_stands_far_out(result: Result) -> None:
    best = result.top(1, pairing="OV").iloc[0]
    assert (best["src"], best["dst"]) == ("L23H2", "L29K0")
    assert best["score"] == pytest.approx(37.3, abs=0.1)
    assert best["expected"] == pytest.approx(5.3, abs=0.1)


def independent_bases(W: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Heads drawn by themselves from the covariance of their layer: as anisotropic as the model, and unrelated."""
    n_layers, n_heads, d, p = W.shape
    pooled = W.transpose(1, 2).reshape(n_layers, d, -1).double()
    covariance = pooled @ pooled.mT / pooled.shape[-1]
    root = torch.linalg.cholesky(covariance + 1e-6 * covariance.diagonal(dim1=-2, dim2=-1).mean() * torch.eye(d))
    drawn = torch.randn(n_layers, n_heads, d, p, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(root[:, None] @ drawn)[0].mT.reshape(-1, d)


def test_unrelated_heads_with_the_covariance_of_its_layers_do_not_stand_out(smollm2: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    heads = headspan.open(smollm2).heads()
    written = independent_bases(heads.W_O.mT, generator)
    read = independent_bases(heads.W_K, generator)
    n_src, n_dst, p = heads.n_layers * heads.n_heads, heads.n_layers * heads.n_kv_heads, heads.d_head
    table = (written @ read.T).square().reshape(n_src, p, n_dst, p).sum((1, 3)).numpy()
    layers = np.arange(heads.n_layers)
    found = two_way(table, np.repeat(layers, heads.n_heads), np.repeat(layers, heads.n_kv_heads))
    assert (found.q < 0.05).sum() <= 3
    assert (found.mirror_fdr <= 0.1).sum() == 0
    assert (found.p < 0.001).sum() / np.isfinite(found.p).sum() < 0.002
