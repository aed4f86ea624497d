"""What a vocabulary result says: which directions read as tokens, which heads copy, match or relate words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from headspan.finding import Finding, percent
from headspan.result import Result

LENS = "vocabulary"
LEVEL = 0.05
SHOWN = 5
"""Tokens of a direction that a sentence names."""
RANDOM = "Null: random directions of the stream, read through the same table."
ROTATED = "Null: the head's W_V (W_Q) turned by a random rotation, which keeps all singular values."
PERMUTED = "Null: permuted right words."
NAMES = {"OV": "W_OV", "QK": "W_QK", "MLP": "the MLPs", "W_U": "W_U"}
ACTIONS = {
    "copying": ("raise the logit of the token they read (copying score above 0", "lower it"),
    "matching": ("attend to tokens equal to their own (matching score above 0", "avoid them"),
}
ELHAGE = "Elhage et al. (2021), A mathematical framework for transformer circuits"
MAPS = "Elhelo and Geva (2024), Inferring functionality of attention heads from their parameters"


def findings(result: Result) -> Iterator[Finding]:
    """Counts by kind of matrix, the clearest direction of each, copying and matching heads, relations, neurons."""
    if "directions" in result.tables:
        rows = result.table("directions")
        for matrix, own in rows.groupby("matrix", sort=False):
            yield from _directions(str(matrix), own)
    if "copying" in result:
        for name in ACTIONS:
            if name in result["copying"]:
                yield from _positivity(result, name)
    if "relations" in result:
        yield from _relations(result)
    if "neurons" in result:
        yield from _neurons(result.table("neurons"))


def _directions(matrix: str, rows: pd.DataFrame) -> Iterator[Finding]:
    """How many directions read as tokens, and the clearest."""
    found = rows[rows["top_mass_q"] < LEVEL]
    total, name, rest = len(rows), NAMES[matrix], len(rows) - len(found)
    if found.empty:
        yield Finding(
            LENS,
            f"No leading direction of {name} reads as tokens: none of {total:,} has token scores more concentrated "
            "than random directions.",
            value=0.0,
            expected=0.0,
            evidence=f"Share of the ten largest squared scores, false-discovery rate {LEVEL:g}. {RANDOM}",
            weight=0.15,
        )
        return
    yield Finding(
        LENS,
        f"{len(found):,} of {total:,} leading directions of {name} ({percent(len(found) / total)}) read as tokens: "
        f"their token scores are more concentrated than along random directions (q < {LEVEL:g})"
        f"{'.' if not rest else f'; {rest:,} does not.' if rest == 1 else f'; {rest:,} do not.'}",
        value=float(len(found)),
        expected=0.0,
        q=float(found["top_mass_q"].min()),
        evidence=f"Share of the ten largest squared scores, false-discovery rate {LEVEL:g}; q of the first. {RANDOM}",
        figure="Directions that read as tokens",
        weight=0.5,
    )
    yield _clearest(rows, found)


def _clearest(rows: pd.DataFrame, found: pd.DataFrame) -> Finding:
    """The most concentrated direction with the tokens at its high end, and those of its other side."""
    best = found.loc[found["top_mass_p"].idxmin()]
    where = (
        best["head"] if isinstance(best.get("head"), str) else f"L{best['layer']}" if best["matrix"] == "MLP" else ""
    )
    text = f"Direction {best['direction']} of {f'{where} ' if where else ''}{best['matrix']}, {best['side']} side: "
    text += _words(best["tokens_high"])
    if best["matrix"] in ("OV", "QK"):
        same = (rows["head"] == best["head"]) & (rows["direction"] == best["direction"])
        other = rows[same & (rows["side"] != best["side"])].iloc[0]
        text += f" ({other['side']} side: {_words(other['tokens_high'])})"
    return Finding(
        LENS,
        f"{text}. The ten strongest tokens hold {percent(best['top_mass'], 1)} of the squared scores (expected "
        f"{percent(best['top_mass_null'], 1)}).",
        value=float(best["top_mass"]),
        expected=float(best["top_mass_null"]),
        p=float(best["top_mass_p"]),
        q=float(best["top_mass_q"]),
        evidence=f"q is among all leading directions of this kind of matrix. {RANDOM}",
        weight=0.45,
    )


def _words(joined: str) -> str:
    return ", ".join(joined.split(" | ")[:SHOWN])


def _positivity(result: Result, name: str) -> Iterator[Finding]:
    """How many heads copy (match) and how many do the opposite, with the strongest."""
    node = result.dataset("copying")
    score, z, q = (node[f"{name}{part}"].values for part in ("", "_z", "_q"))
    tested = int(np.isfinite(z).sum())
    if tested == 0:
        return
    sides = [np.flatnonzero((q < LEVEL) & (sign * z > 0)) for sign in (1, -1)]
    does, opposite = ACTIONS[name]
    named = []
    for sign, places in zip((1, -1), sides, strict=True):
        order = places[np.argsort(-sign * score[places], kind="stable")][:3]
        named.append(", ".join(f"{node['head'].values[place]} ({score[place]:+.2f})" for place in order))
    most = f" Strongest: {'; '.join(each for each in named if each)}." if any(named) else ""
    yield Finding(
        LENS,
        f"{len(sides[0])} of {tested} heads {does}, q < {LEVEL:g}), {len(sides[1]) or 'none'} {opposite}.{most}",
        value=float(len(sides[0]) + len(sides[1])),
        expected=0.0,
        q=float(np.nanmin(q)) if any(named) else None,
        evidence=f"Eigenvalues of the circuit over tokens; false-discovery rate {LEVEL:g}. {ROTATED}",
        reference=ELHAGE,
        figure="Copying and matching",
        weight=0.55 if any(named) else 0.15,
    )


def _relations(result: Result) -> Iterator[Finding]:
    """For every relation that some head holds, how many do and which most; the others in one line."""
    rows = result.table("relations")
    none = []
    for relation, own in rows.groupby("relation", sort=False):
        found = own[own["relation_score_q"] < LEVEL]
        if found.empty:
            none.append(str(relation))
            continue
        best = found.loc[found["relation_score_p"].idxmin()]
        yield Finding(
            LENS,
            f'{len(found)} of {len(own)} heads hold the relation "{relation}" in W_OV, {best["head"]} most: it gives '
            f"{percent(best['hits'])} of {best['pairs']:.0f} left words their partner first (expected "
            f"{percent(best['hits_null'])}; the token tables without a head {percent(best['tables_hits'])}). "
            f"{_beyond(own)}",
            value=float(best["relation_score_z"]),
            expected=0.0,
            p=float(best["relation_score_p"]),
            q=float(best["relation_score_q"]),
            evidence=f"Relation score, z = {best['relation_score_z']:.1f}; without "
            f"a head z = {best['tables_z']:.1f}. {PERMUTED}",
            reference=MAPS,
            figure="Relations",
            weight=0.4 if (own["beyond_q"] < LEVEL).any() else 0.2,
        )
    if none:
        yield Finding(
            LENS,
            f"No head holds the relation {', '.join(none)} (q < {LEVEL:g}).",
            value=0.0,
            expected=0.0,
            evidence=PERMUTED,
            weight=0.1,
        )


def _beyond(own: pd.DataFrame) -> str:
    """How many heads map words to their partners better than the tables alone do."""
    certain = own[(own["beyond_q"] < LEVEL) & (own["relation_score_q"] < LEVEL)]
    if certain.empty:
        return "No head exceeds the tables."
    best = certain.loc[certain["beyond_p"].idxmin()]
    verb = "head exceeds" if len(certain) == 1 else "heads exceed"
    sure = f"z = {best['beyond_z']:.1f}, q = {best['beyond_q']:.2g}"
    return f"{len(certain)} {verb} the tables, {best['head']} most ({sure})."


def _neurons(rows: pd.DataFrame) -> Iterator[Finding]:
    for neuron, own in rows.groupby("neuron", sort=False):
        sides = "; ".join(f"{row['side']}: {_words(row['tokens_high'])}" for row in own.to_dict("records"))
        read = own[own["top_mass_q"] < LEVEL]["side"].tolist()
        verdict = f"significant for {', '.join(read)}" if read else "no side reads as tokens"
        first = own.iloc[0]
        yield Finding(
            LENS,
            f"Neuron {neuron}: {sides} ({verdict}).",
            value=float(first["top_mass"]),
            expected=float(first["top_mass_null"]),
            evidence=f"Tokens with the highest scores along its weights, q < {LEVEL:g}. {RANDOM}",
            weight=0.6 if read else 0.2,
        )
