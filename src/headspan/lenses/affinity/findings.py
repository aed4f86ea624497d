"""What the affinities of a model say: strongest pairs, direction, how many pairs are significant, and hubs."""

from __future__ import annotations

import math

import numpy as np

from headspan.finding import Finding
from headspan.lenses.affinity.schema import KERNEL, PAPER
from headspan.lenses.affinity.wiring import (
    composing_pairings,
    edges,
    head_node,
    hub_scores,
    is_sketched,
    metrics_of,
    ranked_hubs,
)
from headspan.result import Result
from headspan.statistics.permutation import smallest_direction_p

ALGORITHMS = {
    "": "",
    "gram": " of all pairs, by products of bases",
    "projector": " of all pairs, by inner products of projectors",
    "sketch": ", sketched and then verified",
}
DISTRIBUTIONS = "Scores and their nulls"
READ = {"OQ": "query", "OK": "key", "OV": "value"}


def findings(result: Result) -> list[Finding]:
    """Findings over OQ, OK and OV, from the projection kernel."""
    used = [pairing for pairing in composing_pairings(result) if _has_pairs(result, pairing)]
    found = [_strongest(result, pairing) for pairing in used]
    if is_sketched(result):
        found += [_certified(result, used)] if used else []
    else:
        found += [finding for pairing in used if (finding := _direction(result, pairing)) is not None]
        found += [_significant(result, pairing) for pairing in used]
    hub = _hub(result) if used else None
    return found if hub is None else [*found, hub]


def _strongest(result: Result, pairing: str) -> Finding:
    best, heads = edges(result, pairing, top=1).iloc[0], head_node(result, pairing)
    expected = float(result[pairing][f"{KERNEL}_mean_null"])
    limit = min(int(heads["src_rank"].max()), int(heads["dst_rank"].max()))
    null = "haar" if is_sketched(result) else "reverse"
    q = _known(best[f"q_{null}"])
    sure = "" if q is None else f", q = {q:.2g} under the {null} null"
    return Finding(
        lens="affinity",
        statement=f"{best['src']} → {best['dst']} is the strongest {pairing[1]}-composition: the subspaces overlap in "
        f"{best['score']:.1f} of {limit} dimensions (expected {expected:.1f}{sure}).",
        value=float(best["score"]),
        expected=expected,
        q=q,
        evidence=f"Projection kernel {pairing}{ALGORITHMS[result.attrs.get('algorithm', '')]}; q is corrected for all "
        + (
            "pairs, under independent random subspaces (haar)."
            if null == "haar"
            else "pairs, under the reverse null (pairs of the same model in reverse order)."
        ),
        reference=PAPER,
        weight=0.8 if best["score"] > 3 * expected else 0.4,
    )


def _certified(result: Result, pairings: list[str]) -> Finding:
    """What a sketch vouches for: how many of the top pairs are exact, with what confidence."""
    nodes, top = [result[pairing] for pairing in pairings], result.attrs["top"]
    least, verified = min(int(node["certified"]) for node in nodes), sum(int(node["verified"]) for node in nodes)
    n_pairs = sum(int(node["n_pairs"]) for node in nodes)
    short = "" if least >= top else f" {top} were asked for; beyond these, too many pairs are alike to be ranked."
    return Finding(
        lens="affinity",
        statement=f"The {least} strongest pairs of every pairing are exact with confidence "
        f"{result.attrs['confidence']:.0%}: {verified:,} of {n_pairs:,} pairs were computed, the others estimated."
        f"{short}",
        value=float(least),
        evidence=f"Sketches of {result.attrs['sketch_width']} numbers a direction; union bound over the top pairs.",
        weight=0.5,
    )


def _direction(result: Result, pairing: str) -> Finding | None:
    node = result[pairing]
    p, difference, mean = (float(node[f"{KERNEL}_{name}"]) for name in ("direction_p", "direction", "mean"))
    if np.isnan(p):
        return None
    backward = float(node[f"{KERNEL}_reverse"].mean())
    n_layers = len(np.unique(node["src_layer"].values))
    if smallest_direction_p(n_layers) >= 0.05:
        return Finding(
            lens="affinity",
            statement=f"Output-to-{READ[pairing]} overlap is {mean:.2f} dimensions in causal and {backward:.2f} in "
            f"reverse order; with {n_layers} layers no test of the direction can be significant (its smallest "
            f"p-value is {smallest_direction_p(n_layers):.2g}).",
            value=difference,
            expected=0.0,
            p=p,
            evidence=f"{n_layers} layers have {math.factorial(n_layers)} orders, each as likely as its reverse.",
            figure=DISTRIBUTIONS,
            weight=0.05,
        )
    word = ("higher" if difference > 0 else "lower") if p < 0.05 else "not significantly different"
    than = "than" if p < 0.05 else "from that"
    return Finding(
        lens="affinity",
        statement=f"Output-to-{READ[pairing]} overlap is {word} in causal order {than} in reverse order "
        f"(mean {mean:.2f} vs {backward:.2f} dimensions, permutation p = {p:.2g}).",
        value=difference,
        expected=0.0,
        p=p,
        evidence=f"Mean kernel {pairing} of composing pairs less that of pairs in reverse order; p by permuting the "
        "order of the layers.",
        figure=DISTRIBUTIONS,
        weight=0.6 if p < 0.05 else 0.1,
    )


def _significant(result: Result, pairing: str) -> Finding:
    table = edges(result, pairing)
    haar, reverse = (float((table[f"q_{null}"] < 0.05).mean()) for null in ("haar", "reverse"))
    return Finding(
        lens="affinity",
        statement=f"{haar:.0%} of {len(table):,} {pairing[1]}-composition pairs are significant (q < 0.05) under the "
        f"haar null, {reverse:.1%} under the reverse null.",
        value=reverse,
        expected=0.05,
        evidence="Benjamini-Hochberg within the pairing. Trained weights are anisotropic: most pairs exceed random "
        "subspaces (haar), which by itself means little.",
        figure=DISTRIBUTIONS,
        weight=0.3,
    )


def _hub(result: Result) -> Finding | None:
    first = ranked_hubs(hub_scores(result)).iloc[0]
    if not first["hub_score"] > 0:
        return None
    return Finding(
        lens="affinity",
        statement=f"{first['head']} is the strongest hub: its kernel exceeds the expected one by {first['inlet']:.2f} "
        f"dimensions on average over the heads it reads from, and by {first['outlet']:.2f} over those it writes to.",
        value=float(first["hub_score"]),
        expected=0.0,
        evidence="Mean excess of the kernel over its expected value, over OQ, OK and OV; the hub score is the "
        "geometric mean of the two.",
        reference=PAPER,
        figure="Hubs",
        weight=0.7,
    )


def _has_pairs(result: Result, pairing: str) -> bool:
    return KERNEL in metrics_of(result, pairing) and int(result[pairing][f"{KERNEL}_n_pairs"]) > 0


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
