r"""Do targets respond more to sources of high affinity, at equal read energy? Two statistics and one permutation test.

Effects e of the pairs of a block are taken as log e = source + target + rest: some messages are monotonous and some
targets indifferent, whoever they are paired with. The rest is what this source and this target have in common.

- `rankings`: Spearman's correlation of the rests of log score and log effect in a block, mean over random blocks.
- `contrasts`: exp(mean rest) of strong pairs, of the weak pairs beside them, and of strong over weak ones, source and
  target effects taken from the other pairs of the block.

Null: which heads of two layers a score belongs to says nothing about the effect. Every group of sources and every group
of targets is permuted, the same way in all blocks that it is in. Heads of untrained weights are exchangeable within a
layer, so that the test keeps its level for them, up to the effects that are estimated. p-values are two-sided, q over
pairings and outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from headspan.lenses.validate.selection import SCORES, Group
from headspan.statistics import empirical_p_value, q_values, quantile_interval

Array = npt.NDArray[np.float64]
OUTCOMES = {"pattern_change": ("pattern_expected", 1e-15), "loss_size": ("loss_expected", 1e-9)}
"""What is tested, the name of its expectation, and the size below which it is rounding, in nats."""
PARTS = ("strong", "weak")
SAMPLES = {"strong": {"strong": 1.0}, "weak": {"weak": 1.0}, "strong over weak": {"strong": 1.0, "weak": -1.0}}
"""Contrasts of the mean rests of strong and weak pairs."""
TIE = 1e-12


@dataclass(frozen=True, eq=False)
class Term:
    """What one block adds to a statistic: sum(weights * values), with values to be permuted."""

    sources: Group
    targets: Group
    weights: Array
    values: Array


def additive_fit(values: Array) -> Array:
    """Row mean + column mean - mean of a table."""
    fit: Array = values.mean(0, keepdims=True) + values.mean(1, keepdims=True) - values.mean()
    return fit


def rankings(effects: pd.DataFrame, draws: int, seed: int) -> pd.DataFrame:
    """Rank correlation of every score with every effect over random blocks: `spearman` in [-1, 1], 0 under the null.

    Parameters
    ----------
    effects
        From `headspan.lenses.validate.cause.causal_effects`.
    draws, seed
        Number of permutations, and their random seed.
    """
    generator = np.random.default_rng(seed)
    rows = []
    for pairing, own in effects[effects["drawn"].astype(bool)].groupby("pairing", sort=False):
        for score in SCORES:
            for outcome in OUTCOMES:
                terms = [_ranked(block, score, outcome) for block in _known(own, outcome)]
                value, drawn = permuted_mean(terms, len(terms), draws, generator)
                names = {"pairing": str(pairing), "score": score, "outcome": outcome}
                rows.append({**names, **_tested("spearman", value, drawn), "blocks": len(terms)})
    return _with_q(rows, "spearman", ("pairing", "score", "outcome", "blocks"))


def contrasts(effects: pd.DataFrame, draws: int, seed: int) -> pd.DataFrame:
    """Effect of strong and weak pairs over what source and target lead to expect: `ratio`, 1 under the null.

    Parameters
    ----------
    effects
        From `headspan.lenses.validate.cause.causal_effects`.
    draws, seed
        Number of permutations, and their random seed.
    """
    generator = np.random.default_rng(seed)
    rows = []
    for pairing, own in effects.groupby("pairing", sort=False):
        for outcome in OUTCOMES:
            parts = {
                sample: [_contrasted(block, sample, outcome) for block in _known(own, outcome)] for sample in PARTS
            }
            counts = {sample: sum(count for _, count in part) for sample, part in parts.items()}
            for sample, signs in SAMPLES.items():
                terms = [
                    replace(term, weights=sign * term.weights / max(counts[each], 1))
                    for each, sign in signs.items()
                    for term, _ in parts[each]
                ]
                pairs = min(counts[each] for each in signs)
                value, drawn = permuted_mean(terms, min(pairs, 1), draws, generator)
                names = {"pairing": str(pairing), "sample": sample, "outcome": outcome}
                rows.append({**names, **_tested("ratio", value, drawn, np.exp), "pairs": pairs})
    return _with_q(rows, "ratio", ("pairing", "sample", "outcome", "pairs"))


def permuted_mean(terms: Sequence[Term], count: int, draws: int, generator: np.random.Generator) -> tuple[float, Array]:
    """sum(weights * values) / count over all terms, and the same with sources and targets permuted: [draw]."""
    orders: dict[Group, npt.NDArray[np.int64]] = {}
    observed, drawn = 0.0, np.zeros(draws)
    for term in terms:
        for group in (term.sources, term.targets):
            if group not in orders:
                orders[group] = generator.permuted(np.tile(np.arange(len(group)), (draws, 1)), axis=1)
        rows, columns = orders[term.sources], orders[term.targets]
        observed += float((term.weights * term.values).sum())
        drawn += (term.weights * term.values[rows[:, :, None], columns[:, None, :]]).sum((1, 2))
    return (observed / count, drawn / count) if count else (np.nan, np.full(draws, np.nan))


@dataclass(frozen=True, eq=False)
class _Table:
    """One block of the table of effects, as squares [source, target]."""

    sources: Group
    targets: Group
    rows: pd.DataFrame

    def square(self, name: str) -> npt.NDArray[np.object_]:
        values: npt.NDArray[np.object_] = self.rows[name].to_numpy(object)
        return values.reshape(len(self.sources), len(self.targets))

    def logs(self, name: str, floor: float) -> Array:
        return np.log(np.maximum(self.square(name).astype(np.float64), floor))


def _known(own: pd.DataFrame, outcome: str) -> Iterator[_Table]:
    """Blocks in which the effect of every pair is known."""
    for _, rows in own.groupby("block", sort=False):
        if rows[outcome].notna().all():
            yield _Table(tuple(dict.fromkeys(rows["src"])), tuple(dict.fromkeys(rows["dst"])), rows)


def _ranked(block: _Table, score: str, outcome: str) -> Term:
    """Standard ranks of the rests of score and effect; 0 where all are equal, which ranks nothing."""
    logs = block.logs(score, np.finfo(float).tiny), block.logs(outcome, OUTCOMES[outcome][1])
    ranks = []
    for each in logs:
        rest = stats.rankdata(each - additive_fit(each)).reshape(each.shape)
        ranks.append((rest - rest.mean()) / max(float(rest.std()), TIE))
    return Term(block.sources, block.targets, ranks[0] / ranks[0].size, ranks[1])


def _contrasted(block: _Table, sample: str, outcome: str) -> tuple[Term, int]:
    """The sum of the rests of strong (or weak) pairs, and their number."""
    chosen = block.square("chosen")
    weights, count = rest_weights(chosen == sample, chosen == "other")
    return Term(block.sources, block.targets, weights, block.logs(outcome, OUTCOMES[outcome][1])), count


def rest_weights(picked: npt.NDArray[np.bool_], others: npt.NDArray[np.bool_]) -> tuple[Array, int]:
    """Weights of a table's values whose sum is that of the rests of picked entries, and how many these are.

    Source and target effects are fitted to the others by least squares. An entry whose row or column has no other has
    no expectation, and is left out.
    """
    picked = picked & others.any(1, keepdims=True) & others.any(0, keepdims=True)
    rows, columns = np.indices(picked.shape).reshape(2, -1)
    design = np.concatenate([np.eye(picked.shape[0])[rows], np.eye(picked.shape[1])[columns]], axis=1)
    fit = design[picked.ravel()].sum(0) @ np.linalg.pinv(design[others.ravel()])
    weights = picked.astype(np.float64)
    weights[others] -= fit
    return weights, int(picked.sum())


def _tested(name: str, value: float, drawn: Array, told: Callable[[float], float] = float) -> dict[str, float]:
    """A statistic, the central 95 % of its permutations, and its two-sided p-value."""
    low, high = quantile_interval(drawn)
    p = float(empirical_p_value(abs(value), np.abs(drawn), TIE)) if np.isfinite(value) else np.nan
    return {name: float(told(value)), "null_low": float(told(low)), "null_high": float(told(high)), f"{name}_p": p}


def _with_q(rows: list[dict[str, Any]], name: str, others: tuple[str, ...]) -> pd.DataFrame:
    """The rows as a table; q over the pairings and outcomes of each sample, or of each score."""
    table = pd.DataFrame(rows, columns=[*others[:3], name, "null_low", "null_high", f"{name}_p", others[3]])
    table[f"{name}_q"] = np.nan
    for _, own in table.groupby(others[1]):
        table.loc[own.index, f"{name}_q"] = q_values(own[f"{name}_p"].to_numpy(np.float64))
    return table
