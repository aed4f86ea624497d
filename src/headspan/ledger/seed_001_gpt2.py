"""Seed 001 on GPT-2 small: what the projection kernel was seen to show there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.measured import affinity_of
from headspan.ledger.trial import Evidence, at_least, at_most, equals

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint

claim = ClaimsOf("001")
PAPER = "2601.10266"


@claim(
    "S1.8",
    kind="text",
    status="observational",
    needs="gpt2",
    statement="Kernels of trained heads are told from those of random spans.",
    correction="For every pairing, most for QQ (mean 8.47, chance 5.33) and least for VO (5.66).",
    tolerance="published digits",
    reference="arXiv 2601.10266, figure 1",
)
def above_chance(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    from headspan.lenses.affinity.edges import pairing_node

    result = affinity_of(checkpoint)
    nodes = {pairing: pairing_node(result, pairing).sel(metric="pk") for pairing in result.children}
    divergence = {pairing: float(node["kl"]) for pairing, node in nodes.items()}
    return Evidence(
        truth=(
            equals("mean kernel of QQ", float(nodes["QQ"]["mean"]), 8.467, 5e-4),
            equals("mean kernel of VO", float(nodes["VO"]["mean"]), 5.664, 5e-4),
            equals("divergence from chance of QQ", divergence["QQ"], 2.876, 5e-4),
            equals("largest divergence", max(divergence.values()), divergence["QQ"], 0.0),
            equals("smallest divergence", min(divergence.values()), divergence["VO"], 0.0),
        ),
        figures={"kernel by chance": float(nodes["QQ"]["chance_mean"])},
    )


@claim(
    "S1.9",
    kind="text",
    status="observational",
    needs="gpt2",
    statement="The strongest kernels join known heads: previous-token heads to induction heads through keys.",
    correction="The first three through OK are L4H11 to L5H1, L4H7 to L5H1 and L4H11 to L6H9.",
    tolerance="exact",
    reference="arXiv 2601.10266, figure 5",
)
def strongest_pairs(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    from headspan.lenses.affinity.edges import top_edges

    table = top_edges(affinity_of(checkpoint), "OK", "pk", 3)
    found = list(zip(table["src"], table["dst"], strict=True))
    published = [("L4H11", "L5H1"), ("L4H7", "L5H1"), ("L4H11", "L6H9")]
    agreeing = sum(mine == theirs for mine, theirs in zip(found, published, strict=True))
    return Evidence(truth=(equals("of the three strongest pairs, as published", float(agreeing), 3.0, 0.0),))


@claim(
    "S1.10",
    kind="text",
    status="observational",
    needs="gpt2",
    statement="Graphs of the strongest kernels show more heads of known classes than those of composition scores.",
    correction="24 of 52 heads against 16 of 46, in the graphs of the 20 strongest pairs of OQ, OK and OV.",
    tolerance="exact",
    reference="arXiv 2601.10266, figure 5",
)
def heads_in_classes(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    from headspan.lenses.affinity.class_detection import class_counts
    from headspan.lenses.affinity.head_classes import head_classes

    counts = class_counts(affinity_of(checkpoint), head_classes(PAPER, checkpoint.heads())).set_index("metric")
    return Evidence(
        truth=(
            equals("heads by kernel", float(counts.loc["pk", "nodes"]), 52.0, 0.0),
            equals("of them in a class", float(counts.loc["pk", "in_class"]), 24.0, 0.0),
            equals("heads by composition score", float(counts.loc["cs", "nodes"]), 46.0, 0.0),
            equals("of them in a class (composition)", float(counts.loc["cs", "in_class"]), 16.0, 0.0),
        )
    )


@claim(
    "S1.11",
    kind="text",
    status="observational",
    needs="gpt2",
    statement="The kernel finds heads of known classes with a better precision-recall area than the composition score.",
    correction="For all classes together and for induction heads; for previous-token heads the two are level. The "
    "classes are small, so intervals are wide.",
    tolerance="kernel ahead; previous-token heads within 0.1",
    reference="arXiv 2601.10266, head detection",
)
def detection(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    from headspan.lenses.affinity.class_detection import head_detection
    from headspan.lenses.affinity.head_classes import head_classes

    classes = head_classes(PAPER, checkpoint.heads())
    rows = [row for row in head_detection(affinity_of(checkpoint), classes, draws=2) if row.score == "largest"]
    found = {(row.target, row.metric): row.average_precision for row in rows}
    base = next(row.base_rate for row in rows if row.target == "any class")
    induction = next(name for name in classes.classes if name.startswith("Induction"))
    previous = next(name for name in classes.classes if name.startswith("Previous"))
    return Evidence(
        truth=(
            at_least("any class, kernel less composition", found["any class", "pk"] - found["any class", "cs"], 0.1),
            at_least("induction, kernel less composition", found[induction, "pk"] - found[induction, "cs"], 0.1),
            at_most("previous token, difference", abs(found[previous, "pk"] - found[previous, "cs"]), 0.1),
        ),
        figures={
            "any class, kernel": found["any class", "pk"],
            "composition": found["any class", "cs"],
            "base rate": base,
        },
    )


@claim(
    "S1.12",
    kind="text",
    status="observational",
    needs="gpt2",
    statement="L4H7, an identity head, is a hub: its incoming and outgoing kernels are high.",
    correction="First of 144 heads by three definitions of a hub. Not so its class: L1H11, the other identity head of "
    "the figure, is far down.",
    tolerance="exact",
    reference="arXiv 2601.10266, figure 8",
)
def hub(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    from headspan.lenses.affinity.hubs import DEFINITIONS, hub_scores, ranked_hubs

    ranks, other = [], []
    for definition in DEFINITIONS:
        order = list(ranked_hubs(hub_scores(affinity_of(checkpoint), definition))["head"])
        ranks.append(order.index("L4H7") + 1)
        other.append(order.index("L1H11") + 1)
    return Evidence(
        truth=(
            equals("worst rank of L4H7", float(max(ranks)), 1.0, 0.0),
            at_least("best rank of L1H11", min(other), 5),
        ),
    )


@claim(
    "S1.13",
    kind="text",
    status="observational",
    needs="gpt2",
    statement="Folding LayerNorm leaves kernels nearly as they are and changes composition scores considerably.",
    correction="Rank correlations of 0.97 to 0.98 against 0.80 to 0.95; of the 20 strongest pairs through queries 19 "
    "stay against 1.",
    tolerance="kernel above 0.95 and ahead in every pairing",
    reference="arXiv 2601.10266, robustness",
)
def folding_of_gpt2(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    from headspan.dims import COMPOSING
    from headspan.lenses import affinity
    from headspan.lenses.affinity.edges import pairing_node
    from headspan.lenses.affinity.robustness import agreement

    plain = affinity_of(checkpoint)
    folded = affinity.compute(checkpoint.heads().refolded("layernorm", False), pairings=COMPOSING, draws=2)

    def kept(variable: str, pairing: str) -> tuple[float, int]:
        """Rank correlation before and after, and how many of the 20 strongest pairs stay."""
        before, after = (pairing_node(result, pairing)[variable].values for result in (plain, folded))
        return agreement(before, after, 20)

    kernel, composition = (
        {pairing: kept(variable, pairing) for pairing in COMPOSING}
        for variable in ("projection_kernel", "composition_score")
    )
    return Evidence(
        truth=(
            at_least("lowest rank correlation of kernels", min(rho for rho, _ in kernel.values()), 0.95),
            at_least(
                "least lead over composition", min(kernel[key][0] - composition[key][0] for key in COMPOSING), 0.01
            ),
            at_least("strongest 20 kept through OQ", float(kernel["OQ"][1]), 17.0),
            at_most("the same, composition", float(composition["OQ"][1]), 5.0),
        )
    )


@claim(
    "S1.14",
    kind="text",
    status="observational",
    needs="gpt2",
    statement="All heads of GPT-2 small have full rank, and all kernels lie in [0, 64].",
    tolerance="exact",
    reference="arXiv 2601.10266, limitations and first experiment",
)
def full_rank(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    from headspan.lenses.affinity.edges import pairing_node

    result = affinity_of(checkpoint)
    nodes = [pairing_node(result, pairing) for pairing in result.children]
    ranks = np.concatenate([node[name].values.ravel() for node in nodes for name in ("src_rank", "dst_rank")])
    kernels = np.concatenate([node["projection_kernel"].values.ravel() for node in nodes])
    return Evidence(
        truth=(
            equals("smallest rank", float(ranks.min()), 64.0, 0.0),
            at_most("largest kernel", float(np.nanmax(kernels)), 64.0),
            at_least("smallest kernel", float(np.nanmin(kernels)), 0.0),
        )
    )
