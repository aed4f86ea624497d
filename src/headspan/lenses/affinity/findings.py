"""What the affinities of a model say: strongest pairs, hubs, direction, and how much of it is chance."""

from __future__ import annotations

import numpy as np
import xarray as xr

from headspan.dims import COMPOSING
from headspan.finding import Finding
from headspan.lenses.affinity.edges import edges, is_sketched, pairing_node, pairings_of
from headspan.lenses.affinity.hubs import hub_scores, ranked_hubs
from headspan.lenses.affinity.tables import metrics_of

PAPER = "arXiv 2601.10266"
MIN_LAYERS_FOR_DIRECTION = 5
"""Fewer layers have too few orders for a permutation test to reach 5 %."""
ALGORITHMS = {
    "": "",
    "gram": " of all pairs, by products of bases",
    "projector": " of all pairs, by inner products of projectors",
    "sketch": ", sketched and then verified",
}
THROUGH = {"OQ": "queries", "OK": "keys", "OV": "values"}


def findings(result: xr.DataTree) -> list[Finding]:
    """Findings over OQ, OK and OV, from the projection kernel."""
    used = [pairing for pairing in COMPOSING if pairing in pairings_of(result) and _has_pairs(result, pairing)]
    found = [_strongest(result, pairing) for pairing in used]
    found += [finding for pairing in used if (finding := _direction(result, pairing)) is not None]
    found += [_certified(result, used)] if is_sketched(result) else [_chance(result, pairing) for pairing in used]
    hub = _hub(result) if used else None
    return found if hub is None else [*found, hub]


def _strongest(result: xr.DataTree, pairing: str) -> Finding:
    node, best = pairing_node(result, pairing), edges(result, pairing, top=1).iloc[0]
    chance = float(node["chance_mean"].sel(metric="pk"))
    limit = min(int(node["src_rank"].max()), int(node["dst_rank"].max()))
    return Finding(
        lens="affinity",
        statement=f"What {best['src']} writes, {best['dst']} reads most through its {THROUGH[pairing]}: they share "
        f"{best['score']:.1f} of {limit} dimensions.",
        value=float(best["score"]),
        expected=chance,
        p=_known(best["q_value_haar" if is_sketched(result) else "q_value_anticausal"]),
        evidence=f"Projection kernel {pairing}{ALGORITHMS[result.attrs.get('algorithm', '')]}; p is corrected for all "
        + (
            "pairs, under subspaces in general position."
            if is_sketched(result)
            else "pairs, under the anti-causal null (same model, impossible order)."
        ),
        reference=PAPER,
        weight=0.8 if best["score"] > 3 * chance else 0.4,
    )


def _certified(result: xr.DataTree, pairings: list[str]) -> Finding:
    """What a sketch vouches for: how many of the top pairs are exact, with what confidence."""
    nodes, top = [pairing_node(result, pairing) for pairing in pairings], result.attrs["top"]
    least, verified = min(node.attrs["certified"] for node in nodes), sum(node.attrs["verified"] for node in nodes)
    n_pairs = sum(int(node["n_pairs"].sel(metric="pk")) for node in nodes)
    short = "" if least >= top else f" {top} were asked for; beyond these, too many pairs are alike to tell apart."
    return Finding(
        lens="affinity",
        statement=f"The {least} strongest pairs of every pairing are exact with confidence "
        f"{result.attrs['confidence']:.0%}: {verified:,} of {n_pairs:,} pairs were computed, the others estimated."
        f"{short}",
        value=float(least),
        evidence=f"Sketches of {result.attrs['sketch_width']} numbers a direction; union bound over the top pairs.",
        weight=0.5,
    )


def _direction(result: xr.DataTree, pairing: str) -> Finding | None:
    node = pairing_node(result, pairing).sel(metric="pk")
    p_value, difference = float(node["direction_p_value"]), float(node["direction"])
    if np.isnan(p_value) or node.sizes["src_layer"] < MIN_LAYERS_FOR_DIRECTION:
        return None
    word = "more" if difference > 0 else "less"
    certain = p_value < 0.05
    statement = (
        f"Heads meet the {THROUGH[pairing]} of later layers {word} than those of earlier ones."
        if certain
        else f"Heads meet the {THROUGH[pairing]} of later and of earlier layers alike."
    )
    return Finding(
        lens="affinity",
        statement=statement,
        value=difference,
        expected=0.0,
        p=p_value,
        evidence=f"Mean kernel {pairing} of composing pairs less that of pairs in the impossible order; p by permuting "
        "the order of the layers.",
        figure="Scores beside chance",
        weight=0.6 if certain else 0.1,
    )


def _chance(result: xr.DataTree, pairing: str) -> Finding:
    table = edges(result, pairing)
    shares = [float((table[f"q_value_{null}"] < 0.05).mean()) for null in ("haar", "anticausal")]
    return Finding(
        lens="affinity",
        statement=f"Through {THROUGH[pairing]}, {shares[0]:.0%} of all pairs beat subspaces in general position, "
        f"{shares[1]:.1%} beat the same model's pairs in the impossible order.",
        value=shares[1],
        expected=0.05,
        evidence="Share of pairs with q < 0.05 (Benjamini-Hochberg). Trained weights are anisotropic: the first share "
        "alone means little.",
        figure="Scores beside chance",
        weight=0.3,
    )


def _hub(result: xr.DataTree) -> Finding | None:
    first = ranked_hubs(hub_scores(result)).iloc[0]
    if not first["score"] > 0:
        return None
    return Finding(
        lens="affinity",
        statement=f"{first['head']} is the strongest hub: it both reads what many heads write and is read by many.",
        value=float(first["score"]),
        expected=0.0,
        evidence=f"Mean excess of the kernel over chance: inlet {first['inlet']:.2f}, outlet {first['outlet']:.2f}; "
        "score their geometric mean.",
        reference=PAPER,
        figure="Hubs",
        weight=0.7,
    )


def _has_pairs(result: xr.DataTree, pairing: str) -> bool:
    return "pk" in metrics_of(result, pairing) and bool(pairing_node(result, pairing)["n_pairs"].sel(metric="pk") > 0)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
