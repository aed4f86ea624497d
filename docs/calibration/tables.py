"""p-values of tables: Mantel's test (validate), edges of evolution, attention within shots."""

from __future__ import annotations

import numpy as np
import xarray as xr

from docs.calibration.rows import Row, rows
from headspan.lenses.attention.few_shot import within_shots
from headspan.lenses.shots import ShotTokens
from headspan.runtime.prompt import Prompt
from headspan.statistics import mantel
from headspan.sweeps.course.wiring import tail_q

COVERS = {"validate": ("spearman_p", "mean_spearman_p"), "attention": ("within_p",)}
MEMBERS, PERMUTATIONS = 12, 999
TOKENS, N_SHOTS, N_HEADS = 120, 6, 4


def _symmetric(values: np.ndarray) -> np.ndarray:
    table: np.ndarray = (values + values.T) / 2
    np.fill_diagonal(table, np.nan)
    return table


def _mantel(random: np.random.Generator, uneven: float) -> float:
    """Two unrelated tables; `uneven` members have more of everything in both, by effects that are independent."""
    tables = []
    for _ in range(2):
        effects = uneven * random.exponential(size=MEMBERS)
        tables.append(_symmetric(random.normal(size=(MEMBERS, MEMBERS)) + effects[:, None] + effects))
    return float(mantel([tables[0]], [tables[1]], PERMUTATIONS, int(random.integers(2**31)))["p_value"][0])


def _edge(random: np.random.Generator, shape: float) -> float:
    """Smallest q of a pairing without edges: at or below x in a share x of pairings at most."""
    kernel, reverse = (xr.DataArray(random.gamma(shape, size=(1, 8, 8)), dims=("step", "src", "dst")) for _ in range(2))
    return float(tail_q(kernel, reverse).min())


def _shots(random: np.random.Generator, noisy: float) -> np.ndarray:
    """Heads that know distances, not boundaries; with noise on every key of its own."""
    place = np.arange(TOKENS)
    starts = np.sort(random.choice(np.arange(6, TOKENS - 6, 4), N_SHOTS, replace=False))
    shot = np.searchsorted(starts, place, side="right") - 1
    apart = place[:, None] - place
    logits = -apart / random.uniform(3, 30, size=(N_HEADS, 1, 1)) + noisy * random.normal(size=(N_HEADS, 1, TOKENS))
    raised = np.where(apart >= 0, np.exp(logits), 0.0)
    prompt = Prompt(tuple(range(TOKENS)), ("",) * TOKENS, (False,) * TOKENS)
    return within_shots(raised / raised.sum(-1, keepdims=True), ShotTokens(prompt, shot, shot, shot)).p


def rates(seed: int, draws: int, stress: bool = True) -> list[Row]:
    """Rates over `draws` tables, pairings and prompts each."""
    random = np.random.default_rng(seed)
    found: list[Row] = []
    count = None if stress else 1
    for null, uneven in (("own null", 0.0), ("members differ", 2.0))[:count]:
        p = np.array([_mantel(random, uneven) for _ in range(draws)])
        found += rows("validate distances (Mantel)", null, p)
    for null, shape in (("own null", 200.0), ("skewed kernels", 20.0), ("strongly skewed kernels", 6.0))[:count]:
        found += rows("evolution edges, smallest q", null, np.array([_edge(random, shape) for _ in range(4 * draws)]))
    for null, noisy in (("own null", 0.0), ("keys differ", 1.0))[:count]:
        p = np.concatenate([_shots(random, noisy) for _ in range(draws)])
        found += rows("attention within shots", null, p[~np.isnan(p)])
    return found
