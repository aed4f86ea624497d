"""The Gaussian lens: exact where the stream is Gaussian, the same from tables and from a run, honest elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
import xarray as xr
from typer.testing import CliRunner

import headspan
from headspan.cli.main import app
from headspan.distributions import score_moments
from headspan.distributions.token_course import information_at, leading_components
from headspan.errors import ArgumentError, UnsupportedModel
from headspan.heads import Heads
from headspan.heads.logits import queries_or_keys
from headspan.lenses.gaussian import gaussian, measurement
from headspan.lenses.gaussian.pairs import QueriesAndKeys, fitted
from headspan.lenses.gaussian.prediction import explained, size_ratio, slope
from headspan.lenses.gaussian.schema import PAIRS
from headspan.lenses.gaussian.sequences import Reads
from headspan.lenses.run import labeled_result
from headspan.result import Result
from headspan.subspaces import Factored
from tests.families.tiny_models import CASES


def tiny(name: str) -> Heads:
    case = next(case for case in CASES if case.name == name)
    return headspan.open(case.model(head=True).float()).heads()


@pytest.fixture(scope="module")
def demo() -> Heads:
    return headspan.open("demo").heads()


@pytest.fixture(scope="module")
def result(demo: Heads) -> Result:
    return gaussian(demo, sequences=16, length=32)


def gaussian_stream(heads: Heads, sequences: int, length: int, rho: float = 0.6) -> Reads:
    """A stationary Gaussian stream: neighbours correlated by rho, covariance in general position."""
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(heads.d_model, heads.d_model, generator=generator, dtype=torch.float64) / heads.d_model**0.5
    noise = torch.randn(sequences, length, heads.d_model, generator=generator, dtype=torch.float64)
    steps = [noise[:, 0]]
    for place in range(1, length):
        steps.append(rho * steps[-1] + (1 - rho**2) ** 0.5 * noise[:, place])
    states = torch.stack(steps, 1) @ root + 0.3
    return Reads({0: states}, {}, "a Gaussian stream")


def test_a_gaussian_stream_is_predicted_to_sampling_error(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = tiny("gpt2")
    monkeypatch.setattr(measurement, "sampled_reads", lambda *_: gaussian_stream(heads, 1200, 24))
    found = gaussian(heads).grid()
    for pair in PAIRS:
        here = found.sel(pair=pair, layer=0)
        np.testing.assert_allclose(here["logit_sd"], here["logit_sd_measured"], rtol=0.05)
        gap = abs(here["logit_mean"] - here["logit_mean_measured"]) / here["logit_sd"]
        assert float(gap.max()) < 0.07  # 4 standard errors of the difference, neighbours being correlated
        fourth = here["logit_excess_kurtosis"] + 3, here["logit_excess_kurtosis_measured"] + 3
        np.testing.assert_allclose(*fourth, rtol=0.15)


def test_the_entropy_of_attention_over_independent_gaussian_tokens_is_predicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heads = tiny("gpt2")
    monkeypatch.setattr(measurement, "sampled_reads", lambda *_: gaussian_stream(heads, 400, 24, rho=0.0))
    found = gaussian(heads)
    np.testing.assert_allclose(found["entropy"], found["entropy_measured"], rtol=0.03)


def test_moments_fitted_on_queries_are_the_images_of_the_streams(demo: Heads) -> None:
    heads = demo.to("float64")
    generator = torch.Generator().manual_seed(1)
    reads = torch.randn(40, 12, heads.d_model, generator=generator, dtype=torch.float64)
    q, k = queries_or_keys(heads, "Q", 0, reads), queries_or_keys(heads, "K", 0, reads)
    sample = QueriesAndKeys(q, k.repeat_interleave(q.shape[1] // k.shape[1], dim=1))
    ours = fitted(sample, "neighbor")
    x, y = reads[:, 1:], reads[:, :-1]
    off = torch.cat([x - x.mean(0), y - y.mean(0)], -1).flatten(0, 1)
    both = off.mT @ off / (39 * 11)
    d, at = heads.d_model, 4
    W_Q, W_K = heads.W_Q[0], heads.per_query_head(heads.W_K)[0]
    for head in range(heads.n_heads):
        there = score_moments(
            Factored(W_Q[head], W_K[head]), x[:, at].mean(0), both[:d, :d], y[:, at].mean(0), both[d:, d:], both[:d, d:]
        )
        eye = torch.eye(heads.d_head, dtype=torch.float64)
        S_qk = ours.S_qk[head] if ours.S_qk is not None else None
        here = score_moments(eye, ours.mean_q[at, head], ours.S_q[head], ours.mean_k[at, head], ours.S_k[head], S_qk)
        for name in ("mean", "variance", "excess_kurtosis"):
            assert float(getattr(here, name)) == pytest.approx(float(getattr(there, name)), rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_tables_alone_say_the_same_of_layer_0_as_a_run(family: str) -> None:
    heads = tiny(family)
    run = gaussian(heads, sequences=8, length=16, seed=3).grid()
    tables = measurement.measure(heads, running="it has no legs", sequences=8, length=16, seed=3)
    assert tables["layer"].values.tolist() == [0]
    assert "it has no legs" in tables.attrs["source"]
    assert "layers above 0" in tables.attrs["left_out"]
    for name in ("logit_sd", "logit_sd_measured", "entropy", "entropy_measured"):
        np.testing.assert_allclose(tables[name].sel(layer=0), run[name].sel(layer=0), rtol=1e-4, atol=1e-5)


def test_a_text_and_a_model_that_cannot_run_do_not_go_together(demo: Heads) -> None:
    with pytest.raises(UnsupportedModel, match="a text needs a model that can be run"):
        measurement.measure(demo, running="it has no legs", text="words")


def test_without_a_run_and_without_tables_there_is_nothing_to_say(gpt2_attention: Path) -> None:
    model = headspan.open(gpt2_attention)
    with pytest.raises(UnsupportedModel, match="nor can layer 0 be read from tables: W_E is not in this checkpoint"):
        gaussian(model)
    reason = model.skip_reasons()["gaussian"]
    assert reason is not None
    assert "needs W_E or a model that runs" in reason


def test_a_head_that_looks_at_nothing_is_predicted_uniform() -> None:
    case = next(case for case in CASES if case.name == "gpt2")
    model = case.model(head=True).float()
    with torch.no_grad():
        model.transformer.h[0].attn.c_attn.weight[:, :24] = 0
        model.transformer.h[0].attn.c_attn.bias[:24] = 0
    found = gaussian(headspan.open(model).heads(), sequences=8, length=16).grid().sel(layer=0)
    np.testing.assert_allclose(found["entropy"], found["entropy_uniform"], rtol=1e-9)
    np.testing.assert_allclose(found["entropy_measured"], found["entropy_uniform"], rtol=1e-5)
    assert float(abs(found["logit_sd"]).max()) == 0.0
    assert np.isnan(found["logit_sd_r2"]).all()


@pytest.mark.parametrize(("family", "note"), [("bloom", "position terms"), ("gemma2", "before the cap")])
def test_what_is_not_in_the_picture_is_said(family: str, note: str) -> None:
    assert note in gaussian(tiny(family), sequences=4, length=8).attrs["left_out"]


def test_latent_attention_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModel, match="latent attention"):
        gaussian(tiny("deepseek_v3"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequences": 3}, "sequences = 3 of length = 64 are too few"),
        ({"length": 2}, "both are at least 4"),
        ({"length": 10**6}, "exceed the model's context"),
        ({"text": "a few words"}, "needed at least 4"),
    ],
)
def test_bad_choices_are_refused(demo: Heads, options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        gaussian(demo, **options)  # type: ignore[arg-type]


def test_agreement_is_one_for_the_truth_and_zero_for_a_constant() -> None:
    m = np.array([1.0, 2.0, 4.0, 8.0])
    assert explained(m, m) == slope(m, m) == size_ratio(m, m) == 1.0
    assert explained(np.full(4, m.mean()), m) == pytest.approx(0.0)
    assert explained(2 * m, m) < 0
    assert slope(2 * m, m) == pytest.approx(0.5)
    assert size_ratio(2 * m, m) == pytest.approx(0.5)
    assert np.isnan(explained(m[:2], m[:2]))
    assert np.isnan(slope(np.ones(4), m))
    assert np.isnan(size_ratio(np.zeros(4), m))


def test_information_is_zero_by_chance_and_that_of_a_correlation_otherwise() -> None:
    x = gaussian_stream(tiny("gpt2"), 3000, 8).layers[0][..., :2]
    components = leading_components(x)
    expected = -np.log(1 - 0.36)
    assert float(information_at(components, 1)) == pytest.approx(expected, rel=0.03)
    assert abs(float(information_at(components, 1, related=False))) < 0.01


def test_the_same_seed_gives_the_same_result(demo: Heads, result: Result) -> None:
    assert gaussian(demo, sequences=16, length=32).data.equals(result.data)
    assert not gaussian(demo, sequences=16, length=32, seed=1).data.equals(result.data)


def test_a_text_is_cut_into_windows(demo: Heads) -> None:
    words = " ".join(["the cat sat on the mat"] * 80)
    found = gaussian(demo, text=words, sequences=6, length=16)
    assert "on a text, 6 sequences of 16 tokens" in found.attrs["source"]


def test_findings_and_figures_tell_the_numbers_of_the_result(result: Result) -> None:
    told = result.findings
    assert len(told) == 5
    entropy = next(finding for finding in told if "measured entropies" in finding.statement)
    assert entropy.value == float(result["entropy_r2_all"])
    drawn = result.figures
    assert list(drawn) == [
        "Spread of logits",
        "Entropy of attention",
        "Where the picture holds",
        "Information between tokens",
    ]
    points = drawn["Entropy of attention"].data[1]
    assert isinstance(points, go.Scatter)
    np.testing.assert_array_equal(points.y, result["entropy_measured"].values.ravel())
    assert points.text[0] == "L0H0"


def test_one_head_of_one_layer_has_findings_and_figures() -> None:
    heads = tiny("gpt2")
    found = gaussian(heads, sequences=4, length=8)
    one = labeled_result(found.lens, found.grid().isel(layer=[0], head=[0]), heads)
    assert "Where the picture holds" not in one.figures
    assert one.findings


def test_a_result_survives_a_file_and_json_has_no_nan(result: Result, tmp_path: Path) -> None:
    again = headspan.load(result.save(tmp_path / "a.nc"))
    xr.testing.assert_allclose(again.dataset(), result.dataset())
    again.data["entropy_r2_all"] = float("nan")
    assert json.loads(json.dumps(again.to_json(), allow_nan=False))["summary"]["entropy_r2_all"] is None
    rows = result.table("logits")
    assert len(rows) == result["logit_sd"].size
    assert rows["logit_sd"][0] == float(result["logit_sd"].sel(head="L0H0", pair="self"))


def test_the_command_prints_agreement_and_refuses_a_file_that_is_no_text(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["gaussian", "demo", "--sequences", "8", "--length", "16"])
    assert shown.exit_code == 0
    assert "Entropies furthest from the prediction" in shown.stdout
    (tmp_path / "x.txt").write_bytes(b"\xff\xfe\x00\xd8")
    refused = CliRunner().invoke(app, ["gaussian", "demo", "--text", str(tmp_path / "x.txt")])
    assert "not text in UTF-8" in str(refused.exception)
    missing = CliRunner().invoke(app, ["gaussian", "demo", "--text", str(tmp_path / "none.txt")])
    assert "cannot be read" in str(missing.exception)
