"""Statistics of attention against their definitions, SciPy, and models made to have the answer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import headspan
from docs.calibration.attention_cosines import autocorrelated, p_values
from headspan.errors import ArgumentError
from headspan.lenses.attention.maps import (
    STATISTICS,
    pattern_statistics,
    uniform_pattern,
    uniform_statistics,
    write_average,
    write_shares,
)
from headspan.lenses.attention.states import (
    angular_correlation,
    cosines,
    effective_rank,
    numerical_rank,
    random_effective_rank,
    state_statistics,
    uniform_map_rank,
)
from headspan.result import Result
from headspan.runtime import RunnableModel, encoded, forward, open_runnable
from headspan.runtime.forward_pass import row_entropy
from tests.unit.running_models import TEXT, fresh, running

N = 7


def causal_pattern(n: int = N, heads: int = 3, seed: int = 0, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random causal patterns and their logarithms."""
    scores = scale * torch.randn(heads, n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    logs = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf).log_softmax(-1)
    return logs.exp(), logs


@pytest.fixture(scope="module")
def model() -> RunnableModel:
    return running()


@pytest.fixture(scope="module")
def result(model: RunnableModel) -> Result:
    return headspan.attention(model, TEXT, level="word", permutations=19)


# Statistics of heads


def test_entropies_are_those_of_scipy() -> None:
    pattern, logs = causal_pattern()
    np.testing.assert_allclose(row_entropy(logs), stats.entropy(pattern.numpy(), axis=-1), atol=1e-12)


def test_entropy_is_exact_where_probabilities_round_to_zero() -> None:
    """Two keys, the second with probability exp(-800): float64 holds neither it nor 1 less it."""
    assert float(row_entropy(torch.tensor([[0.0, -800.0]], dtype=torch.float64))) == 0.0
    small = torch.tensor([[0.0, -600.0]], dtype=torch.float64)
    assert float(row_entropy(small)) == pytest.approx(600 * math.exp(-600), rel=1e-12)


def test_statistics_are_their_definitions() -> None:
    pattern, logs = causal_pattern()
    found = pattern_statistics(pattern, logs, causal=True)
    for head, p in enumerate(pattern.numpy()):
        rows = range(1, N)
        entropy = [stats.entropy(p[i, : i + 1]) for i in rows]
        received = [np.mean([p[i, j] for i in rows if i != j]) for j in range(N)]
        expected = {
            "entropy": np.mean(entropy),
            "relative_entropy": np.mean([h / math.log(i + 1) for h, i in zip(entropy, rows, strict=True)]),
            "effective_positions": np.mean(np.exp(entropy)),
            "self_mass": np.mean([p[i, i] for i in rows]),
            "previous_mass": np.mean([p[i, i - 1] for i in rows]),
            "first_mass": np.mean([p[i, 0] for i in rows]),
            "sink_mass": max(received),
            "sink_position": int(np.argmax(received)),
        }
        assert set(expected) == {*STATISTICS, "sink_position"}
        for name, value in expected.items():
            assert float(found[name][head]) == pytest.approx(value, abs=1e-12), name


@pytest.mark.parametrize("causal", [True, False])
def test_the_null_is_what_a_head_of_constant_scores_does(causal: bool) -> None:
    scores = torch.zeros(1, N, N, dtype=torch.float64)
    if causal:
        scores = scores.masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), -torch.inf)
    found = pattern_statistics(scores.softmax(-1), scores.log_softmax(-1), causal)
    for name, value in uniform_statistics(N, causal).items():
        assert float(found[name][0]) == pytest.approx(value, abs=1e-12), name
    assert uniform_statistics(N, causal)["relative_entropy"] == pytest.approx(1)


def test_uniform_causal_masses_are_mean_of_one_over_i() -> None:
    expected = np.mean([1 / (i + 1) for i in range(1, N)])
    uniform = uniform_statistics(N, causal=True)
    for name in ("self_mass", "previous_mass", "first_mass", "sink_mass"):
        assert uniform[name] == pytest.approx(expected)
    assert uniform["effective_positions"] == pytest.approx(np.mean(range(2, N + 1)))


def test_a_single_token_has_no_statistics(model: RunnableModel) -> None:
    found = headspan.attention(model, [5])
    assert np.isnan(found["entropy"].values).all()
    assert np.isnan(found["mean_cosine"].values).all()
    np.testing.assert_allclose(found["mean_map"].values, 1)
    assert found.to_json()["heads"][0]["entropy"] is None


# Maps


def test_head_averages_are_their_definitions(model: RunnableModel) -> None:
    prompt = encoded(model, TEXT)
    run, found = forward(model, prompt.tokens), headspan.attention(model, TEXT, permutations=0).grid()
    pattern = run.pattern()[0].double().numpy()
    np.testing.assert_allclose(found["mean_map"].values, pattern.mean(axis=1), atol=1e-7)
    norms = np.stack([run.head_writes(place)[0].norm(dim=-1).double().numpy() for place in range(2)])
    share = norms / norms.sum(axis=-1, keepdims=True)
    expected = np.einsum("lhqk,lqh->lqk", pattern, share)
    np.testing.assert_allclose(found["write_map"].values, expected, atol=1e-6)
    np.testing.assert_allclose(found["write_share"].values, share.mean(axis=1), atol=1e-6)
    assert "embedding_correlation" not in found


def test_a_head_that_writes_nothing_does_not_count_in_the_weighted_map() -> None:
    model = fresh()
    with torch.no_grad():
        model.linear("O", 1).get_parameter("weight")[:8] = 0
    run = forward(model, encoded(model, TEXT).tokens)
    shares = write_shares(run)[1]
    np.testing.assert_allclose(shares[:, 0], 0, atol=1e-7)
    pattern = run.runs[1].pattern[0].double()
    weighted = write_average(pattern, shares)
    changed = pattern.clone()
    changed[0] = uniform_pattern(pattern.shape[-1], causal=True)[0]
    torch.testing.assert_close(write_average(changed, shares), weighted)
    np.testing.assert_allclose(weighted.sum(-1), 1, atol=1e-6)


def test_heads_that_all_write_nothing_count_alike() -> None:
    model = fresh()
    with torch.no_grad():
        model.linear("O", 0).get_parameter("weight").zero_()
    np.testing.assert_allclose(write_shares(forward(model, encoded(model, TEXT).tokens))[0], 1 / 3)


def test_rows_of_word_maps_of_a_real_encoder_sum_to_one(minilm: Path) -> None:
    running_model = open_runnable(minilm)
    text = "Unbelievable! The tokenizer's sub-words of “antidisestablishmentarianism” were pooled."
    found = headspan.attention(running_model, text, level="word", permutations=0).dataset()
    assert found.sizes["query"] < len(encoded(running_model, text))
    for name in ("pattern", "mean_map", "write_map"):
        np.testing.assert_allclose(found[name].sum("key"), 1, atol=1e-6)
    assert float(found["left_out"].max()) == 0
    assert bool((found["mean_map"] > 0).all()), "an encoder looks both ways"


def test_what_is_not_shown_is_reported(model: RunnableModel) -> None:
    dropped = headspan.attention(model, TEXT, level="word", special="drop", permutations=0)
    np.testing.assert_allclose(dropped["mean_map"].sum("key") + dropped["left_out"], 1, atol=1e-6)
    assert float(dropped["left_out"].min()) > 0
    chosen = headspan.attention(model, TEXT, level="word", words=["café", "the"], permutations=0)
    assert chosen.data.identical(headspan.attention(model, TEXT, level="word", words="café,the", permutations=0).data)
    assert [str(text) for text in chosen["query_text"].values] == ["The", "the", "café", "the", "the"]
    np.testing.assert_allclose(chosen["mean_map"].sum("key") + chosen["left_out"], 1, atol=1e-6)


def test_the_double_sum_keeps_the_total(model: RunnableModel, result: Result) -> None:
    summed = headspan.attention(model, TEXT, level="word", pooling="sum", permutations=0)
    np.testing.assert_allclose(summed["mean_map"].sum(["query", "key"]), result.attrs["n_tokens"], rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"level": "letter"}, "level is token or word, not 'letter'"),
        ({"pooling": "max"}, "pooling is mean or sum, not 'max'"),
        ({"special": "hide"}, "special is keep or drop, not 'hide'"),
        ({"permutations": -1}, "permutations is at least 0"),
        ({"prompt": "a", "few_shot": "no such file"}, "prompt and few_shot were both given; give one of them"),
    ],
)
def test_wrong_choices_are_refused_before_the_model_is_opened(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        headspan.attention("no such model", **given)


def test_nothing_left_to_show_is_refused(model: RunnableModel) -> None:
    with pytest.raises(ArgumentError, match="nothing is left of the prompt"):
        headspan.attention(model, [model.tokenizer.bos_token_id], special="drop")  # type: ignore[union-attr]


# States


def test_states_all_alike_have_cosine_one_and_rank_one() -> None:
    alike = torch.arange(1.0, 9.0).expand(2, 5, 8)
    found = state_statistics(alike)
    np.testing.assert_allclose(found["mean_cosine"], 1)
    np.testing.assert_allclose(found["residual"], 0, atol=1e-12)
    np.testing.assert_allclose(found["effective_rank"], 1, atol=1e-6)


def test_random_states_have_the_values_of_the_null() -> None:
    states = torch.randn(400, 12, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = state_statistics(states)
    error = float(found["mean_cosine"].std()) / 20
    assert abs(float(found["mean_cosine"].mean())) < 4 * error
    assert float(found["effective_rank"].mean()) == pytest.approx(random_effective_rank(12, 30), rel=0.01)
    assert float(found["residual"].mean()) == pytest.approx(math.sqrt(11 / 12), rel=0.01)


def test_mean_cosine_is_its_definition() -> None:
    states = torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    pairs = cosines(states[0]).numpy()[np.triu_indices(6, 1)]
    assert float(state_statistics(states)["mean_cosine"][0]) == pytest.approx(pairs.mean())


def test_ranks_of_known_maps() -> None:
    assert int(numerical_rank(uniform_pattern(6, causal=False)[0])) == uniform_map_rank(6, causal=False) == 1
    assert int(numerical_rank(torch.eye(6))) == 6
    assert float(effective_rank(torch.ones(5))) == pytest.approx(5)
    values = np.linalg.svd(np.tril(np.ones((9, 9))) / np.arange(1, 10)[:, None])[1]
    assert uniform_map_rank(9, causal=True) == int((values > 0.01 * values[0]).sum())


# Angles


@pytest.mark.parametrize("causal", [True, False])
def test_correlations_are_those_of_ranks_without_position_effects(causal: bool) -> None:
    pattern, _ = causal_pattern(n=10) if causal else (torch.rand(3, 10, 10, dtype=torch.float64), None)
    cosine = cosines(torch.randn(10, 5, dtype=torch.float64))
    found, p = angular_correlation(pattern, cosine[None], causal, 99, seed=0)
    query, key = np.nonzero(np.tri(10, k=-1) if causal else 1 - np.eye(10))
    design = np.concatenate([np.eye(10)[query], np.eye(10)[key], np.eye(19)[query - key + 9]], axis=1)

    def rest(values: np.ndarray) -> np.ndarray:
        left: np.ndarray = values - design @ np.linalg.lstsq(design, values)[0]
        return left.round(8)

    angle = rest(stats.rankdata(rest(cosine.numpy().round(12)[query, key])))
    for head in range(3):
        own = rest(stats.rankdata(rest(np.log(pattern[head].numpy()[query, key]))))
        assert found[0, head] == pytest.approx(np.corrcoef(own, angle)[0, 1], abs=1e-6)
    assert ((p >= 1 / 20) & (p <= 1)).all()


def test_attention_made_of_cosines_correlates_fully() -> None:
    cosine = cosines(torch.randn(16, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    logits = cosine - 0.1 * torch.arange(16)[:, None] + 0.3 * torch.arange(16)
    pattern = logits.masked_fill(torch.ones(16, 16).triu(1) > 0, -torch.inf).softmax(-1)
    found, p = angular_correlation(pattern[None], cosine[None], True, 199, seed=0)
    assert found[0, 0] == pytest.approx(1)
    assert p[0, 0] == pytest.approx(1 / 32)


def test_p_values_of_unrelated_attention_are_uniform() -> None:
    """Over 200 heads, the share below 0.25 lies within four standard errors of 0.25."""
    pattern, _ = causal_pattern(n=12, heads=200, seed=3)
    cosine = cosines(torch.randn(12, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(4)))
    _, p = angular_correlation(pattern, cosine[None], True, 99, seed=0)
    assert abs((p <= 0.25).mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 200)


def test_heads_that_know_positions_only_do_not_follow_autocorrelated_states() -> None:
    """Dealing states to positions at random called all of these heads significant."""
    generator = np.random.default_rng(0)
    found = np.concatenate([p_values("positional heads", generator) for _ in range(12)])
    assert (found <= 0.05).mean() < 0.15
    place = torch.arange(20, dtype=torch.float64)
    logits = (-0.4 * (place[:, None] - place - 2).abs()).masked_fill(torch.ones(20, 20).triu(1) > 0, -torch.inf)
    states = torch.tensor(autocorrelated(generator, 0.8)[:20])
    correlation, p = angular_correlation(logits.softmax(-1)[None], cosines(states)[None], True, 99, seed=0)
    assert np.isnan(correlation).all()
    assert np.isnan(p).all()


def test_too_few_positions_have_no_correlation() -> None:
    pattern, _ = causal_pattern(n=2)
    found, p = angular_correlation(pattern, torch.eye(2, dtype=torch.float64)[None], True, 9, seed=0)
    assert np.isnan(found).all()
    assert np.isnan(p).all()


# The lens


def test_the_head_average_is_nearer_to_uniform_than_its_heads(result: Result) -> None:
    single = result.grid()["relative_entropy"].mean("head")
    assert (result["mean_map_relative_entropy"].values > single.values).all()
    np.testing.assert_allclose(result["mean_relative_entropy"], single)


def test_every_score_has_its_null_beside_it(result: Result) -> None:
    for name in (*STATISTICS, "write_share", "effective_rank", "mean_cosine", "map_rank", "embedding_correlation"):
        assert np.isfinite(float(result[f"{name}_null"])), name
    assert {"model", "file_hash", "null", "level", "seed", "run_by"} <= set(result.attrs)


def test_the_same_seed_gives_the_same_result(model: RunnableModel, result: Result) -> None:
    again = headspan.attention(model, TEXT, level="word", permutations=19)
    assert again.data.identical(result.data)


def test_heads_are_selected_by_label(result: Result) -> None:
    grid = result.grid()
    for spelled in ("L1H2", "1.2"):
        pattern = result["pattern"].sel(head=spelled)
        np.testing.assert_array_equal(pattern, grid["pattern"].sel(layer=1, head=2))
    assert result["pattern"].attrs["long_name"] == "attention"
    with pytest.raises(ArgumentError, match="L7H0"):
        result["pattern"].sel(head="L7H0")


def test_the_default_prompt_is_a_story_or_random_tokens_twice(stories: Path) -> None:
    told = headspan.attention(stories, level="word", permutations=0)
    assert "Lily" in [str(text) for text in told["query_text"].values]
    drawn = headspan.attention("demo", permutations=0)["token_id"].values
    assert drawn.tolist()[:32] == drawn.tolist()[32:]


# Batches


PROMPTS = ["abcabcabc", "hello hello", "abab"]


@pytest.fixture(scope="module")
def batch() -> Result:
    return headspan.attention("demo", PROMPTS, permutations=0)


def test_a_batch_holds_what_every_prompt_gives_by_itself(batch: Result) -> None:
    for place, prompt in enumerate(PROMPTS):
        alone = headspan.attention("demo", prompt, permutations=0)
        for name in ("relative_entropy", "previous_mass", "write_share", "mean_cosine"):
            np.testing.assert_array_equal(batch["batch"][name].sel(prompt=place).values, alone[name].values)
        assert batch.table("prompts")["prompt_text"][place] == prompt
    first = headspan.attention("demo", PROMPTS[0], permutations=0)
    np.testing.assert_array_equal(batch["pattern"], first["pattern"])
    assert "batch" not in first


def test_a_batch_tells_mean_and_spread_of_every_head(batch: Result, tmp_path: Path) -> None:
    values = batch["batch"].previous_mass.transpose("prompt", "head").values
    row = batch.table("batch").set_index("head").loc["L0H3"]
    assert row["previous_mass_mean"] == pytest.approx(values[:, 3].mean())
    assert row["previous_mass_sd"] == pytest.approx(values[:, 3].std(ddof=1))
    batch.save(tmp_path / "batch.nc")
    again = headspan.load(tmp_path / "batch.nc")
    assert float(again["batch"].previous_mass_mean.sel(head="L0H3")) == row["previous_mass_mean"]


def test_the_order_of_heads_over_prompts_is_told_for_a_batch_only(batch: Result) -> None:
    ranks = [stats.rankdata(row) for row in batch["batch"].relative_entropy.transpose("prompt", "head").values]
    pairs = [np.corrcoef(ranks[i], ranks[j])[0, 1] for i, j in ((0, 1), (0, 2), (1, 2))]
    told = [finding for finding in batch.findings if "two prompts" in finding.statement]
    assert [finding.value for finding in told] == [pytest.approx(np.mean(pairs))]
    alone = headspan.attention("demo", PROMPTS[0], permutations=0)
    assert not any("two prompts" in finding.statement for finding in alone.findings)


def test_token_ids_of_several_prompts_are_a_batch_and_of_one_a_prompt() -> None:
    assert "batch" not in headspan.attention("demo", [1, 2, 3], permutations=0)
    found = headspan.attention("demo", [[1, 2, 3], [4, 5, 6, 7]], permutations=0)
    assert found["batch"].n_tokens.values.tolist() == [3, 4]
    with pytest.raises(ArgumentError, match="the prompt is empty"):
        headspan.attention("demo", ["abc", ""], permutations=0)
    with pytest.raises(ArgumentError, match="each a text or a list of token ids"):
        headspan.attention("demo", ["abc", 4.5], permutations=0)  # type: ignore[list-item]
