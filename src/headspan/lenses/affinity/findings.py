"""What the affinities of a model say: strongest pairs, direction, how many pairs are significant, and hubs."""

from __future__ import annotations

import math

import numpy as np

from headspan.finding import Finding, percent
from headspan.lenses.affinity.schema import HAAR, KERNEL, PAPER, REVERSE, SIGNIFICANT, STRONG, TWO_WAY
from headspan.lenses.affinity.wiring import (
    composing_pairings,
    edges,
    graph_null,
    head_node,
    hub_scores,
    is_sketched,
    metrics_of,
    ranked_hubs,
)
from headspan.lenses.graph import BACKGROUND, IS_STRONG
from headspan.result import Result
from headspan.statistics.permutation import smallest_direction_p

ALGORITHMS = {
    "": "",
    "gram": " of all pairs, by products of bases",
    "projector": " of all pairs, by inner products of projectors",
    "sketch": ", sketched and then verified",
}
IN_WORDS = {
    TWO_WAY: "for these heads and layers",
    REVERSE: "from pairs in reverse order",
    HAAR: "for random subspaces",
}
"""Where the expected value of each null comes from."""
DISTRIBUTIONS = "Scores and their nulls"
READ = {"OQ": "query", "OK": "key", "OV": "value"}


def findings(result: Result) -> list[Finding]:
    """Findings over OQ, OK and OV, from the projection kernel."""
    used = [pairing for pairing in composing_pairings(result) if _has_pairs(result, pairing)]
    if used and all(_is_whole_stream(result, pairing) for pairing in used):
        return [_incomparable(result, used)]
    found = [_strongest(result, pairing) for pairing in used]
    if is_sketched(result):
        found += [_certified(result, used)] if used else []
    elif "shared_weights" in result.attrs:
        found += [_shared(result)]
    else:
        found += [finding for pairing in used if (finding := _direction(result, pairing)) is not None]
        found += [_significant(result, pairing) for pairing in used]
    hub = _hub(result) if used else None
    return found if hub is None else [*found, hub]


def _is_whole_stream(result: Result, pairing: str) -> bool:
    """Whether every space is the whole stream, so that all pairs overlap in all of it."""
    if is_sketched(result) or KERNEL not in metrics_of(result, pairing):
        return False
    node, heads = result[pairing], head_node(result, pairing)
    ranks = np.concatenate([heads[name].values.ravel() for name in ("src_rank", "dst_rank")])
    expected = node[f"{KERNEL}_null"].sel(null=HAAR).values
    expected = expected[np.isfinite(expected)]
    return bool(len(expected) and (ranks == ranks[0]).all() and np.allclose(expected, ranks[0], rtol=1e-9))


def _incomparable(result: Result, pairings: list[str]) -> Finding:
    width = int(head_node(result, pairings[0])["src_rank"].max())
    return Finding(
        lens="affinity",
        statement=f"The projection kernel compares nothing here: heads are as wide as the stream, so that every pair "
        f"overlaps in all {width} dimensions. Cut spaces to their leading directions: tolerance=0.5 (--tolerance 0.5).",
        value=float(width),
        expected=float(width),
        reference=PAPER,
    )


def _strongest(result: Result, pairing: str) -> Finding:
    best, heads = edges(result, pairing, top=1).iloc[0], head_node(result, pairing)
    limit = min(int(heads["src_rank"].max()), int(heads["dst_rank"].max()))
    null = graph_null(result) or HAAR
    expected, q = float(best[f"null_{null}"]), _known(best[f"q_{null}"])
    sure = "" if q is None else f", q = {q:.2g}"
    return Finding(
        lens="affinity",
        statement=f"{best['src']} → {best['dst']} is the strongest {pairing[1]}-composition: the subspaces overlap in "
        f"{best['score']:.1f} of {limit} dimensions (expected {expected:.1f} {IN_WORDS[null]}{sure}).",
        value=float(best["score"]),
        expected=expected,
        q=q,
        evidence=f"Projection kernel {pairing}{ALGORITHMS[result.attrs.get('algorithm', '')]}; {null} null, q over all "
        f"pairs. {_reason(result)}".strip(),
        reference=PAPER,
        weight=0.8 if best["tier"] != BACKGROUND and best["score"] > 3 * expected else 0.4,
    )


def _shared(result: Result) -> Finding:
    """That passes through one layer are no independent layers, in place of what compares orders."""
    passes, layers = int(result.attrs["n_layers"]), int(result.attrs["n_shared_layers"])
    return Finding(
        lens="affinity",
        statement=f"The {passes} layers of the wiring are passes through {layers} stored "
        f"{'layer' if layers == 1 else 'layers'}: a head composes with itself at later passes.",
        value=float(passes),
        evidence=f"In full: {result.attrs['shared_weights']}.",
        weight=0.3,
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
        f"{percent(result.attrs['confidence'])}: {verified:,} of {n_pairs:,} pairs were computed, the others estimated."
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
    """How many pairs share more than expected; under the two-way null beside how many do in reverse order."""
    table, null = edges(result, pairing), graph_null(result)
    node, counts = result[pairing], table["tier"].value_counts()
    strong, standing = int(counts.get(IS_STRONG, 0)), len(table) - int(counts.get(BACKGROUND, 0))
    what = f"{len(table):,} {pairing[1]}-composition pairs"
    more = (
        "share more than their heads and layers do in general"
        if null == TWO_WAY
        else "share more than pairs in reverse order"
    )
    if standing == 0:
        statement = f"None of {what} is known to {more} (q < {SIGNIFICANT})."
    else:
        statement = f"{standing:,} of {what} ({percent(standing / len(table), 1)}) {more} (q < {SIGNIFICANT})"
        backward = float(node[f"{KERNEL}_n_significant_reverse"])
        statement += (
            "." if null != TWO_WAY else f", {strong:,} of them strongly; {backward:,.0f} pairs in reverse order do."
        )
    haar = float((table["q_haar"] < SIGNIFICANT).mean())
    return Finding(
        lens="affinity",
        statement=statement,
        value=float(standing),
        evidence=f"Benjamini-Hochberg within the pairing, {null} null; strong: mirror FDR at most {STRONG}. "
        f"{percent(haar)} exceed random subspaces (haar), which means little: trained weights are anisotropic. "
        f"{_reason(result)}".strip(),
        figure=DISTRIBUTIONS,
        weight=0.5 if standing else 0.2,
    )


def _reason(result: Result) -> str:
    """Why the two-way null is not used, and what its stand-in does not see; empty where it is used."""
    reason = result.attrs.get("null_reason")
    if reason is None:
        return ""
    blind = " Unrelated heads whose anisotropy changes with depth pass the reverse null too."
    return f"{reason[0].upper()}{reason[1:]}.{blind if result.attrs['null'] == REVERSE else ''}"


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
        # A mean excess has no test of its own: where no pair stands out, neither does a hub.
        weight=0.7 if _any_stands_out(result) else 0.3,
    )


def _any_stands_out(result: Result) -> bool:
    """Whether any pair does; a sketch, which has no tiers, keeps its strongest pairs alone."""
    if graph_null(result) is None:
        return True
    return any((edges(result, pairing)["tier"] != BACKGROUND).any() for pairing in composing_pairings(result))


def _has_pairs(result: Result, pairing: str) -> bool:
    return KERNEL in metrics_of(result, pairing) and int(result[pairing][f"{KERNEL}_n_pairs"]) > 0


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
