"""False-positive rates of the test of attention against cosines: heads that know positions only."""

from __future__ import annotations

import numpy as np
import torch

from docs.calibration.rows import Row, rows
from headspan.lenses.attention.states import angular_correlation, cosines

COVERS = {"attention": ("embedding_correlation_p", "state_correlation_p")}
POSITIONS, D_MODEL, HEADS, STEP = 64, 32, 8, 0.8
TEST = "attention: rank correlation with cosines"


def rates(seed: int = 0, draws: int = 400) -> list[Row]:
    """Shares of p-values at or below each level, with 95 % Wilson intervals; `draws` texts of 8 heads each."""
    generator = np.random.default_rng(seed)
    found: list[Row] = []
    for null in ("own null", "positional heads", "smooth in absolute positions"):
        found += rows(TEST, null, np.concatenate([p_values(null, generator) for _ in range(draws)]))
    return found


def p_values(null: str, generator: np.random.Generator) -> np.ndarray:
    """Of heads that ignore the states of one text, whose neighbors are alike (independent under the own null)."""
    states = autocorrelated(generator, 0.0 if null == "own null" else STEP)
    logits = np.stack([content_blind(null, generator) for _ in range(HEADS)])
    masked = torch.tensor(np.where(np.tri(POSITIONS) > 0, logits, -np.inf))
    _, p = angular_correlation(masked.softmax(-1), cosines(torch.tensor(states))[None], True, 2 * POSITIONS, 0)
    return p[0]


def autocorrelated(generator: np.random.Generator, step: float) -> np.ndarray:
    """Normal states, each `step` times the one before plus something new."""
    states = generator.normal(size=(POSITIONS, D_MODEL))
    for place in range(1, POSITIONS):
        states[place] = step * states[place - 1] + np.sqrt(1 - step**2) * states[place]
    return states


def content_blind(null: str, generator: np.random.Generator) -> np.ndarray:
    """Logits that depend on positions and noise."""
    place = np.arange(POSITIONS)
    noise = 0.3 * generator.normal(size=(POSITIONS, POSITIONS))
    if null == "own null":
        return noise
    if null == "positional heads":
        distance = place[:, None] - place
        return -generator.uniform(0.1, 0.8) * np.abs(distance - generator.integers(4)) + noise
    near = np.exp(-0.5 * ((place[:, None] - place) / 4) ** 2) + 1e-6 * np.eye(POSITIONS)
    courses = np.linalg.cholesky(near) @ generator.normal(size=(2, POSITIONS, 6))
    return 0.8 * courses[0] @ courses[1].T
