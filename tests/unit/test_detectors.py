"""Detectors find heads made to be found, score uniform attention at the null, and read identity off the weights."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headspan
from headspan.demo import demo_folder
from headspan.errors import ArgumentError, HeadspanError
from headspan.lenses.detect.classes import detected_classes, labeled_heads
from headspan.lenses.detect.measurement import identity_null_sd, identity_scores
from headspan.lenses.detect.schema import DETECTORS as DECLARED
from headspan.lenses.detect.schema import REPEATED
from headspan.lenses.detect.schema import TEXT as ON_TEXT
from headspan.result import Result
from headspan.runtime import forward, open_runnable
from headspan.runtime.detectors import (
    DETECTORS,
    repeated_tokens,
    surrounding_tokens,
    target_mass,
    uniform_mass,
)
from headspan.runtime.detectors import detect as scores_of
from tests.families.tiny_models import CASES
from tests.unit.running_models import TEXT, fresh, running

TOKENS = torch.tensor([[5, 3, 5, 3, 7, 5, 5]])


@pytest.fixture(scope="module")
def demo() -> Result:
    return headspan.detect("demo")


@pytest.fixture(scope="module")
def encoder() -> Result:
    return headspan.detect(running("word-piece", causal=False), text=TEXT * 12, length=10, seeds=3)


def naive_targets(name: str, tokens: list[int], causal: bool) -> np.ndarray:
    """The definitions, pair by pair."""
    n = len(tokens)
    found = np.zeros((n, n), dtype=bool)
    for i in range(n):
        for j in range(n):
            other = j < i if causal else j != i
            before = (j - 1 < i if causal else j - 1 != i) and j > 0
            found[i, j] = {
                "previous_token": j == i - 1,
                "duplicate_token": other and tokens[i] == tokens[j],
                "induction": before and tokens[j - 1] == tokens[i],
                "identity": i == j > 0,
                "first_token": i > 0 and j == 0,
            }[name]
    return found


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("causal", [True, False])
def test_targets_are_their_definitions(name: str, causal: bool) -> None:
    found = DETECTORS[name](TOKENS, causal)[0].numpy()
    np.testing.assert_array_equal(found, naive_targets(name, TOKENS[0].tolist(), causal))


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("causal", [True, False])
def test_uniform_attention_scores_the_null(name: str, causal: bool) -> None:
    n = TOKENS.shape[1]
    allowed = torch.ones(n, n, dtype=torch.float64).tril() if causal else torch.ones(n, n, dtype=torch.float64)
    uniform = (allowed / allowed.sum(-1, keepdim=True))[None, None]
    targets = DETECTORS[name](TOKENS, causal)
    assert float(target_mass(uniform, targets)[0]) == pytest.approx(uniform_mass(targets, causal))


@pytest.mark.parametrize("name", DETECTORS)
def test_a_head_that_only_looks_at_its_targets_scores_one(name: str) -> None:
    targets = DETECTORS[name](TOKENS, True)
    pattern = targets.double() / targets.sum(-1, keepdim=True).clamp(min=1)
    assert float(target_mass(pattern[:, None], targets)[0]) == pytest.approx(1)


def test_nothing_to_look_at_is_undefined_not_zero() -> None:
    distinct = torch.arange(6)[None]
    targets = DETECTORS["induction"](distinct, True)
    assert math.isnan(float(target_mass(torch.eye(6, dtype=torch.float64)[None, None], targets)[0]))
    assert math.isnan(uniform_mass(targets, True))


def test_segments_are_repeated_between_the_special_tokens() -> None:
    model = running("byte-level")
    tokens = repeated_tokens(model, length=10, batch=3, seed=1)
    bos = model.tokenizer.bos_token_id  # type: ignore[union-attr]
    assert tokens.shape == (3, 21)
    assert (tokens[:, 0] == bos).all()
    assert torch.equal(tokens[:, 1:11], tokens[:, 11:])
    assert (tokens[:, 1:] != bos).all()
    assert all(len(set(row[1:11].tolist())) == 10 for row in tokens)
    assert torch.equal(tokens, repeated_tokens(model, 10, 3, 1))
    assert not torch.equal(tokens, repeated_tokens(model, 10, 3, 2))


def test_special_tokens_around_a_text_are_the_tokenizers(minilm: Path) -> None:
    assert surrounding_tokens(open_runnable(minilm)) == ([101], [102])
    assert surrounding_tokens(open_runnable("demo")) == ([], [])
    assert surrounding_tokens(open_runnable(CASES[0].model(head=True).float())) == ([], [])


@pytest.mark.parametrize(("length", "batch"), [(1, 4), (33, 4), (8, 0)])
def test_segments_that_do_not_fit_are_refused(length: int, batch: int) -> None:
    with pytest.raises(HeadspanError, match="segments have a length of at least 2 and at most 32 for this model"):
        repeated_tokens(open_runnable("demo"), length, batch, 0)


# The demo model, whose heads are known


def test_the_demo_models_previous_token_and_induction_heads_are_found(demo: Result) -> None:
    known = json.loads((demo_folder() / "scores.json").read_text())
    labeled = labeled_heads(demo)
    assert labeled["previous_token"] == known["previous_token_heads"] == ["L0H3"]
    assert set(labeled["induction"]) >= set(known["induction_heads"])
    assert all(label.startswith("L1") for label in labeled["induction"])
    assert bool(demo["induction_label"].sel(head="L1H1", prompt=REPEATED))
    scores = [float(demo["induction"].sel(head=label, prompt=REPEATED)) for label in labeled["induction"]]
    assert scores == sorted(scores, reverse=True)


def test_the_schema_declares_the_detectors_there_are() -> None:
    assert list(DECLARED) == list(DETECTORS)


def test_scores_agree_with_those_the_demo_model_was_published_with(demo: Result) -> None:
    """There periods vary and only the repeats count, so agreement is rough."""
    known = json.loads((demo_folder() / "scores.json").read_text())["previous_token_score"]
    ours = demo["previous_token"].sel(prompt=REPEATED).values
    np.testing.assert_allclose(ours, [each["value"] for each in known.values()], atol=0.1)


def test_an_untrained_model_has_no_labels_and_scores_the_null() -> None:
    model = fresh()
    with torch.no_grad():
        for layer in (0, 1):
            model.linear("Q", layer).get_parameter("weight").mul_(1e-4)
            model.linear("Q", layer).get_parameter("bias").mul_(1e-4)
    found = headspan.detect(model, length=12, seeds=3)
    for name in DETECTORS:
        assert not found[f"{name}_label"].any()
        np.testing.assert_allclose(found[name] - found[f"{name}_null"], 0, atol=0.005)
    with pytest.raises(HeadspanError, match=r"no head scores above 0.4 for any detector"):
        detected_classes(found)


def test_a_score_is_the_mean_over_seeds_with_its_standard_error(demo: Result) -> None:
    model = open_runnable("demo")
    values = np.stack([scores_of(forward(model, repeated_tokens(model, 32, 4, seed)))[0].numpy() for seed in range(10)])
    for place, name in enumerate(DETECTORS):
        here = demo.grid().sel(prompt=REPEATED)
        np.testing.assert_allclose(here[name], values[:, place].mean(axis=0))
        np.testing.assert_allclose(here[f"{name}_se"], values[:, place].std(axis=0, ddof=1) / math.sqrt(10))


def test_detected_labels_become_head_classes(demo: Result) -> None:
    classes = detected_classes(demo)
    assert classes.classes["previous_token"] == ("L0H3",)
    assert list(classes.classes["induction"]) == sorted(labeled_heads(demo)["induction"])
    assert "above 0.4" in classes.source


# Text beside designed prompts


def test_text_is_scored_beside_random_tokens(encoder: Result) -> None:
    assert encoder["prompt"].values.tolist() == [REPEATED, ON_TEXT]
    assert encoder.attrs["pieces"] > 2
    assert all(np.isfinite(encoder[f"{name}_se"].values).all() for name in DETECTORS)
    assert float(encoder["identity_null"].sel(prompt=ON_TEXT)) < 0.06


def test_text_that_is_too_short_or_cannot_be_read_is_refused() -> None:
    with pytest.raises(HeadspanError, match="the text holds no piece of 64 tokens"):
        headspan.detect(running(), text="too short", seeds=2)
    with pytest.raises(HeadspanError, match="the text is empty"):
        headspan.detect(running(), text=[" "], seeds=2)
    with pytest.raises(HeadspanError, match="so text cannot be read; leave out"):
        headspan.detect(open_runnable(CASES[0].model(head=True).float()), text="a text", seeds=2)


@pytest.mark.parametrize(
    ("given", "message"), [({"threshold": 0.0}, "threshold is a share"), ({"seeds": 1}, "seeds is at least 2")]
)
def test_wrong_choices_are_refused_before_the_model_is_opened(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        headspan.detect("no such model", **given)


# Identity from the weights


def test_identity_is_its_definition_also_for_grouped_heads(stories: Path) -> None:
    heads = headspan.open(stories).heads(dtype="float64")
    found = identity_scores(heads)
    W_V, W_O = heads.per_query_head(heads.W_V), heads.W_O
    for layer in range(heads.n_layers):
        for head in range(heads.n_heads):
            M = W_V[layer, head] @ W_O[layer, head]
            expected = float(M.trace() / (math.sqrt(heads.d_head) * M.norm()))
            assert float(found[layer, head]) == pytest.approx(expected, abs=1e-12)


def test_identity_heads_of_gpt2_are_negative_and_the_lowest_is_l4h7(gpt2_attention: Path) -> None:
    scores = identity_scores(headspan.open(gpt2_attention).heads())
    assert divmod(int(scores.argmin()), 12) == (4, 7)
    assert float(scores.min()) == pytest.approx(-0.8666, abs=1e-4)


def test_random_weights_score_zero_within_the_stated_deviation() -> None:
    model = next(case for case in CASES if case.name == "gpt2").model(head=True)
    heads = headspan.open(model).heads()
    W = torch.randn(4000, 24, 8, dtype=torch.float64), torch.randn(4000, 8, 24, dtype=torch.float64)
    products = W[0] @ W[1]
    scores = products.diagonal(dim1=-2, dim2=-1).sum(-1) / (math.sqrt(8) * products.flatten(1).norm(dim=1))
    sd = identity_null_sd(heads)
    assert sd == pytest.approx(1 / math.sqrt(24 * 8))
    assert abs(float(scores.mean())) < 4 * sd / math.sqrt(4000)
    assert float(scores.std()) == pytest.approx(sd, rel=0.05)


def test_a_copying_head_scores_one_and_a_zero_head_is_undefined() -> None:
    case = next(case for case in CASES if case.name == "llama-one-kv-head")
    model = case.model(head=True)
    with torch.no_grad():
        attention = model.model.layers[0].self_attn
        basis = torch.linalg.qr(torch.randn(24, 6, dtype=torch.float64)).Q
        attention.v_proj.weight.copy_(basis.T)
        attention.o_proj.weight[:, :6] = basis
        attention.o_proj.weight[:, 6:12] = -basis
        attention.o_proj.weight[:, 12:18] = 0
    scores = identity_scores(headspan.open(model).heads())[0]
    assert float(scores[0]) == pytest.approx(1)
    assert float(scores[1]) == pytest.approx(-1)
    assert math.isnan(float(scores[2]))
