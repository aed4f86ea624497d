"""Seed 002, positions and tokens in one stream: the mathematics of its measurements."""

from __future__ import annotations

import torch

from headspan.distributions import AttentionWeights, attention_layer, random_layers
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, at_least, at_most, equals, mean_is, same

claim = ClaimsOf("002")
D = 24


@claim(
    "S2.1",
    kind="text",
    status="holds",
    statement="Attention is blind to the order of tokens, but for the causal mask.",
    correction="Permuting tokens permutes what comes out, exactly. The mask breaks this, so a causal model can tell "
    "places without any encoding.",
    tolerance="1e-12",
    reference="seed 002, introduction",
)
def blind_to_order(draws: Draws) -> Evidence:
    X, (weights,) = draws.normal(10, D), random_layers(D, 1, draws.generator)
    order = torch.randperm(10, generator=draws.generator).roll(1)

    def gap(weights: AttentionWeights, causal: bool) -> torch.Tensor:
        return (
            attention_layer(X[order], weights, causal=causal)[0] - attention_layer(X, weights, causal=causal)[0][order]
        )

    return Evidence(
        truth=(
            same("permuted before less after", gap(weights, False), 0.0, 1e-12),
            at_least("the same under a causal mask", gap(weights, True).abs().max(), 0.01),
        )
    )


@claim(
    "S2.2",
    kind="text",
    status="holds",
    statement="If positions and tokens lie in orthogonal subspaces, adding them is as good as appending one to the "
    "other.",
    correction="Each part is then recovered exactly by a projection; in general position the projection leaves an "
    "error that grows with the overlap of the subspaces.",
    tolerance="1e-12",
    reference="seed 002, introduction",
)
def adding_and_appending(draws: Draws) -> Evidence:
    turn = draws.haar(D)
    places, words = turn[:, :8], turn[:, 8:]
    tilted = torch.linalg.qr(draws.normal(D, 16)).Q
    p, e = draws.normal(5, 8) @ places.T, draws.normal(5, 16)
    return Evidence(
        truth=(
            same("position from the sum", (p + e @ words.T) @ places @ places.T, p, 1e-12),
            at_least("error in general position", ((p + e @ tilted.T) @ places @ places.T - p).abs().max(), 0.01),
        )
    )


@claim(
    "S2.3",
    kind="formula",
    status="holds",
    statement="How much of a token direction the top position directions capture, v^T Pi v, lies in [0, 1].",
    correction="Over all d token directions it adds up to k, so its mean is k/d, which is also its value by chance.",
    tolerance="1e-12; 4 standard errors",
    reference="seed 002, first claim",
)
def capture(draws: Draws) -> Evidence:
    k = 5
    turns, others = draws.haar(D, 2000), draws.haar(D, 2000)
    found = (turns.mT @ others[:, :, :k]).square().sum(-1)
    return Evidence(
        truth=(
            same("sum over directions", found.sum(-1), float(k), 1e-10),
            at_least("smallest", found.min(), 0.0),
            at_most("largest", found.max(), 1.0, 1e-12),
            mean_is("first direction, by chance", found[:, 0], k / D),
        )
    )


@claim(
    "S2.4",
    kind="formula",
    status="holds",
    statement="Squared overlaps of two matrices' singular vectors show how they are aligned.",
    correction="The table has rows and columns that sum to 1, and every entry is 1/d by chance: mass in one corner is "
    "taken from others. Single entries vary as much as their mean, so blocks or a blur are needed.",
    tolerance="1e-12; 4 standard errors",
    reference="seed 002, first claim",
)
def overlap_table(draws: Draws) -> Evidence:
    found = (draws.haar(D, 3000).mT @ draws.haar(D, 3000)).square()
    entry = found[:, 0, 0]
    return Evidence(
        truth=(
            same("rows", found.sum(-1), 1.0, 1e-12),
            same("columns", found.sum(-2), 1.0, 1e-12),
            mean_is("an entry by chance", entry, 1 / D),
            equals("its deviation over its mean", entry.std() / entry.mean(), 1.3, 0.2),
        )
    )
