"""False-positive rates of `validate`'s tests of cause: contrasts and rankings at equal read energy.

Simulated tables of effects, and small untrained models that are run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from docs.calibration.rows import Row, rows
from headspan.lenses.validate.contrast import contrasts, rankings
from headspan.lenses.validate.selection import SCORES

COVERS = {"validate": ("ratio_p", "ratio_untrained_p", "spearman_p", "spearman_untrained_p")}
PERMUTATIONS = 999
LAYERS, HEADS = 3, 6
TESTS = {"validate: strong over weak pairs": "ratio", "validate: rank correlation with effects": "spearman"}


def rates(seed: int = 0, draws: int = 300) -> list[Row]:
    """Shares of p-values at or below each level, with 95 % Wilson intervals, under three nulls."""
    generator = np.random.default_rng(seed)
    rates_found: list[Row] = []
    for null, simulate, share in (
        ("own null", _independent, 1.0),
        ("source and target effects in scores and effects, heavy tails", _with_head_effects, 1.0),
        ("untrained GPT-2 models", _untrained, 0.1),
    ):
        found = [_p_values(simulate(generator), generator) for _ in range(max(int(share * draws), 1))]
        for test, name in TESTS.items():
            p = np.array([each[name] for each in found])
            rates_found += rows(test, null, p[~np.isnan(p)])
    return rates_found


def _p_values(effects: pd.DataFrame, generator: np.random.Generator) -> dict[str, float]:
    seed = int(generator.integers(2**31))
    over = contrasts(effects, PERMUTATIONS, seed).query("sample == 'strong over weak' and outcome == 'pattern_change'")
    ranked = rankings(effects, PERMUTATIONS, seed).query("score == @SCORES[0] and outcome == 'pattern_change'")
    return {"ratio": float(over["ratio_p"].iloc[0]), "spearman": float(ranked["spearman_p"].iloc[0])}


def _table(scores: Callable[[int, int], Any], effects: Callable[[int, int], Any]) -> pd.DataFrame:
    """Blocks of all pairs of layers; the five largest scores are strong, the smallest beside each is weak."""
    parts = []
    for number, (low, high) in enumerate((a, b) for a in range(LAYERS) for b in range(a + 1, LAYERS)):
        src, dst = np.indices((HEADS, HEADS)).reshape(2, -1)
        names = {"src": [f"L{low}H{i}" for i in src], "dst": [f"L{high}H{j}" for j in dst]}
        values = {SCORES[0]: np.exp(scores(low, high)).ravel(), "pattern_change": np.exp(effects(low, high)).ravel()}
        parts.append(pd.DataFrame({**names, **values, "block": number}))
    table = pd.concat(parts, ignore_index=True).assign(pairing="OK", drawn=True, loss_size=np.nan, chosen="other")
    table[SCORES[1]] = table[SCORES[0]]
    table.loc[table[SCORES[0]].nlargest(5).index, "chosen"] = "strong"
    for _, own in table.groupby(["block", "dst"]):
        if (own["chosen"] == "strong").any():
            table.loc[own[own["chosen"] != "strong"][SCORES[0]].idxmin(), "chosen"] = "weak"
    return table


def _independent(generator: np.random.Generator) -> pd.DataFrame:
    def normal(low: int, high: int) -> Any:
        return generator.normal(size=(HEADS, HEADS))

    return _table(normal, normal)


def _with_head_effects(generator: np.random.Generator) -> pd.DataFrame:
    """Heads that are strong as sources or targets, in scores and in effects, independently; rests with heavy tails."""
    size = (LAYERS, HEADS)
    sides = [(2 * generator.normal(size=size), 2 * generator.normal(size=size)) for _ in range(2)]

    def drawn(source: Any, target: Any) -> Callable[[int, int], Any]:
        return lambda low, high: source[low][:, None] + target[high] + generator.standard_t(3, size=(HEADS, HEADS))

    return _table(drawn(*sides[0]), drawn(*sides[1]))


def _untrained(generator: np.random.Generator) -> pd.DataFrame:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from headspan.lenses.affinity import affinity
    from headspan.lenses.validate.cause import causal_effects
    from headspan.lenses.validate.selection import chosen_blocks
    from headspan.runtime import forward, open_runnable

    torch.manual_seed(int(generator.integers(2**31)))
    size = {"n_embd": 48, "n_head": HEADS, "n_layer": 2, "n_positions": 32, "vocab_size": 50}
    config = AutoConfig.for_model("gpt2", **size, bos_token_id=0, eos_token_id=None)
    model = open_runnable(AutoModelForCausalLM.from_config(config))
    blocks = chosen_blocks(affinity(model.heads(), pairings="OK"), 5, 1, HEADS, 0)
    return causal_effects(forward(model, torch.randint(50, (2, 12))), blocks, lambda step: None)
