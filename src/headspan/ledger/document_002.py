"""Document 002, positions and tokens in one stream: the mathematics, position tables of GPT-2, token tables.

What needs a token table is tried on GPT-2 where it is given with one, as the document says it, and else on MiniLM, a
BERT encoder. Where MiniLM does not show what was seen on GPT-2 the claim is called not reproduced, which says nothing
about GPT-2 itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from headspan.distributions import AttentionWeights, attention_layer, random_layers
from headspan.ledger.claim import check
from headspan.ledger.models import over_null, position_values
from headspan.ledger.trial import Draws, Evidence, at_least, at_most, equals, evidence, mean_is, same

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint


D = 24


def _own(checkpoint: Checkpoint) -> bool:
    """Whether it is the model the document is about."""
    return checkpoint.family == "gpt2"


@check("S2.1")
def blind_to_order(draws: Draws) -> Evidence:
    X, (weights,) = draws.normal(10, D), random_layers(D, 1, draws.generator)
    order = torch.randperm(10, generator=draws.generator).roll(1)

    def gap(weights: AttentionWeights, causal: bool) -> torch.Tensor:
        return (
            attention_layer(X[order], weights, causal=causal)[0] - attention_layer(X, weights, causal=causal)[0][order]
        )

    return evidence(
        same("permuted before less after", gap(weights, False), 0.0, 1e-12),
        at_least("the same under a causal mask", gap(weights, True).abs().max(), 0.01),
    )


@check("S2.2")
def adding_and_appending(draws: Draws) -> Evidence:
    turn = draws.haar(D)
    places, words = turn[:, :8], turn[:, 8:]
    tilted = torch.linalg.qr(draws.normal(D, 16)).Q
    p, e = draws.normal(5, 8) @ places.T, draws.normal(5, 16)
    return evidence(
        same("position from the sum", (p + e @ words.T) @ places @ places.T, p, 1e-12),
        at_least("error in general position", ((p + e @ tilted.T) @ places @ places.T - p).abs().max(), 0.01),
    )


@check("S2.3")
def capture(draws: Draws) -> Evidence:
    k = 5
    turns, others = draws.haar(D, 2000), draws.haar(D, 2000)
    found = (turns.mT @ others[:, :, :k]).square().sum(-1)
    return evidence(
        same("sum over directions", found.sum(-1), float(k), 1e-10),
        at_least("smallest", found.min(), 0.0),
        at_most("largest", found.max(), 1.0, 1e-12),
        mean_is("first direction, under the null", found[:, 0], k / D),
    )


@check("S2.4")
def overlap_table(draws: Draws) -> Evidence:
    found = (draws.haar(D, 3000).mT @ draws.haar(D, 3000)).square()
    entry = found[:, 0, 0]
    return evidence(
        same("rows", found.sum(-1), 1.0, 1e-12),
        same("columns", found.sum(-2), 1.0, 1e-12),
        mean_is("an entry under the null", entry, 1 / D),
        equals("its deviation over its mean", entry.std() / entry.mean(), 1.3, 0.2),
    )


def _corner(checkpoint: Checkpoint, matrix: str, table: str, side: str, table_side: str) -> float:
    """Common dimensions of tenths of a matrix of layer 0 and of a table, over those expected under the null."""
    return float(over_null(checkpoint, "corner", layer=0, matrix=matrix, table=table, side=side, table_side=table_side))


def _energy(checkpoint: Checkpoint, matrix: str, table: str) -> float:
    """Energy alignment of a matrix of layer 0 with a table, over that expected under the null."""
    return float(over_null(checkpoint, "energy_alignment", layer=0, matrix=matrix, table=table))


@check("S2.5")
def low_rank(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    energy = position_values(checkpoint, "singular_value", table="P") ** 2
    return evidence(
        equals("directions with 90 %", position_values(checkpoint, "rank_90", table="P"), 4, 0),
        at_least("share of the first 30", energy[:30].sum() / energy.sum(), 0.999),
        figures={"directions with 90 % under the null": position_values(checkpoint, "rank_90", null=True, table="P")},
    )


@check("S2.6")
def high_rank(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    d = checkpoint.heads().d_model
    tokens, places = (position_values(checkpoint, "rank_90", table=table) for table in "EP")
    return evidence(
        at_least("share of directions for 90 % of tokens", tokens / d, 0.5),
        at_most("share of directions for 90 % of positions", places / d, 0.1),
    )


@check("S2.7")
def top_on_bottom(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    ratio = over_null(checkpoint, "decile_mass")
    return evidence(
        at_least("last tenth over the null", ratio[-1], 4.0),
        at_most("largest other tenth over the null", ratio[:-1].max(), 1.0),
    )


@check("S2.8")
def low_indices(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    stored, centered = (float(position_values(checkpoint, "capture", centered=flag)[0]) for flag in (False, True))
    if _own(checkpoint):
        return evidence(
            at_least("capture of the first direction, over the null", over_null(checkpoint, "capture")[0], 1.0)
        )
    return evidence(
        at_least("capture of the first direction", stored, 0.3),
        at_most("the same without mean rows", centered, stored / 2),
        at_least("cosine of the mean rows", position_values(checkpoint, "mean_cosine"), 0.3),
    )


@check("S2.9")
def queries_and_keys(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    return evidence(
        at_least("queries over the null", _energy(checkpoint, "Q", "P"), 4.0),
        at_least("keys over the null", _energy(checkpoint, "K", "P"), 4.0),
        equals("top tenth of queries on that of positions", _corner(checkpoint, "Q", "P", "top", "top"), 1.0, 0.25),
        equals("top tenth of keys on that of positions", _corner(checkpoint, "K", "P", "top", "top"), 1.0, 0.25),
    )


@check("S2.10")
def matrices_on_tokens(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    found = {matrix: _corner(checkpoint, matrix, "E", "top", "top") for matrix in "QKV"}
    printed = [at_least(f"{matrix}, top on top over the null", value, 1.0) for matrix, value in found.items()]
    if _own(checkpoint):
        return evidence(*printed)
    bottom = _corner(checkpoint, "Q", "E", "top", "bottom")
    return evidence(
        at_most("queries over the null", found["Q"], 0.5),
        at_least("keys over the null", found["K"], 1.0),
        at_least("values over the null", found["V"], 1.0),
        at_least("queries on the bottom of tokens, over the null", bottom, 3.0),
        printed=printed,
    )


@check("S2.11")
def output_on_positions(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    return evidence(
        at_least("top on top over the null", _corner(checkpoint, "O", "P", "top", "top"), 1.5),
        at_least("bottom on bottom over the null", _corner(checkpoint, "O", "P", "bottom", "bottom"), 1.5),
        at_most("top on bottom over the null", _corner(checkpoint, "O", "P", "top", "bottom"), 0.5),
        at_most("bottom on top over the null", _corner(checkpoint, "O", "P", "bottom", "top"), 0.5),
    )


@check("S2.12")
def first_mlp(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    by_layer = over_null(checkpoint, "energy_alignment", matrix="in", table="P")
    printed = at_most("positions read by layer 0, over the null", by_layer[0], 1.0)
    if _own(checkpoint):
        return evidence(
            printed, at_least("its top on that of tokens", _corner(checkpoint, "in", "E", "top", "top"), 1.0)
        )
    return evidence(
        at_least("positions read by layer 0, over the null", by_layer[0], 1.0),
        at_least("its top on the bottom of tokens", _corner(checkpoint, "in", "E", "top", "bottom"), 2.0),
        at_most("positions read from layer 2 on, largest", by_layer[2:].max(), 1.0),
        printed=[printed],
    )


@check("S2.13")
def sparse_directions(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    found, null = (position_values(checkpoint, "sparsity_coordinates_90", null=null)[:5] for null in (False, True))
    return evidence(
        at_most("most coordinates of the first five", found.max(), 40.0),
        figures={"fewest": found.min(), "expected under the null": null.mean()},
    )


@check("S2.14")
def sinusoids(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    found, null = (position_values(checkpoint, "wave_r2", null=null)[:5] for null in (False, True))
    return evidence(
        at_least("least explained of the first five", found.min(), 0.6),
        figures={"most": found.max(), "expected under the null": null.mean()},
    )


@check("S2.15")
def disjoint_coordinates(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    share = over_null(checkpoint, "coordinate_energy")
    used = position_values(checkpoint, "sparsity_coordinates_90")[:5].min()
    printed = at_most("tokens' energy on positions' coordinates, over the null", share, 0.5)
    if _own(checkpoint):
        return evidence(printed)
    return evidence(
        equals("tokens' energy on positions' coordinates, over the null", share, 1.0, 0.05),
        at_least("coordinates of the sparsest of the first five", used, 100.0),
        printed=[printed],
    )


@check("S2.16")
def width_of_stream(draws: Draws, checkpoint: Checkpoint) -> Evidence:
    width = checkpoint.heads().d_model
    return evidence(equals("width", width, 768, 0), printed=[equals("width", width, 784, 0)])
