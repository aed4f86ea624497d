"""What holding geometry against behavior says: invariances, distances, and whether affinity ranks causes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from headspan.finding import Finding, significance
from headspan.result import Result

LENS = "validate"
ROUNDING = 1e-4
"""Relative change of scores below which only rounding is left, in float32."""
SCORE_NAMES = {"projection_kernel": "projection kernel", "composition_score": "composition score"}
OUTCOME_NAMES = {"pattern_change": "target's attention", "loss_size": "loss"}
LEVEL = 0.05


def findings(result: Result) -> list[Finding]:
    """Findings of every question that applied."""
    found = [*_invariance(result)] if "invariance" in result else []
    found += [*_distance(result)] if "distance" in result else []
    return found + ([*_contrasts(result), *_rankings(result)] if "cause" in result else [])


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


def _contrasts(result: Result) -> Iterator[Finding]:
    table = result.table("contrasts").dropna(subset="ratio")
    for outcome, what in OUTCOME_NAMES.items():
        strong, weak, own = (
            table[(table["sample"] == sample) & (table["outcome"] == outcome)]
            for sample in ("strong", "weak", "strong over weak")
        )
        if own.empty:
            continue
        best = own.loc[own["ratio_q"].idxmin()]
        clear = own[(own["ratio_q"] < LEVEL) & (own["ratio"] > 1)]
        told, verb = _each(clear if len(clear) else own, "ratio", ".2f"), "changes" if len(clear) else "does not change"
        yield Finding(
            LENS,
            f"At equal read energy, removing the message of a high-affinity source {verb} the {what} "
            f"more than that of a low-affinity source: ratio {told}.",
            value=float(best["ratio"]),
            expected=1.0,
            p=float(best["ratio_p"]),
            q=float(best["ratio_q"]),
            evidence="Strongest pairs against the weakest of the same targets, source and target effects removed; "
            f"heads permuted within their layers. All: {_each(own, 'ratio', '.2f')}. Strong pairs alone: "
            f"{_each(strong, 'ratio', '.2f')}. Weak pairs alone: {_each(weak, 'ratio', '.2f')}.",
            figure="Affinity against causal effect",
            weight=0.6 if len(clear) else 0.3,
        )


def _rankings(result: Result) -> Iterator[Finding]:
    table = result.table("rankings")
    for score, words in SCORE_NAMES.items():
        for outcome, what in OUTCOME_NAMES.items():
            own = table[(table["score"] == score) & (table["outcome"] == outcome)].dropna(subset="spearman")
            if own.empty:
                continue
            best = own.loc[own["spearman_q"].idxmin()]
            clear = own[(own["spearman_q"] < LEVEL) & (own["spearman"] > 0)]
            told = _each(clear if len(clear) else own, "spearman", "+.2f")
            yield Finding(
                LENS,
                f"The {words} {'ranks' if len(clear) else 'does not rank'} the effect of messages on the {what} "
                f"at equal read energy: rank correlation {told}.",
                value=float(best["spearman"]),
                expected=0.0,
                p=float(best["spearman_p"]),
                q=float(best["spearman_q"]),
                evidence="Random blocks of pairs, source and target effects removed; heads permuted within their "
                f"layers. All: {_each(own, 'spearman', '+.2f')}.",
                figure="How scores rank effects",
                weight=0.55 if len(clear) else 0.25,
            )


def _each(own: pd.DataFrame, name: str, form: str) -> str:
    """Every pairing's value with the untrained twin's beside it."""
    return ", ".join(
        f"{row['pairing']} {row[name]:{form}} (untrained {row[f'{name}_untrained']:{form}}, "
        f"{significance('q', row[f'{name}_q'])})"
        for row in own.to_dict("records")
    )
