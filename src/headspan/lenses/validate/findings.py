"""What holding geometry against behavior says: invariances, distances, and whether affinity ranks causes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from headspan.finding import Finding
from headspan.result import Result

LENS = "validate"
ROUNDING = 1e-4
"""Relative change of scores below which only rounding is left, in float32."""
SCORE_NAMES = {"projection_kernel": "projection kernel", "composition_score": "composition score"}
OUTCOME_NAMES = {"pattern_change": "the target's pattern", "loss_size": "the loss"}


def findings(result: Result) -> list[Finding]:
    """Findings of every question that applied."""
    found = [*_invariance(result)] if "invariance" in result else []
    found += [*_distance(result)] if "distance" in result else []
    return found + ([*_control(result), *_ranking(result)] if "cause" in result else [])


def _invariance(result: Result) -> Iterator[Finding]:
    own = result.dataset("invariance")
    null = float(max(own["query_null"].max(), own["key_null"].max()))
    read = float(min(own["query_read"].min(), own["key_read"].min()))
    blind = int(((own["query_null"] < ROUNDING) & (own["key_null"] < ROUNDING)).sum())
    total = own["query_null"].size
    yield Finding(
        LENS,
        f"{blind} of {total} heads are blind to the null spaces of their queries and keys: scores change by at most "
        f"{null:.1g} of their size, against at least {read:.2g} for a vector as long in the read space.",
        value=null,
        expected=None,
        evidence="Running model, a random vector as long as the input added at every position.",
        weight=0.3 if blind == total else 0.8,
    )
    common = float(own["key_common_softmax"].max())
    turned = result.attrs["positions"] == "rotary" or result.attrs["normed_keys"]
    why = " Positions turn keys here (or a norm follows), so what is common to all keys does not stay common."
    seen = "is invisible after the softmax" if common < 10 * ROUNDING else "shows after the softmax"
    yield Finding(
        LENS,
        f"A vector added to all keys alike {seen}: attention changes by up to {common:.2g}.",
        value=common,
        expected=0.0,
        evidence="Largest change of any attention probability over all heads." + (why if turned else ""),
        weight=0.2,
    )


def _distance(result: Result) -> Iterator[Finding]:
    own = result.dataset("distance")
    mean, p = float(own["mean_spearman"]), float(own["mean_spearman_p"])
    if not np.isfinite(mean):
        return
    clear = int((own["spearman_p"] < 0.05).sum())
    yield Finding(
        LENS,
        f"Heads with closer attention spaces {'do' if p < 0.05 and mean > 0 else 'do not clearly'} attend more alike: "
        f"rank correlation {mean:+.2f} within layers, p < 0.05 in {clear} of {own.sizes['layer']} layers.",
        value=mean,
        expected=0.0,
        p=p,
        evidence="Grassmann distance against Jensen-Shannon divergence of patterns, mean over layers; Mantel test.",
        reference="Mantel (1967)",
        figure="Distance against behavior",
        weight=0.6 if p < 0.05 else 0.3,
    )


def _control(result: Result) -> Iterator[Finding]:
    table = result.table("pairs").dropna(subset=["pattern_change", "pattern_control"])
    strong = table[table["chosen"] == "strong"]
    if strong.empty:
        return
    ratio = float((strong["pattern_change"] / strong["pattern_control"].clip(lower=1e-12)).median())
    above = int((strong["pattern_excess"] > 0).sum())
    yield Finding(
        LENS,
        f"Taking away what a target reads of a strong source changes its pattern {ratio:.1f} times as much as "
        f"taking away as much of that message at random; more in {above} of {len(strong)} pairs.",
        value=ratio,
        expected=1.0,
        evidence="Median over the strongest pairs of OQ and OK; control: random directions of the write space, same "
        "removed energy.",
        figure="Affinity against causal effect",
        weight=0.5,
    )


def _ranking(result: Result) -> Iterator[Finding]:
    table = result.table("rankings")
    for score, words in SCORE_NAMES.items():
        for outcome, what in OUTCOME_NAMES.items():
            own = table[(table["score"] == score) & (table["outcome"] == outcome) & (table["sample"] == "random")]
            own = own.dropna(subset="spearman")
            if own.empty:
                continue
            best = own.loc[own["spearman"].abs().idxmax()]
            yield _ranked(own, best, words, what)


def _ranked(own: pd.DataFrame, best: pd.Series, words: str, what: str) -> Finding:
    said = ", ".join(f"{row.pairing} {row.spearman:+.2f} [{row.low:+.2f}, {row.high:+.2f}]" for row in own.itertuples())
    clear = own[own["low"] > 0]["pairing"].tolist()
    verdict = f"ranks it for {', '.join(clear)}" if clear else "does not rank it clearly"
    return Finding(
        LENS,
        f"Effect of a removed message on {what}: over random pairs the {words} {verdict}.",
        value=float(best["spearman"]),
        expected=0.0,
        evidence=f"Spearman's correlation with 95% intervals over pairs: {said}.",
        figure="How scores rank effects",
        weight=0.55 if clear else 0.35,
    )
