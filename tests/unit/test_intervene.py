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
from headspan.lenses.intervene.divergence import full_logs, js_rows, kl_rows
from scipy.stats import entropy as kl_of_scipy
from typer.testing import CliRunner

from headspan.cli.main import app
from headspan.demo import demo_folder
from headspan.dims import HeadLabel
from headspan.errors import HeadspanError, ShapeError
from headspan.lenses import intervene
from headspan.lenses.intervene.figures import figures
from headspan.lenses.intervene.findings import findings
from headspan.runtime import RunnableModel, encoded, forward, open_runnable
from headspan.runtime.detectors import repeated_tokens
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
def told(stories: Path) -> xr.Dataset:
    return intervene.compute(open_runnable(stories), length=12)


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
    prompt = encoded(model, "the café re-opened; the owner")
    result = intervene.compute(model, prompt, settings=[intervene.setting(ScaledLogits(2.0))], length=0)
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
    unmodified = result.sel(setting=intervene.UNMODIFIED)
    assert float(unmodified["kl"].max()) == 0.0
    assert float(result["self_mass_chance"]) == pytest.approx(np.mean([1 / i for i in range(2, len(prompt) + 1)]))


def test_one_layer_scaled_is_a_softmax_at_another_temperature() -> None:
    model = running()
    prompt = encoded(model, "the café re-opened; the owner")
    plain = forward(model, prompt.tokens)
    with intervened(model, ScaledLogits(0.5, tuple(f"L0H{head}" for head in range(3)))):
        changed = forward(model, prompt.tokens)
    logs = full_logs(plain, 0)
    expected = torch.where(torch.isneginf(logs), logs, logs / 4).log_softmax(-1)
    torch.testing.assert_close(full_logs(changed, 0), expected, rtol=1e-4, atol=1e-4)


def test_stories_flatten_and_sharpen_as_theory_has_it(told: xr.Dataset) -> None:
    alpha = [0.25, 0.5, 1.0, 2.0, 4.0]
    rows = {float(value): place for place, value in enumerate(told["alpha"].values) if np.isfinite(value)}
    numbers = told[["relative_entropy", "self_mass", "argmax_mass"]].mean(("layer", "head"))
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
    assert float(random["self_mass"].mean()) == pytest.approx(float(told["self_mass_chance"]), rel=0.02)
    assert float(random["perplexity"]) > 400
    own, averaged = told["relative_entropy"].mean("head"), told["averaged_relative_entropy"]
    assert bool((averaged >= own - 1e-6).all())


def test_stories_are_coherent_only_with_their_own_weights(told: xr.Dataset) -> None:
    perplexity = told["perplexity"]
    assert float(perplexity.sel(setting=intervene.UNMODIFIED)) < 3
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


def test_findings_and_figures_tell_the_story(told: xr.Dataset) -> None:
    said = " ".join(finding.statement for finding in findings(told))
    for words in (
        "falling throughout",
        "largest entry",
        "not to the token itself",
        "random weights",
        "looks more uniform",
    ):
        assert words in said
    drawn = figures(told)
    assert set(drawn) == {"Entropy by layer", "Against alpha"}
    line = drawn["Entropy by layer"].data[0]
    np.testing.assert_allclose(line.y, told["relative_entropy"].mean("head").values[0])


def test_an_encoder_is_measured_without_perplexity_or_continuation() -> None:
    result = intervene.compute(running(causal=False), settings=[intervene.setting(ScaledLogits(2.0))])
    assert np.isnan(result["perplexity"]).all()
    assert set(result["continuation"].values) == {""}
    assert float(result["jsd"].sel(setting="alpha 2").mean()) > 0
    document = json.loads(json.dumps(intervene.as_json(result), allow_nan=False))
    assert document["settings"][1]["perplexity"] is None
    assert set(figures(result)) == {"Entropy by layer"}


def test_a_grid_of_alphas_is_even_in_its_logarithm() -> None:
    assert intervene.parsed_grid("0.25:4:5") == pytest.approx((0.25, 0.5, 1.0, 2.0, 4.0))


@pytest.mark.parametrize("text", ["1:2", "a:b:c", "0:1:3", "2:1:3", "1:2:1", "1:2:3:4", "nan:1:3"])
def test_other_grids_are_refused(text: str) -> None:
    with pytest.raises(ShapeError, match="grid of alphas"):
        intervene.parsed_grid(text)


@pytest.mark.parametrize("text", ["L1H0", "L1H0.K", "L1H0.X-L0H3.O", "L1H0-L0H3", "L1H0.K-L0H3"])
def test_a_removal_says_from_what_and_what(text: str, demo: RunnableModel) -> None:
    with pytest.raises(ShapeError, match="names no subspace"):
        intervene.parsed_removal(demo, text)


def test_settings_must_differ_and_exist(demo: RunnableModel) -> None:
    twice = [intervene.setting(ScaledLogits(2.0))] * 2
    with pytest.raises(ShapeError, match="asked for twice"):
        intervene.compute(demo, settings=twice)
    with pytest.raises(ShapeError, match="no intervention"):
        intervene.compute(demo, settings=[])


def invoked(*arguments: str) -> Any:
    # Wide enough that no name is folded.
    return CliRunner().invoke(app, ["intervene", "demo", "--length", "4", *arguments], env={"COLUMNS": "250"})


def test_the_command_compares_and_writes(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    options = ("--scale-qk", "2", "--rank-qk", "8", "--ablate-head", "L0H3", "--mean", "--swap", "L0H1,L1H2")
    more = ("--ablate-subspace", "L1H0.K-L0H3.O", "--flatten-qk", "--rotate-qk", "--randomize", "--randomize-attention")
    shown = invoked(*options, *more, "--tokens", "1,5,9,3,1,5,9,3,1", "-o", str(page))
    assert shown.exit_code == 0, shown.output
    for words in ("alpha 2", "rank 8", "L1H0.K", "random bases", "Written after"):
        assert words in shown.output
    assert page.stat().st_size > 10_000
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
