"""Mixing: a layer is the model's own attention, uniform attention makes tokens equal, random weights are the null."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import headspan
from headspan.cli.main import app
from headspan.distributions.token_course import leading_components, token_rank
from headspan.errors import ArgumentError, UnsupportedModel
from headspan.lenses.mixing import mixing
from headspan.lenses.mixing.layers import Layer, applied, checked, read_layer
from headspan.result import Result
from headspan.runtime import forward, open_runnable
from tests.families.tiny_models import CASES

QUICK = {"sequences": 4, "length": 12, "draws": 2}
ONE = torch.ones(1, dtype=torch.float64)
FAMILIES = ("gpt2", "llama", "qwen3", "gemma2", "bert", "olmo2", "cohere")


def tiny(name: str) -> torch.nn.Module:
    case = next(case for case in CASES if case.name == name)
    model: torch.nn.Module = case.model(head=True).double()
    return model


@pytest.fixture(scope="module")
def demo() -> Result:
    return mixing("demo", **QUICK)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_layer_writes_what_the_running_model_writes(name: str) -> None:
    running = open_runnable(tiny(name), dtype="float64")
    heads = checked(running.heads())
    tokens = torch.randint(3, 40, (2, 10), generator=torch.Generator().manual_seed(0))
    ran = forward(running, tokens)
    for place, layer in enumerate(heads.layers):
        own = read_layer(heads, layer, tokens.shape[1], biases=True)
        streams = ran.states[:, place].expand(2, 1, *ran.states[:, place].shape)
        out = applied(_bare(own), streams, ONE)[0, 0]
        wanted = ran.head_writes(place).sum(2)
        bias = own.biases["O"]
        wanted = wanted if bias is None else wanted + bias
        # transformers turns queries and keys by angles in single precision.
        torch.testing.assert_close(out, wanted, rtol=1e-4, atol=5e-6)


def _bare(layer: Layer) -> Layer:
    """The layer without the norms that follow it, which the running model applies elsewhere."""
    return replace(layer, write_norm=None, norm=None if layer.after else layer.norm)


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "bert"])
def test_streams_that_are_still_one_need_not_be_repeated(name: str) -> None:
    heads = checked(open_runnable(tiny(name), dtype="float64").heads())
    stream = torch.randn(2, 10, heads.d_model, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    betas = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    layer = read_layer(heads, heads.layers[0], 10, biases=True)
    repeated = applied(layer, stream.expand(2, 3, *stream.shape), betas)
    torch.testing.assert_close(applied(layer, stream[None, None], betas), repeated)
    assert not torch.allclose(repeated[0, 0], repeated[0, 2])  # settings do differ behind the layer


def test_sinks_take_their_share_of_every_row() -> None:
    heads = checked(open_runnable(tiny("llama"), dtype="float64").heads())
    layer = read_layer(heads, 0, 6, biases=False)
    x = torch.randn(2, 1, 1, 6, heads.d_model, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    none, half = (replace(layer, sinks=torch.full((4,), sink).double()) for sink in (-1e9, 0.0))
    torch.testing.assert_close(applied(none, x, ONE), applied(layer, x, ONE))
    flat = replace(half, scale=0.0)  # logits of 0 beside a sink of 0: a row of n keys gets n / (n + 1)
    keys = torch.arange(1, 7, dtype=torch.float64)[:, None]
    torch.testing.assert_close(
        applied(flat, x, ONE)[0], applied(replace(layer, scale=0.0), x, ONE)[0] * keys / (keys + 1)
    )


def test_with_skips_the_stream_grows_by_what_without_them_takes_its_place() -> None:
    heads = checked(open_runnable(tiny("llama"), dtype="float64").heads())
    x = torch.randn(1, 1, 3, 8, heads.d_model, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    alone, skips = applied(read_layer(heads, 0, 8, biases=False), x.expand(2, 1, *x.shape[2:]), ONE)
    torch.testing.assert_close(skips, alone + x[0])


def test_uniform_attention_without_skips_makes_the_tokens_of_an_encoder_equal() -> None:
    found = mixing(tiny("bert").float(), inverse_temperatures=[0.0], **QUICK)
    alone = found["cosine"].sel(skip="attention alone", inverse_temperature=0.0)
    np.testing.assert_allclose(alone.isel(depth=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(found["effective_rank"].sel(skip="attention alone").isel(depth=1), 1.0, atol=1e-4)
    assert float(found["cosine"].sel(skip="with skips").isel(depth=1).max()) < 0.999


@pytest.mark.slow
def test_weights_drawn_like_the_null_are_not_told_from_it() -> None:
    """Negative control: in a model of Gaussian weights, learned and random courses agree."""
    distances = []
    for seed in range(6):
        torch.manual_seed(seed)
        model = next(case for case in CASES if case.name == "llama").model(head=True)
        for name, weight in model.named_parameters():
            if "proj" in name:
                torch.nn.init.normal_(weight, std=0.2)
        found = mixing(model.float(), sequences=4, length=16, draws=8, seed=seed)
        last = found.dataset().isel(depth=-1)
        distances.append(((last["cosine"] - last["cosine_null"]) / last["cosine_null_sd"]).values.ravel())
    # With 8 draws a new one lies 1.06 standard deviations off in the root mean square, times the heavy tail of 7
    # degrees of freedom.
    assert np.abs(np.mean(distances)) < 0.8
    assert np.sqrt(np.mean(np.square(distances))) < 2.0


def test_trained_attention_is_told_from_random_weights(demo: Result) -> None:
    last = demo.dataset().isel(depth=-1).sel(inverse_temperature=1.0)
    assert float(demo["cosine"].isel(depth=0).std()) < 1e-12
    assert set(demo.data["run"].data_vars) >= {"cosine", "cosine_null", "effective_rank_null"}
    assert np.isfinite(last["cosine"]).all()
    told = next(finding for finding in demo.findings if finding.statement.startswith("Attention alone"))
    assert told.expected == pytest.approx(float(last["cosine_null"].sel(skip="attention alone")))


def test_inverse_temperatures_are_sorted_and_each_once() -> None:
    found = mixing("demo", inverse_temperatures="2,1,1", **QUICK)
    assert found["cosine"]["inverse_temperature"].values.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inverse_temperatures": "cold"}, "are not numbers; write them like"),
        ({"inverse_temperatures": "-1"}, "numbers of at least 0"),
        ({"inverse_temperatures": [float("nan")]}, "numbers of at least 0"),
        ({"inverse_temperatures": []}, "need 1 to 16 numbers"),
        ({"sequences": 1}, "sequences=1 is too small"),
        ({"length": 2}, "length=2 is too small"),
        ({"draws": 1}, "draws=1 is too small"),
    ],
)
def test_wrong_choices_are_refused_by_name(options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        mixing("nowhere at all", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "why"), [("bloom", "alibi positions"), ("deepseek_v3", "latent attention")])
def test_attention_that_cannot_be_applied_alone_is_refused(name: str, why: str) -> None:
    case = next(case for case in CASES if case.name == name)
    with pytest.raises(UnsupportedModel, match=f"mixing does not apply.*{why}"):
        mixing(case.model(head=True).float(), **QUICK)


def test_sequences_longer_than_a_sliding_window_are_refused() -> None:
    case = next(case for case in CASES if case.name == "mistral")
    with pytest.raises(ArgumentError, match="12 tokens exceed the model's sliding window of 3"):
        mixing(case.model(head=True).float(), **QUICK)


def test_without_a_token_table_random_vectors_enter(demo: Result) -> None:
    whole = headspan.open("demo").checkpoint
    names = [name for name in whole.store.infos if "embed_tokens" not in name and "lm_head" not in name]
    part = (whole.store.read(names), dict(whole.config.fields))
    found = mixing(part, **QUICK)
    assert "random vectors" in found.attrs["source"]
    assert "run" not in found
    assert abs(float(found["cosine"].isel(depth=0).mean())) < 0.05
    with pytest.raises(UnsupportedModel, match="a text needs a model that can be run"):
        mixing(part, text="some words", **QUICK)


def test_a_sketch_of_large_streams_finds_their_leading_components() -> None:
    generator = torch.Generator().manual_seed(0)
    spread = torch.logspace(0, -3, 300, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(300, 300, generator=generator, dtype=torch.float64))[0]
    reads = (torch.randn(20, 20, 300, generator=generator, dtype=torch.float64) * spread) @ turn
    flat = reads.flatten(0, 1) - reads.flatten(0, 1).mean(0)
    sketched, whole = (leading_components(reads, exact) for exact in (False, True))
    largest = torch.linalg.svdvals(flat)[: sketched.shape[-1]]
    for components, error in ((sketched, 0.02), (whole, 1e-9)):
        np.testing.assert_allclose(torch.linalg.svdvals(components.flatten(0, 1)), largest, rtol=error)


def test_effective_rank_is_the_same_by_gram_matrix_and_by_singular_values() -> None:
    X = torch.randn(3, 40, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    energy = torch.linalg.svdvals(X).square()
    share = energy / energy.sum(-1, keepdim=True)
    torch.testing.assert_close(token_rank(X), torch.special.entr(share).sum(-1).exp())


def test_the_command_prints_tables_and_json(tmp_path: Path) -> None:
    arguments = ["mixing", "demo", "--sequences", "4", "--length", "12", "--draws", "2"]
    shown = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "mixing.csv")])
    assert shown.exit_code == 0, shown.output
    assert "attention alone (random weights in brackets)" in shown.output
    assert "untrained twin in brackets" in shown.output
    assert (tmp_path / "mixing.csv").read_text().startswith("depth,skip,inverse_temperature")
    told = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert told["schema"] == "headspan.mixing/1"


def test_figures_draw_learned_and_random_curves(demo: Result) -> None:
    drawn = demo.figures["Mean cosine by depth"]
    assert {trace.line.dash for trace in drawn.data} == {"solid", "dot"}
    assert len(drawn.data) == 2 * 3 * 2
    solid = next(trace for trace in drawn.data if trace.line.dash == "solid")
    np.testing.assert_allclose(
        solid.y, demo["cosine"].sel(skip="attention alone", inverse_temperature=0.1).values, rtol=1e-12
    )
