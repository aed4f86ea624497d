"""The intervene lens measures what it says, and attention moves under it as theory has it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from scipy.stats import entropy as kl_of_scipy
from typer.testing import CliRunner

import headspan
from headspan.cli.main import app
from headspan.demo import demo_folder
from headspan.dims import HeadLabel
from headspan.errors import ArgumentError, HeadspanError
from headspan.lenses.intervene.schema import UNMODIFIED
from headspan.lenses.intervene.settings import parsed_grid, parsed_removal, setting
from headspan.result import Result
from headspan.runtime import RunnableModel, encoded, forward, open_runnable
from headspan.runtime.detectors import repeated_tokens
from headspan.runtime.forward_pass import full_logs, js_rows, kl_rows
from headspan.runtime.interventions import (
    AblatedHeads,
    ScaledLogits,
    WithoutSubspace,
    head_space,
    intervened,
)
from headspan.subspaces import random_subspaces
from tests.unit.running_models import running


@pytest.fixture(scope="module")
def result(stories: Path) -> Result:
    return headspan.intervene(stories, length=12)


@pytest.fixture(scope="module")
def told(result: Result) -> xr.Dataset:
    """Its numbers over the grid of layers and heads."""
    return result.grid()


def test_divergences_are_those_of_scipy() -> None:
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.randn(5, 7, generator=generator, dtype=torch.float64).log_softmax(-1) for _ in range(2))
    np.testing.assert_allclose(kl_rows(p, q), kl_of_scipy(p.exp(), q.exp(), axis=-1))
    middle = (p.exp() + q.exp()) / 2
    halves = (kl_of_scipy(p.exp(), middle, axis=-1) + kl_of_scipy(q.exp(), middle, axis=-1)) / 2
    np.testing.assert_allclose(js_rows(p, q), halves)
    apart = torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]], dtype=torch.float64)
    assert float(js_rows(apart[0], apart[1])) == pytest.approx(math.log(2))
    assert float(js_rows(apart[0], apart[0])) == 0.0


def test_measures_are_those_of_the_changed_pattern() -> None:
    model = running()
    text = "the café re-opened; the owner"
    prompt, result = encoded(model, text), headspan.intervene(model, text, scale_qk=2.0, length=0).grid()
    with intervened(model, ScaledLogits(2.0)):
        changed = forward(model, prompt.tokens)
    pattern = changed.runs[1].pattern[0, :, 1:].double().numpy()
    before = forward(model, prompt.tokens).runs[1].pattern[0, :, 1:].double().numpy()
    own = result.sel(setting="alpha 2", layer=1)
    np.testing.assert_allclose(own["argmax_mass"], pattern.max(-1).mean(-1), rtol=1e-6)
    diagonal = np.stack([pattern[:, i, i + 1] for i in range(pattern.shape[1])], axis=-1)
    np.testing.assert_allclose(own["self_mass"], diagonal.mean(-1), rtol=1e-6)
    np.testing.assert_allclose(own["kl"], kl_of_scipy(before, pattern, axis=-1).mean(-1), rtol=1e-4)
    np.testing.assert_allclose(own["entropy"], kl_of_scipy(pattern, axis=-1).mean(-1), rtol=1e-4)
    assert float(own["perplexity"]) == pytest.approx(math.exp(changed.loss()), rel=1e-6)
    unmodified = result.sel(setting=UNMODIFIED)
    assert float(unmodified["kl"].max()) == 0.0
    assert float(result["self_mass_null"]) == pytest.approx(np.mean([1 / i for i in range(2, len(prompt) + 1)]))


def test_one_layer_scaled_is_a_softmax_at_another_temperature() -> None:
    model = running()
    prompt = encoded(model, "the café re-opened; the owner")
    plain = forward(model, prompt.tokens)
    with intervened(model, ScaledLogits(0.5, tuple(f"L0H{head}" for head in range(3)))):
        changed = forward(model, prompt.tokens)
    logs = full_logs(plain.runs[0])
    expected = torch.where(torch.isneginf(logs), logs, logs / 4).log_softmax(-1)
    torch.testing.assert_close(full_logs(changed.runs[0]), expected, rtol=1e-4, atol=1e-4)


def test_stories_flatten_and_sharpen_as_theory_has_it(told: xr.Dataset) -> None:
    alpha = [0.25, 0.5, 1.0, 2.0, 4.0]
    rows = {float(value): place for place, value in enumerate(told["alpha"].values) if np.isfinite(value)}
    numbers = told[["relative_entropy", "self_mass", "argmax_mass"]].mean(("layer", "head"))
    for name in numbers:
        np.testing.assert_allclose(told[f"mean_{name}"], numbers[name])
        np.testing.assert_allclose(told[f"layer_{name}"], told[name].mean("head").transpose("setting", "layer"))
    means = [numbers.isel(setting=rows[each]) for each in alpha]
    entropies = [float(each["relative_entropy"]) for each in means]
    assert entropies == sorted(entropies, reverse=True)
    assert entropies[0] > 0.95
    assert entropies[-1] < 0.1
    # Upscaling goes to the largest entry of a row, not to the token itself.
    assert float(means[-1]["argmax_mass"]) > 0.9
    assert float(means[-1]["self_mass"]) < 0.25


def test_random_weights_attend_uniformly_and_averaged_heads_look_more_uniform(told: xr.Dataset) -> None:
    random = told.sel(setting="random weights (seed 0)")
    assert float(random["relative_entropy"].min()) > 0.99
    assert float(random["self_mass"].mean()) == pytest.approx(float(told["self_mass_null"]), rel=0.02)
    assert float(random["perplexity"]) > 400
    own, averaged = told["relative_entropy"].mean("head"), told["averaged_relative_entropy"]
    assert bool((averaged >= own - 1e-6).all())


def test_stories_are_coherent_only_with_their_own_weights(told: xr.Dataset) -> None:
    perplexity = told["perplexity"]
    assert float(perplexity.sel(setting=UNMODIFIED)) < 3
    assert float(perplexity.sel(setting="alpha 0.25")) > 10
    assert str(told["continuation"].values[0]).strip().startswith("She")


@pytest.fixture(scope="module")
def demo() -> RunnableModel:
    return open_runnable(demo_folder())


def copied(model: RunnableModel, tokens: torch.Tensor) -> float:
    """Share of the second half guessed right, from its second token on."""
    logits = forward(model, tokens).logits
    assert logits is not None
    half = tokens.shape[1] // 2
    return float((logits[:, half:-1].argmax(-1) == tokens[:, half + 1 :]).double().mean())


INDUCTION = (0, 1, 3, 4, 5, 6)


def test_cutting_the_bridge_between_previous_token_and_induction_heads_destroys_copying(demo: RunnableModel) -> None:
    tokens = repeated_tokens(demo, 32, 16, seed=0)
    bridge, d_head = head_space(demo, "L0H3", "O"), 16
    cut = [WithoutSubspace(HeadLabel(1, head), "K", bridge) for head in INDUCTION]
    control = [WithoutSubspace(HeadLabel(1, head), "K", random_subspaces((), 128, d_head, head)) for head in INDUCTION]
    assert copied(demo, tokens) > 0.98
    with intervened(demo, *cut):
        assert copied(demo, tokens) < 0.4
    with intervened(demo, *control):
        assert copied(demo, tokens) > 0.95
    with intervened(demo, AblatedHeads(("L0H3",))):
        assert copied(demo, tokens) < 0.3


def test_findings_and_figures_tell_the_story(result: Result, told: xr.Dataset) -> None:
    said = " ".join(finding.statement for finding in result.findings)
    for words in (
        "falling throughout",
        "largest entry",
        "not to the token itself",
        "random weights",
        "looks more uniform",
    ):
        assert words in said
    drawn = result.figures
    assert set(drawn) == {"Entropy by layer", "Against alpha"}
    line = drawn["Entropy by layer"].data[0]
    np.testing.assert_allclose(line.y, told["relative_entropy"].mean("head").isel(setting=0))


def test_an_encoder_is_measured_without_perplexity_or_continuation() -> None:
    result = headspan.intervene(running(causal=False), scale_qk=2.0)
    assert np.isnan(result["perplexity"]).all()
    assert set(result["continuation"].values) == {""}
    assert float(result["jsd"].sel(setting="alpha 2").mean()) > 0
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert document["settings"][1]["perplexity"] is None
    assert set(result.figures) == {"Entropy by layer"}
    swept = headspan.intervene(running(causal=False), alphas="0.5:2:3").figures["Against alpha"]
    assert [each.text for each in swept.layout.annotations] == ["attention"], "no panel stands empty"


def test_a_grid_of_alphas_is_even_in_its_logarithm() -> None:
    assert parsed_grid("0.25:4:5") == pytest.approx((0.25, 0.5, 1.0, 2.0, 4.0))


@pytest.mark.parametrize("text", ["1:2", "a:b:c", "0:1:3", "2:1:3", "1:2:1", "1:2:3:4", "nan:1:3"])
def test_other_grids_are_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="grid of alphas"):
        parsed_grid(text)


@pytest.mark.parametrize("text", ["L1H0", "L1H0.K", "L1H0.X-L0H3.O", "L1H0-L0H3", "L1H0.K-L0H3"])
def test_a_removal_says_from_what_and_what(text: str) -> None:
    with pytest.raises(ArgumentError, match="names no subspace"):
        parsed_removal(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"alphas": "1:2"}, "is not a grid of alphas"),
        ({"ablate_subspace": "L1H0"}, "names no subspace"),
        ({"swap": "L0H1"}, "are not two heads"),
    ],
)
def test_wrong_choices_are_refused_before_the_model_is_opened(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        headspan.intervene("no such model", **given)


def test_settings_must_differ_and_exist(demo: RunnableModel) -> None:
    twice = [setting(ScaledLogits(2.0))] * 2
    with pytest.raises(ArgumentError, match="asked for twice"):
        headspan.intervene(demo, settings=twice)
    with pytest.raises(ArgumentError, match="no intervention"):
        headspan.intervene(demo, settings=[])


def test_settings_as_objects_are_made_after_those_named(demo: RunnableModel) -> None:
    both = setting(ScaledLogits(2.0), AblatedHeads(("L0H3",)))
    found = headspan.intervene(demo, [1, 5, 9, 3, 1, 5], scale_qk=[0.5, 2.0], settings=[both], length=0)
    assert found["setting"].values.tolist() == [UNMODIFIED, "alpha 0.5", "alpha 2", both.name]
    assert float(found["kl"].sel(head="L0H1", setting="alpha 2")) > 0
    assert found.top(1, metric="kl")["setting"].item() != UNMODIFIED


def test_a_result_survives_a_file(result: Result, tmp_path: Path) -> None:
    read = headspan.load(result.save(tmp_path / "told.nc"))
    xr.testing.assert_equal(read.dataset(), result.dataset())
    assert read.figures["Against alpha"] == result.figures["Against alpha"]


def invoked(*arguments: str) -> Any:
    # Wide enough that no name is folded.
    return CliRunner().invoke(app, ["intervene", "demo", "--length", "4", *arguments], env={"COLUMNS": "250"})


def test_the_command_compares_and_writes(tmp_path: Path) -> None:
    kept = tmp_path / "result.csv"
    options = ("--scale-qk", "2", "--rank-qk", "8", "--ablate-head", "L0H3", "--mean", "--swap", "L0H1,L1H2")
    more = ("--ablate-subspace", "L1H0.K-L0H3.O", "--flatten-qk", "--rotate-qk", "--randomize", "--randomize-attention")
    shown = invoked(*options, *more, "--tokens", "1,5,9,3,1,5,9,3,1", "-o", str(kept))
    assert shown.exit_code == 0, shown.output
    for words in ("alpha 2", "rank 8", "L1H0.K", "random bases", "Written after"):
        assert words in shown.output
    assert len(kept.read_text().splitlines()) == 1 + 16 * 10
    document = json.loads(invoked("--scale-qk", "2", "--rank-qk", "8", "--together", "--json").stdout)
    assert [row["setting"] for row in document["settings"]] == ["unmodified", "alpha 2 + rank 8"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--scale-qk", "0"), "alpha needs to be a number above 0"),
        (("--scale-qk", "nan"), "alpha needs to be a number above 0"),
        (("--rank-qk", "17"), "rank needs to be in 1..16"),
        (("--ablate-head", "L2H0"), "head L2H0 does not exist"),
        (("--ablate-head", "five"), "is not a head"),
        (("--swap", "L0H1"), "are not two heads"),
        (("--scale-qk", "2", "--prompt", " "), "the prompt is empty"),
        (("--scale-qk", "2", "--tokens", "1,99"), "token 99 does not exist"),
        (("--scale-qk", "2", "--heads", ","), "no head was named"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: tuple[str, ...], words: str) -> None:
    found = invoked(*arguments)
    assert isinstance(found.exception, HeadspanError)
    assert words in str(found.exception)
    assert "\n" not in str(found.exception)


@pytest.mark.slow
def test_maps_of_all_layers_stand_side_by_side_with_words_and_shots(stories: Path) -> None:
    options = {"few_shot": "bundled", "shots": 2, "target": "river", "length": 0}
    result = headspan.intervene(stories, maps=True, **options)
    assert result["setting"].values.tolist() == [UNMODIFIED, "random weights (seed 0)", "alpha 2", "alpha 0.5"]
    maps = result["mean_map"]
    np.testing.assert_allclose(maps.sum("key"), 1, atol=1e-5)
    attended = headspan.attention(
        stories, few_shot="bundled", shots=2, targets="river", level="word", permutations=0, length=1
    )
    np.testing.assert_allclose(maps.sel(setting=UNMODIFIED), attended["mean_map"], atol=1e-5)
    assert list(result.attrs["boundaries"]) == list(attended.attrs["boundaries"])
    # Random weights attend evenly, so that their maps are those of uniform attention: a word gets its share of tokens.
    random = maps.sel(setting="random weights (seed 0)").isel(layer=0, query=-1).values
    own = maps.sel(setting=UNMODIFIED).isel(layer=0, query=-1).values
    assert random.max() < own.max()
    drawn = [figure for name, figure in result.figures.items() if name.startswith("Attention maps")]
    assert [len(figure.data) for figure in drawn] == [16, 4]
    assert "mean_map" not in headspan.intervene(stories, scale_qk=2.0, length=0)
    with pytest.raises(ArgumentError, match="prompt and few_shot were both given"):
        headspan.intervene(stories, "a dog", few_shot="bundled")
