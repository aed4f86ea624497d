"""What a change of weights says: new directions, how few it has, where it lies, its tokens, what it does when run."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from headspan.finding import Finding, percent, significance
from headspan.lenses.compare.parts import COMPOSITION, edge_changes, wiring_pairings
from headspan.lenses.compare.schema import SHARES, SHUTTLEWORTH
from headspan.result import Result

LENS = "compare"
FEW = 0.5
"""A change with less than this share of a random one's directions has few."""
READS = {"W_O": "writes", "W_out": "writes"}


def change_findings(result: Result) -> Iterator[Finding]:
    """Intruder dimensions, rank, shares inside the spaces of partners, tokens; each where it was looked for."""
    if "change" in result:
        yield from _intruders(result)
        yield from _few_directions(result)
    for pairing in wiring_pairings(result):
        for share in SHARES:
            if share in result[f"wiring/{pairing}"]:
                yield from _order(result, pairing, share)
    for share in SHARES:
        yield from _strongest_share(result, share)
    if "tokens" in result:
        yield from _tokens(result)


def _intruders(result: Result) -> Iterator[Finding]:
    """How many leading directions are new, of which matrix the clearest is, and what a random change gives."""
    rows, matrices = result.table("directions"), result.table("changes")
    level, threshold = float(result.attrs["level"]), float(result.attrs["similarity"])
    new = rows[rows["similarity"] < threshold]
    if new.empty:
        return
    certain = new[new["similarity_q"] < level]
    expected = float(matrices["n_new_null"].sum())
    if certain.empty:
        first, statement = (
            new.loc[new["similarity"].idxmin()],
            (
                f"{len(new)} of {len(rows)} leading directions are new (cosine below {threshold:g} with every "
                f"direction before); a random change of the same size gives {expected:.1f}. None is significant."
            ),
        )
    else:
        first = certain.loc[certain["similarity_z"].idxmax()]
        statement = (
            f"{len(certain)} of {len(rows)} leading directions are intruder dimensions: cosine below {threshold:g} "
            f"with every direction before, and significantly lower than after a random change. Clearest: direction "
            f"{int(first['direction']) + 1} of {_matrix(first)}, cosine {first['similarity']:.2f} (expected "
            f"{first['similarity_null']:.2f})."
        )
    yield Finding(
        LENS,
        statement,
        value=float(len(certain)),
        expected=0.0,
        p=float(first["similarity_p"]),
        q=float(first["similarity_q"]),
        evidence=f"The ten leading singular directions of every whole matrix, on the side of the stream; {len(new)} "
        f"are new, {expected:.1f} expected of a random change. Direction {int(first['direction']) + 1} holds "
        f"{percent(first['direction_share'], 1)} of the squared norm.",
        reference=SHUTTLEWORTH,
        weight=0.75 if len(certain) else 0.15,
        figure="Leading directions after, against all before",
    )


def _matrix(row: pd.Series) -> str:
    return f"{row['matrix']} of layer {int(row['layer'])}"


def _few_directions(result: Result) -> Iterator[Finding]:
    """The matrix whose change has the fewest directions, where that is few."""
    rows = result.table("changes")
    rows = rows.assign(ratio=rows["change_rank"] / rows["change_rank_null"])
    few = rows[rows["ratio"] < FEW]
    if few.empty:
        return
    first = few.loc[few["ratio"].idxmin()]
    yield Finding(
        LENS,
        f"{len(few)} of {int(rows['ratio'].notna().sum())} changed matrices changed along few directions; fewest "
        f"{_matrix(first)}: {first['change_rank']:.1f}, where a random change of the same size has "
        f"{first['change_rank_null']:.0f}.",
        value=float(first["change_rank"]),
        expected=float(first["change_rank_null"]),
        evidence="Participation ratio of the change's singular values, (sum s^2)^2 / sum s^4. Median over matrices: "
        f"{rows['change_rank'].median():.1f}, random {rows['change_rank_null'].median():.0f}.",
        weight=0.45,
    )


def _order(result: Result, pairing: str, share: str) -> Iterator[Finding]:
    """Whether changes lie more in the spaces of partners they compose with than in those they cannot reach."""
    node = result[f"wiring/{pairing}"]
    p, mean, reverse = (float(node[f"{share}_{part}"]) for part in ("order_p", "mean", "reverse"))
    if not p < float(result.attrs["level"]):
        return
    what, where = (
        ("reading", "what earlier heads write") if share == "read_share" else ("writing", "what later heads read")
    )
    more = "more" if mean > reverse else "less"
    yield Finding(
        LENS,
        f"{COMPOSITION.get(pairing, pairing)}: changes of {what} weights lie in {where} {more} than in the same spaces "
        f"in reverse order ({percent(mean, 1)} of their energy, {percent(reverse, 1)} in reverse; "
        f"{significance('p', p)}).",
        value=mean,
        expected=reverse,
        p=p,
        evidence=f"Mean of {share} over pairs of {pairing}; the order of layers permuted.",
        weight=0.6,
        figure="Where changes lie",
    )


def _strongest_share(result: Result, share: str) -> Iterator[Finding]:
    """The pair whose change lies most in its partner's space."""
    rows = edge_changes(result)
    if share not in rows or not (rows[f"{share}_q"] < float(result.attrs["level"])).any():
        return
    certain = rows[rows[f"{share}_q"] < float(result.attrs["level"])]
    row = certain.loc[certain[f"{share}_z"].idxmax()]
    changed, space = (row["dst"], row["src"]) if share == "read_share" else (row["src"], row["dst"])
    role, verb = (row["pairing"][1], "writes") if share == "read_share" else (row["pairing"][0], "reads")
    yield Finding(
        LENS,
        f"The change of W_{role} of {changed} lies most in what {space} {verb}: {percent(row[share])} of its energy "
        f"(expected {percent(row[f'{share}_null'])}); {len(certain)} of {int(rows[share].notna().sum())} pairs are "
        "significant.",
        value=float(row[share]),
        expected=float(row[f"{share}_null"]),
        p=float(row[f"{share}_p"]),
        q=float(row[f"{share}_q"]),
        evidence=f"{row['src']} to {row['dst']}, {row['pairing']}, z = {row[f'{share}_z']:.1f}. Null: a random "
        "rotation of the change; trained weights are anisotropic, and changes follow them.",
        weight=0.5,
        figure="Where changes lie",
    )


def _tokens(result: Result) -> Iterator[Finding]:
    """The direction of a change whose tokens are most concentrated, among those that hold much of it."""
    rows = result.table("tokens")
    certain = rows[rows["top_mass_q"] < float(result.attrs["level"])]
    if certain.empty:
        return
    row = certain.loc[(certain["top_mass"] * certain["share"]).idxmax()]
    verb = READS.get(row["matrix"], "reads")
    yield Finding(
        LENS,
        f"The change of {_matrix(row)} {verb} tokens: {row['highest']} against {row['lowest']} "
        f"({percent(row['share'])} of "
        f"the change; {len(certain)} of {int(rows['top_mass'].notna().sum())} directions are concentrated).",
        value=float(row["top_mass"]),
        expected=float(row["top_mass_null"]) if "top_mass_null" in row else None,
        p=float(row["top_mass_p"]),
        q=float(row["top_mass_q"]),
        evidence="Share of the squared token scores that the ten largest hold; null: random directions of the stream.",
        weight=0.55,
    )


def behavior_findings(result: Result) -> Iterator[Finding]:
    """Attention, loss and states where both models were run."""
    if "behavior" not in result or not float(result["behavior"]["state_change"]) > 0:
        return
    yield from _attention(result)
    node, on = result["behavior"], f"Measured on {result.attrs['behavior_on']}. Null: {result.attrs['noise']} noise."
    if "loss_change" in node:
        before, after, change, low, high, null, sd, p = (
            float(node[f"loss_{name}"])
            for name in (
                "before",
                "after",
                "change",
                "change_low",
                "change_high",
                "change_null",
                "change_null_sd",
                "change_p",
            )
        )
        yield Finding(
            LENS,
            f"The loss goes from {before:.3f} to {after:.3f} nats per token, {change:+.4f} (95 % interval {low:+.4f} "
            f"to {high:+.4f}; perplexity {math.exp(before):.2f} to {math.exp(after):.2f}); a random change of the same "
            f"size gives {null:+.4f} ± {sd:.4f}.",
            value=change,
            expected=null,
            p=None if p != p else p,
            evidence=on,
            weight=0.72 if p < float(result.attrs["level"]) else 0.4,
            figure="Attention against a random change",
        )
    moved, null, p = (float(node[f"state_change{part}"]) for part in ("", "_null", "_p"))
    yield Finding(
        LENS,
        f"Final states change by {percent(moved, 2)} of their length; a random change of the same size gives "
        f"{percent(null, 2)}.",
        value=moved,
        expected=null,
        p=None if p != p else p,
        evidence=f"Mean over tokens of |x' - x| / |x|. {on}",
        weight=0.62 if p < float(result.attrs["level"]) else 0.3,
        figure="Attention against a random change",
    )


def _attention(result: Result) -> Iterator[Finding]:
    rows = result.table("attention")
    tested = rows[rows["divergence_q"].notna()]
    if tested.empty:
        return
    level = float(result.attrs["level"])
    certain = tested[tested["divergence_q"] < level]
    more = certain[certain["divergence_z"] > 0]
    row = rows.loc[rows["divergence"].idxmax()]
    counted = (
        f"{len(more)} of {len(tested)} heads moved significantly more than under a random change of the same size, "
        f"{len(certain) - len(more)} less"
        if len(certain)
        else f"none of {len(tested)} heads departs from a random change of the same size"
    )
    yield Finding(
        LENS,
        f"Attention of {row['head']} moved most: Jensen-Shannon divergence {row['divergence']:.2g} nats (expected "
        f"{row['divergence_null']:.2g}); {counted}.",
        value=float(row["divergence"]),
        expected=float(row["divergence_null"]),
        p=float(row["divergence_p"]),
        q=float(row["divergence_q"]),
        evidence=f"Mean over tokens; measured on {result.attrs['behavior_on']}. Mean over heads "
        f"{rows['divergence'].mean():.2g}, expected {rows['divergence_null'].mean():.2g}.",
        weight=0.6 if len(certain) else 0.35,
        figure="Attention against a random change",
    )
