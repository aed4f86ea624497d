"""Perturbations do what they say and nothing else."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from headspan.errors import ArgumentError, DegenerateSubspace, ShapeError
from headspan.lab.ablation import Site, ablation_table, named_bases, over_seeds, sites, swap_scores, with_part, without
from headspan.lab.architecture import Architecture
from headspan.lab.curvature import LossSurface
from headspan.lab.landscape import interpolation
from headspan.lab.model import LabModel
from headspan.lab.scores import (
    accuracy,
    attention_null,
    attention_scores,
    layer_offset_shares,
    length_generalization,
    offset_share,
    shuffled_previous_token,
)
from headspan.lab.sequences import copying_sequences
from headspan.lab.task import Task, marginal_accuracy, marginal_losses
from headspan.lab.training_studies import (
    first_above,
    gain_correlation,
    leading_directions,
    restarts,
    sparsity_after_training,
    table_sparsity,
)
from headspan.statistics.sparsity import sparsity_against_null
from headspan.subspaces import random_subspaces
from tests.unit.lab.small import tiny_recipe
from tests.unit.lab.test_named_spaces import model, with_gap

TASK = Task(vocabulary=40, length=16, shortest=4, longest=6, ood_block=7)
TEST = copying_sequences(TASK, 24, torch.Generator().manual_seed(0), ood=True)
BASIS = random_subspaces((), 32, 6, 1).basis


@torch.no_grad()
@pytest.mark.parametrize("role", ["Q", "K", "V"])
def test_a_reader_without_a_subspace_reads_the_projected_stream(role: str) -> None:
    whole = model(dropout=0.0).double()
    cut = without(whole, Site(role, 1), BASIS)  # type: ignore[arg-type]
    x = torch.randn(5, 32, dtype=torch.float64)
    name = f"{role.lower()}_proj"
    projected = x - (x @ BASIS) @ BASIS.T
    torch.testing.assert_close(
        getattr(cut.stack[1].self_attn, name)(x), getattr(whole.stack[1].self_attn, name)(projected)
    )
    changed = [n for n, p in cut.named_parameters() if not torch.equal(p, whole.get_parameter(n))]
    assert changed == [f"layers.1.self_attn.{name}.weight"]


@torch.no_grad()
def test_a_writer_without_a_subspace_writes_nothing_into_it() -> None:
    whole = model().double()
    cut = without(whole, Site("O", 0), BASIS)
    x = torch.randn(5, 32, dtype=torch.float64)
    written = cut.stack[0].self_attn.o_proj(x)
    assert float((written @ BASIS).abs().max()) < 1e-12
    full = whole.stack[0].self_attn.o_proj(x)
    torch.testing.assert_close(written, full - (full @ BASIS) @ BASIS.T)
    assert float((without(whole, Site("E"), BASIS).embed_tokens.weight @ BASIS).abs().max()) < 1e-12


def test_removals_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"a basis of R\^5 does not fit a stream of 32 dimensions"):
        without(model(), Site("E"), torch.eye(5, dtype=torch.float64))
    with pytest.raises(ArgumentError, match=r"layer needs to be in 0\.\.1, found 2"):
        without(model(), Site("K", 2), BASIS)
    assert [str(site) for site in sites(1)] == ["embedding", "L0 Q", "L0 K", "L0 V", "L0 O"]


def test_without_a_gap_there_is_no_table() -> None:
    with pytest.raises(DegenerateSubspace, match=r"has no gap \(largest .* train longer"):
        named_bases(model())
    with pytest.raises(DegenerateSubspace, match="the model has one layer"):
        named_bases(with_gap(model(layers=1)))


def test_the_table_has_a_control_of_the_same_dimension_in_every_cell() -> None:
    table = ablation_table(with_gap(model(), 14), TEST, controls=2)
    assert table["dimension"].values.tolist() == [1, 14, 17, 5]
    assert table["accuracy"].shape == (4, 9)
    assert table["accuracy_control"].shape == (4, 9, 2)
    for name in ("accuracy", "previous_token", "induction"):
        assert table[f"{name}_control"].notnull().all()
    both = over_seeds([table, table])
    np.testing.assert_allclose(both["accuracy_mean"], table["accuracy"])
    np.testing.assert_allclose(both["accuracy_low"], both["accuracy_high"])


def test_logits_of_the_offset_alone_are_explained_whole_and_noise_by_chance() -> None:
    T, random = 16, torch.Generator().manual_seed(0)
    offset = torch.arange(T)[:, None] - torch.arange(T)
    toeplitz = torch.sin(0.7 * offset.double()).expand(5, T, T)
    # Row means differ from row to row, so centring leaves a little that no single mean per offset can explain.
    assert offset_share(toeplitz)[0] > 0.85
    noise = torch.randn(200, T, T, generator=random, dtype=torch.float64)
    share, chance = offset_share(noise)
    assert chance == pytest.approx(T / (200 * T * (T + 1) / 2))
    assert share == pytest.approx(chance, rel=1.0)
    assert math.isnan(offset_share(torch.zeros(2, T, T))[0])
    constant_rows = torch.randn(3, T, 1, generator=random).expand(3, T, T)
    assert math.isnan(offset_share(constant_rows)[0]) or offset_share(constant_rows)[0] < 1.0


def previous_token_model() -> LabModel:
    """Layer 0 attends to the position before, whatever the tokens: a learned table of one-hot positions does it."""
    found = LabModel(Architecture(vocabulary=40, length=16, d_model=32, positions="learned", norm="none", bias=False))
    with torch.no_grad():
        found.embed_tokens.weight[:, :16] = 0.0
        found.embed_positions.weight.zero_()
        found.embed_positions.weight[:, :16] = torch.eye(16)
        q, k = found.stack[0].self_attn.q_proj.weight, found.stack[0].self_attn.k_proj.weight
        q.zero_()
        k.zero_()
        q[:16, :16] = 200.0 * torch.eye(16).roll(-1, 0)  # query at i asks for i - 1
        k[:16, :16] = torch.eye(16)
    return found


def test_a_head_made_to_look_one_back_scores_one_and_ignores_tokens() -> None:
    found = previous_token_model()
    with torch.no_grad():
        score = attention_scores(found.trace(TEST.tokens), TEST)["previous_token"][0, 0]
    assert float(score) == pytest.approx(1.0, abs=1e-3)
    shuffled = shuffled_previous_token(found, TEST, torch.Generator().manual_seed(0))
    assert float(shuffled[0]) == pytest.approx(1.0, abs=1e-3)
    assert layer_offset_shares(found, TEST)[0][0] > 0.8
    # A head that needs tokens does not survive the shuffle: here it looks for its own token.
    other = model(positions="none", norm="none", bias=False)
    with torch.no_grad():
        for name in ("q_proj", "k_proj"):
            getattr(other.stack[0].self_attn, name).weight.copy_(3 * torch.eye(32))
    assert layer_offset_shares(other, TEST)[0][0] < 0.6  # its own token stands at offset 0, and elsewhere too


def test_even_attention_scores_what_is_called_chance() -> None:
    flat = model()
    with torch.no_grad():
        for layer in flat.stack:
            layer.self_attn.q_proj.weight.zero_()
            layer.self_attn.q_proj.bias.zero_()
        found = attention_scores(flat.trace(TEST.tokens), TEST)
    chance = attention_null(TEST)
    for name in ("previous_token", "induction"):
        assert found[name].numpy() == pytest.approx(chance[name], rel=1e-5)


def test_accuracy_counts_scored_tokens_only() -> None:
    logits = torch.zeros(len(TEST), 16, 40)
    logits[:, :-1].scatter_(2, TEST.tokens[:, 1:, None], 1.0)
    assert accuracy(logits, TEST) == 1.0
    wrong = ~TEST.scored[:, 1:]
    logits[:, :-1][wrong] = 0.0
    assert accuracy(logits, TEST) == 1.0
    assert accuracy(-logits, TEST) == 0.0


def test_a_swap_takes_the_named_part_and_leaves_the_rest() -> None:
    first, second = model(0), model(1)
    mixed = with_part(first, second, "L0")
    for name, parameter in mixed.named_parameters():
        donor = second if name.startswith("layers.0") else first
        assert torch.equal(parameter, donor.get_parameter(name)), name
    with pytest.raises(ArgumentError, match="the model has no part 'L7'"):
        with_part(first, second, "L7")
    with pytest.raises(ShapeError, match="models of one shape only"):
        with_part(first, model(1, heads=2), "L0")
    assert swap_scores(first, first, TEST)["before, L0 from after"] == swap_scores(first, first, TEST)["before"]


def test_the_path_begins_and_ends_at_the_two_models_and_has_no_barrier_to_itself() -> None:
    first, second = model(0), model(1)
    near = LossSurface.of(first, TEST, 4)
    places, losses, barrier = interpolation(near, second, points=5)
    assert (places[0], places[-1]) == (0.0, 1.0)
    assert losses[0] == pytest.approx(float(near.loss(near.point)))
    other = LossSurface.of(second, TEST, 4)
    assert losses[-1] == pytest.approx(float(other.loss(other.point)))
    assert barrier == pytest.approx(max(0.0, max(x - (losses[0] + p * (losses[-1] - losses[0]))
                                                 for p, x in zip(places, losses, strict=True))))  # fmt: skip
    assert interpolation(near, first, points=5)[2] == pytest.approx(0.0, abs=1e-12)


def test_the_best_predictor_without_context_loses_the_entropy() -> None:
    losses = marginal_losses(Task())
    p = 1 / (np.arange(64) + 2.7)
    p /= p.sum()
    assert losses == pytest.approx({"id": -(p * np.log(p)).sum(), "ood": -np.log(p).mean(), "ood_best": np.log(64)})
    assert (losses["id"], losses["ood"]) == pytest.approx((3.7197, 4.5326), abs=1e-4)
    assert marginal_accuracy(Task())["ood"] == 1 / 64
    with pytest.raises(ArgumentError, match="the marginal law is known for the task copying, not for 'addition'"):
        marginal_losses(Task(kind="addition"))


def test_longer_sequences_are_undefined_beyond_a_learned_table() -> None:
    found = length_generalization(model(positions="learned"), TASK, (16, 24), count=4)
    assert 0 <= found[16] <= 1
    assert math.isnan(found[24])
    assert 0 <= length_generalization(model(), TASK, (24,), count=4)[24] <= 1
    with pytest.raises(ArgumentError, match=r"lengths need to be at least 14 \(two blocks\), found 13"):
        length_generalization(model(), TASK, (13,))


def test_restarts_begin_where_they_say_and_see_the_same_data() -> None:
    recipe = tiny_recipe()
    start = LabModel(recipe.shape, 3)
    n = sum(p.numel() for p in start.parameters())
    direction = torch.zeros(n, dtype=torch.float64)
    direction[0] = 1.0
    still = restarts(recipe, start, direction, 0.0, steps=4, every=2)
    assert still["as it is"] == still["along the most negative curvature"] == still["as far at random"]
    moved = restarts(recipe, start, direction, 50.0, steps=4, every=2)
    assert moved["as it is"] == still["as it is"]
    assert first_above([(10, 0.2), (20, 0.6), (30, 0.9)]) == 20.0
    assert math.isnan(first_above([(10, 0.2)]))


def test_a_table_on_few_coordinates_is_told_from_a_spread_one() -> None:
    sparse = torch.zeros(20, 32)
    sparse[:, :4] = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    found = table_sparsity(sparse)
    value, chance = found["found"], found["null"]
    assert found["p"] == 0.001
    assert value < 4.001
    single = sparsity_against_null(np.eye(32)[:, :1], seed=0)[
        "participation_null"
    ]  # a random direction: about (d + 2)/3
    assert chance == pytest.approx(float(single[0]), rel=0.02)
    random = table_sparsity(torch.randn(200, 32, generator=torch.Generator().manual_seed(0)))
    assert random["p"] > 0.05
    spread = random["found"]
    assert spread == pytest.approx(chance, rel=0.35)


def test_tables_without_structure_are_called_sparse_as_often_as_said() -> None:
    generator = torch.Generator().manual_seed(5)
    found = [table_sparsity(torch.randn(20, 12, generator=generator))["p"] for _ in range(400)]
    share = sum(p <= 0.05 for p in found) / 400
    assert abs(share - 0.05) < 4 * (0.05 * 0.95 / 400) ** 0.5


def test_gains_that_follow_position_coordinates_are_seen() -> None:
    model = LabModel(Architecture(vocabulary=8, length=20, d_model=16, positions="learned"), seed=0)
    assert math.isnan(gain_correlation(model))  # all gains are one before training
    share = leading_directions(model.embed_positions.weight).square().sum(1)
    with torch.no_grad():
        model.stack[0].input_layernorm.weight.copy_(1 - share)
    assert gain_correlation(model) == pytest.approx(-1.0)


def test_every_variant_of_the_sparsity_puzzle_trains() -> None:
    found = sparsity_after_training(tiny_recipe(), steps=3)
    assert list(found) == ["before training", "adamw, gains", "adamw, no gains", "sgd, gains", "sgd, no gains"]
    assert all(1 <= row["positions"] <= 16 for row in found.values())
    assert len({row["positions"] for row in found.values()}) == 5
