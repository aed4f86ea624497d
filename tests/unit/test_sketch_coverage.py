"""How often a sketch lets a pair of the true top fall below the bar, counted over many sketches of one model."""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
import torch
from torch import Tensor

import headspan
from headspan.lenses.affinity.estimates import estimated_kernels
from headspan.subspaces.sketch import kernel_standard_error, lowest_plausible

PAIRINGS = ("OQ", "OK", "OV")
SHAPE = {
    "model_type": "llama",
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "hidden_size": 256,
    "head_dim": 16,
    "intermediate_size": 8,
    "vocab_size": 8,
}
WIDTH, TOP, SKETCHES = 64, 20, 60
CONFIDENCE = 0.8
FAILURE = (1 - CONFIDENCE) / (len(PAIRINGS) * TOP)


@cache
def true_top() -> dict[str, tuple[float, np.ndarray]]:
    """Of every pairing the least kernel of the top, and the places of its pairs."""
    exact = headspan.affinity(model(), metrics="pk", draws=10)
    found = {}
    for pairing in PAIRINGS:
        kernels = np.nan_to_num(exact[pairing]["projection_kernel"].values.ravel(), nan=-1.0)
        places = np.argsort(-kernels)[:TOP]
        found[pairing] = float(kernels[places[-1]]), places
    return found


@cache
def model() -> headspan.Heads:
    return headspan.synthetic(SHAPE, planted=8, strength=4.0, seed=3).heads()


@cache
def estimates() -> list[dict[str, Tensor]]:
    return [
        estimated_kernels(model(), PAIRINGS, width=WIDTH, seed=seed, tolerance=None, memory=10**9).tables
        for seed in range(SKETCHES)
    ]


def share_that_missed(bars: dict[str, float]) -> float:
    """Of all sketches, those that put a pair of the true top below the bar of its pairing."""
    missed = [
        any(bool((tables[name].flatten()[true_top()[name][1].copy()] < bar).any()) for name, bar in bars.items())
        for tables in estimates()
    ]
    return float(np.mean(missed))


@pytest.mark.slow
def test_no_more_sketches_than_stated_miss_a_pair_of_the_top() -> None:
    bars = {name: lowest_plausible(least, 16, 16, WIDTH, FAILURE) for name, (least, _) in true_top().items()}
    assert share_that_missed(bars) <= 1 - CONFIDENCE


def test_with_half_the_standard_error_most_would() -> None:
    z = NormalDist().inv_cdf(1 - FAILURE) / 2
    bars = {}
    for name, (least, _) in true_top().items():
        x = torch.linspace(least, 16, 400, dtype=torch.float64)
        bars[name] = float((x - z * kernel_standard_error(x, 16, 16, WIDTH)).min())
    assert share_that_missed(bars) > 0.5
