"""What the wiring says: who stands out from the peers, layer by layer what reads the tables, and what remains unknown.

Pairs of heads are told by affinity, whose edges they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from headspan.finding import Finding, percent, significance
from headspan.lenses.graph import BACKGROUND, IS_STRONG, UNKNOWN
from headspan.lenses.wiring.graph import NEURON_SIDES, edges, ends, relations
from headspan.lenses.wiring.parts import ENCODER
from headspan.lenses.wiring.schema import ROTATION, SIGNIFICANT
from headspan.result import Result

DIAGRAM, HEADS, LAYERS, NEURONS = "Wiring diagram", "Heads by layer", "Tables and logits by layer", "Neurons"
ROLE = {"Q": "query", "K": "key", "V": "value"}
WHAT = {"W_E": "the token table", "W_pos": "the position table", "MLP": "an MLP", "logits": "the unembedding"}
WHAT |= {f"{ENCODER} W_E": "the encoder's token table", f"{ENCODER} W_pos": "the encoder's position table"}
WHAT |= {f"{ENCODER} MLP": "an encoder MLP"}
FROM = {**WHAT, "O": "heads", "MLP": "MLPs", f"{ENCODER} O": "encoder heads", f"{ENCODER} MLP": "encoder MLPs"}
WEIGHT = {"in": "input", "gate": "gate", "up": "up"}
EVIDENCE = (
    "Share of the matrix's energy inside the head's subspace; q over all edges of the kind, compared with the heads of "
    "the same layer."
)
FOLD = "The fold state of the weights says whether gains of norms between writer and reader count."


def findings(result: Result) -> list[Finding]:
    """One finding for every question that the result answers."""
    if result.attrs["neurons"]:
        return _neurons(result)
    found: list[Finding | None] = []
    for src, dst in _questions(result):
        tables = [edges(result, name) for name in _of(result, src, dst)]
        tested = [table for table in tables if len(table) and table["null"].iloc[0] != ROTATION]
        found += [_standing(src, dst, tested)] if tested else []
        found += [_layers(result, src, tables)] if src in ("W_E", "W_pos") and dst == "heads" else []
        untested = [table for table in tables if len(table) and table["null"].iloc[0] == ROTATION]
        found += [_against_rotation(result, src, dst, untested)] if untested and not tested else []
    return [finding for finding in found if finding is not None]


def _questions(result: Result) -> list[tuple[str, str]]:
    """Pairs of kinds that one question asks about: Q, K and V of heads together."""
    pairs = [ends(name) for name in relations(result)]
    grouped = [(src, "heads" if dst in ROLE else dst) for src, dst in pairs]
    return [pair for pair in dict.fromkeys(grouped) if pair != ("O", "heads")]


def _of(result: Result, src: str, dst: str) -> list[str]:
    wanted = tuple(ROLE) if dst == "heads" else (dst,)
    return [name for name in relations(result) if ends(name)[0] == src and ends(name)[1] in wanted]


def _standing(src: str, dst: str, tables: Sequence[pd.DataFrame]) -> Finding:
    """How many edges stand out from their peers, and the strongest of them; that none does where none does."""
    everyone = pd.concat(tables, ignore_index=True)
    out = everyone[~everyone["tier"].isin((BACKGROUND, UNKNOWN))]
    question = _question(src, dst)
    if not len(out):
        return Finding(
            lens="wiring",
            statement=f"No head is known to {question} more than the other heads of its layer (none of "
            f"{len(everyone):,} edges has q < {SIGNIFICANT}).",
            value=0.0,
            evidence=f"{EVIDENCE} {FOLD}",
            figure=HEADS,
            weight=0.1,
        )
    best = out.loc[out["z"].idxmax()]
    strong = int((out["tier"] == IS_STRONG).sum())
    strongly = f", {strong:,} of them strongly" if strong else ""
    count = f"{len(out):,} of {len(everyone):,} such edges stand out{strongly}"
    return Finding(
        lens="wiring",
        statement=f"{_told(best)}, where {percent(best['expected'], 1)} are expected of the heads of its layer and "
        f"{percent(best['rotation'], 1)} of a random rotation (z = {best['z']:.1f}, "
        f"{significance('q', float(best['q']))}); {count}.",
        value=float(best["score"]),
        expected=float(best["expected"]),
        p=float(best["p"]),
        q=float(best["q"]),
        evidence=f"{EVIDENCE} {FOLD}",
        figure=DIAGRAM,
        weight=0.65 if best["z"] > 5 else 0.5,
    )


def _question(src: str, dst: str) -> str:
    if src == "O":
        return "write to the logits" if dst == "logits" else "write to an MLP"
    return f"read {WHAT[src]}"


def _told(edge: pd.Series) -> str:
    """The strongest edge in words."""
    src, dst = ends(edge["relation"])
    share = percent(edge["score"], 1)
    if dst == "logits":
        return f"{edge['src_label']} writes to the logits: {share} of the unembedding's energy lies in what it writes"
    if dst == "MLP":
        return (
            f"{edge['src_label']} → {edge['dst_label']}: {share} of the MLP's input energy lies in what the head writes"
        )
    table = src.endswith(("W_E", "W_pos"))
    name = WHAT[src] if table else str(edge["src_label"])
    whose = f"the energy of {name}" if table else f"the energy that {name} writes"
    return f"{edge['dst_label']} reads {name}: {share} of {whose} lies in its {ROLE[dst]} space"


def _layers(result: Result, src: str, tables: Sequence[pd.DataFrame]) -> Finding | None:
    """The layer and role that read a table most, on average over heads, where most of its heads exceed rotation."""
    rows = []
    for table in tables:
        role = ends(table["relation"].iloc[0])[1] if len(table) else ""
        plain = edges(result, table["relation"].iloc[0], ROTATION) if role else table
        for layer, part in plain.groupby("dst_layer"):
            beaten = float((part["q"] < SIGNIFICANT).mean())
            rows.append((float(part["score"].mean()), float(part["rotation"].mean()), int(layer), role, beaten))
    rows = [row for row in rows if row[4] > 0.5 and row[0] > row[1]]
    if not rows:
        return None
    mean, expected, layer, role, _ = max(rows, key=lambda row: row[0] / row[1])
    return Finding(
        lens="wiring",
        statement=f"The {ROLE[role]} heads of layer {layer} read {WHAT[src]} most: on average {percent(mean, 1)} of "
        "its energy "
        f"lies in the space that one of them reads, where {percent(expected, 1)} are expected of a random rotation.",
        value=mean,
        expected=expected,
        evidence=f"Mean over the heads of a layer; most of them exceed a random rotation (q < {SIGNIFICANT}), which "
        f"anisotropic weights do without being related. {FOLD}",
        figure=LAYERS,
        weight=0.2,
    )


def _against_rotation(result: Result, src: str, dst: str, tables: Sequence[pd.DataFrame]) -> Finding | None:
    """Where no null of the model's own applies: how many edges exceed a random rotation, which means less."""
    everyone = pd.concat(tables, ignore_index=True)
    above = everyone[(everyone["q"] < SIGNIFICANT)]
    if not len(above):
        return None
    best = above.loc[(above["score"] / above["rotation"]).idxmax()]
    kind = f"{FROM[src]} to {'heads' if dst == 'heads' else 'MLPs' if dst == 'MLP' else 'the logits'}"
    factor = best["score"] / best["rotation"]
    ending = f"{best['src_label']} → {best['dst_label']}"
    role = ends(best["relation"])[1]
    through = f" through its {ROLE[role]} weights" if role in ROLE else ""
    statement = (
        f"{len(above):,} of {len(everyone):,} edges from {kind} share more energy than a random rotation gives "
        f"(q < {SIGNIFICANT}); the strongest is {ending}{through}, with {factor:.2f} times the expected share."
    )
    if len(everyone) == 1:
        sure = significance("q", float(best["q"]))
        statement = f"{ending} shares {factor:.2f} times the energy that a random rotation gives ({sure})."
    return Finding(
        lens="wiring",
        statement=statement,
        value=float(best["score"]),
        expected=float(best["rotation"]),
        p=float(best["p"]),
        q=float(best["q"]),
        evidence=f"Rotation null alone, because {_reason(result, best['relation'])}. Anisotropic weights exceed it "
        f"without being related. {FOLD}",
        figure=LAYERS if dst in ("logits", "MLP") else HEADS,
        weight=0.15,
    )


def _reason(result: Result, relation: str) -> str:
    return str(result[relation]["null_reason"].values) or "it was asked for"


def _neurons(result: Result) -> list[Finding]:
    """Neurons that listen to the head, and neurons that it reads, more than their layer's other neurons do."""
    head, found = str(result.attrs["neurons"]), []
    listening = [edges(result, name) for name in relations(result) if ends(name)[1] in NEURON_SIDES]
    feeding = [edges(result, name) for name in relations(result) if ends(name)[0] in NEURON_SIDES]
    for tables, side, verb in (
        (listening, "dst", f"listen to what {head} writes"),
        (feeding, "src", f"write what {head} reads"),
    ):
        if not tables:
            continue
        everyone = pd.concat(tables, ignore_index=True)
        n_neurons = everyone[f"{side}_label"].nunique()
        out = everyone[~everyone["tier"].isin((BACKGROUND, UNKNOWN))]
        named = out[f"{side}_label"].nunique()
        statement = f"None of {n_neurons:,} neurons is known to {verb} more than the others of its layer (q < 0.05)."
        best = everyone.loc[everyone["z"].idxmax()] if everyone["z"].notna().any() else everyone.iloc[0]
        if named:
            best = out.loc[out["z"].idxmax()]
            dst = ends(best["relation"])[1]
            read = f"the {ROLE.get(dst, '')} space of {head}"
            weight, space = (WEIGHT[dst], f"what {head} writes") if side == "dst" else ("output", read)
            statement = (
                f"{named:,} of {n_neurons:,} neurons {verb} more than the others of their layer (q < {SIGNIFICANT}); "
                f"{best[f'{side}_label']} is farthest out: {percent(best['score'], 1)} of its {weight} weight lies in "
                f"{space}, where {percent(best['expected'], 1)} are expected ({significance('q', float(best['q']))})."
            )
        found.append(
            Finding(
                lens="wiring",
                statement=statement,
                value=float(best["score"]),
                expected=float(best["expected"]),
                evidence="Share of a neuron's weight vector inside the head's subspace, compared with the neurons of "
                f"the same layer; under a random rotation Beta(p/2, (d - p)/2), mean {percent(best['rotation'], 1)}. "
                f"{FOLD}",
                figure=NEURONS,
                weight=0.6 if named else 0.1,
                p=float(best["p"]) if named else None,
                q=float(best["q"]) if named else None,
            )
        )
    return found
