"""Edges that really form in the weights of a series are found when they form, and no others; quantities have names."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from headspan.figures import figures_of
from headspan.findings import findings_of
from safetensors.torch import save_file
from scipy.stats import norm

from headspan.dims import PAIR_DIMS
from headspan.sweeps import open_store, run_sweep
from headspan.sweeps.evolution import evolution
from headspan.sweeps.evolution.page import write_page
from headspan.sweeps.evolution.wiring import tail_q
from headspan.sweeps.evolution.words import all_in_words, in_words
from tests.robustness.sweep_models import client_in_this_process

WIDTH, HEADS, LAYERS, TOKENS = 48, 4, 3, 10
D_HEAD = WIDTH // HEADS
STEPS = range(0, 1000, 100)
FORMED = {"q": ((0, 1), (2, 3), 350), "v": ((0, 2), (1, 0), 650)}
"""A role, the head that writes, the head that comes to read it, and when."""
UNDONE = ("k", (1, 3), (2, 1), 450)


def attention(generator: torch.Generator) -> dict[str, torch.Tensor]:
    names = [f"model.layers.{layer}.self_attn.{role}_proj.weight" for layer in range(LAYERS) for role in "qkvo"]
    return {name: torch.randn(WIDTH, WIDTH, generator=generator) for name in names}


def wire(weights: dict[str, torch.Tensor], role: str, src: tuple[int, int], dst: tuple[int, int], share: float) -> None:
    """Turn what a head reads towards what an earlier one writes."""
    written = weights[f"model.layers.{src[0]}.self_attn.o_proj.weight"][:, src[1] * D_HEAD : (src[1] + 1) * D_HEAD].T
    rows = slice(dst[1] * D_HEAD, (dst[1] + 1) * D_HEAD)
    read = weights[f"model.layers.{dst[0]}.self_attn.{role}_proj.weight"]
    read[rows] = (1 - share) * read[rows] + share * written


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights that turn slowly; two edges form in them and one is undone."""
    folder = tmp_path_factory.mktemp("edges") / "run"
    generator = torch.Generator().manual_seed(5)
    first, last = attention(generator), attention(generator)
    tables = {
        "model.embed_tokens.weight": torch.randn(TOKENS, WIDTH, generator=generator),
        "model.norm.weight": torch.ones(WIDTH),
    }
    for layer in range(LAYERS):
        tables[f"model.layers.{layer}.input_layernorm.weight"] = torch.ones(WIDTH)
    sizes = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": HEADS}
    sizes |= {"num_hidden_layers": LAYERS, "intermediate_size": 8, "vocab_size": TOKENS}
    for step in STEPS:
        angle = step / max(STEPS)
        weights = {name: math.cos(angle) * first[name] + math.sin(angle) * last[name] for name in first}
        for role, (src, dst, at) in FORMED.items():
            wire(weights, role, src, dst, 0.9 / (1 + math.exp((at - step) / 20)))
        wire(weights, *UNDONE[:3], 0.9 / (1 + math.exp((step - UNDONE[3]) / 20)))
        place = folder / f"step-{step}"
        place.mkdir(parents=True)
        (place / "config.json").write_text(json.dumps({"model_type": "llama", "tie_word_embeddings": True, **sizes}))
        save_file({**weights, **tables}, place / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def course(series: Path, tmp_path_factory: pytest.TempPathFactory) -> xr.DataTree:
    store = tmp_path_factory.mktemp("store")
    with client_in_this_process() as client:
        assert not run_sweep(series, store, lenses="affinity", client=client).failures
    return evolution(open_store(store), walks=19)


def test_edges_are_found_when_they_form_and_no_others(course: xr.DataTree) -> None:
    table = course["run/wiring"].to_dataset()
    assert table.attrs["null"] == "anticausal"
    found = {
        (str(edge["pairing"].values), str(edge["src"].values), str(edge["dst"].values)): (
            float(edge["appears"]),
            float(edge["vanishes"]),
        )
        for edge in (table.isel(edge=row) for row in range(table.sizes["edge"]))
    }
    assert set(found) == {("OQ", "L0H1", "L2H3"), ("OV", "L0H2", "L1H0"), ("OK", "L1H3", "L2H1")}
    # Half-way there an edge stands out already: the checkpoint before, or the one after.
    assert found["OQ", "L0H1", "L2H3"][0] in (300, 400)
    assert found["OV", "L0H2", "L1H0"][0] in (600, 700)
    assert found["OK", "L1H3", "L2H1"][1] in (500, 600)
    np.testing.assert_array_equal(table["n_edges"].isel(step=0), [0, 1, 0])
    np.testing.assert_array_equal(table["n_edges"].isel(step=-1), [1, 0, 1])


def test_findings_figure_and_page_show_the_edges(course: xr.DataTree, tmp_path: Path) -> None:
    found = findings_of("evolution", course)
    text = " ".join(finding.statement for finding in found)
    assert "L0H1 comes to be read by the queries of L2H3 at step" in text
    assert "2 pairs of heads stand out at step 900, 1 at step 0; 2 appeared in between and stayed, 1 vanished." in text
    table = course["run/wiring"].to_dataset()
    drawn = figures_of("evolution", course)["Wiring over training"]
    marks = {trace.name: sorted(trace.x) for trace in drawn.data if trace.name in ("appears", "vanishes")}
    for name, places in marks.items():
        np.testing.assert_array_equal(places, np.sort(table[name].values[np.isfinite(table[name].values)]))
    assert set(marks) == {"appears", "vanishes"}
    counts = next(trace for trace in drawn.data if trace.name == "number in OQ")
    np.testing.assert_array_equal(counts.y, table["n_edges"].sel(counted_pairing="OQ"))
    page = write_page(course, found, tmp_path / "page.html").read_text()
    assert "L0H1 comes to be read by the queries of L2H3" in page


def pairs(values: np.ndarray) -> xr.DataArray:
    return xr.DataArray(values, dims=("step", *PAIR_DIMS))


def test_no_pair_lies_beyond_the_tail_at_95_of_100_steps_by_chance() -> None:
    random, shape = np.random.default_rng(0), (1000, 1, 6, 1, 6)
    kernel, impossible = (pairs(4 + 0.5 * random.normal(size=shape)) for _ in range(2))
    share = float((tail_q(kernel, impossible) <= 0.05).any(PAIR_DIMS).mean())
    assert share == pytest.approx(0.05, abs=3 * np.sqrt(0.05 * 0.95 / 1000))


def test_a_single_pair_beyond_the_tail_stands_out_and_an_undefined_one_does_not() -> None:
    impossible = 4 + 0.5 * norm.ppf((np.arange(36) + 0.5) / 36).reshape(1, 1, 6, 1, 6)
    kernel = impossible.copy()
    kernel[0, 0, 2, 0, 3], kernel[0, 0, 1, 0, 1] = 8.0, np.nan
    q = tail_q(pairs(kernel), pairs(impossible)).values
    assert np.argwhere(q <= 0.05).tolist() == [[0, 0, 2, 0, 3]]
    assert np.isnan(q[0, 0, 1, 0, 1])


@pytest.mark.parametrize(
    ("lens", "name", "words"),
    [
        ("drift", "angles_V", "Angles that value spaces turned by"),
        ("drift", "relative_change_O", "Relative change of W_O"),
        ("affinity", "OQ mean pk", "Mean shared dimensions, outputs and queries"),
        ("affinity", "OK normalized_kernel", "Share of dimensions shared, outputs and keys"),
        ("spectra", "W_K_head stable_rank", "Stable rank of W_K by head"),
        ("spectra", "alignment trace", "Trace of W_QK"),
        ("similarity", "grassmann", "Distance of query and key spaces"),
        ("positions", "head_overlap_Q", "Head overlap of W_Q, positions"),
        ("mine", "node new_thing", "New thing, mine node"),
    ],
)
def test_quantities_have_names_that_a_reader_knows(lens: str, name: str, words: str) -> None:
    assert in_words(lens, name) == words


def test_no_two_quantities_have_one_name() -> None:
    names = [("a", "x_y"), ("a", "x y"), ("spectra", "W_Q ks"), ("spectra", "W_K ks")]
    words = all_in_words(names)
    assert len(set(words)) == len(words)
    assert words[2:] == ["Distance from noise of W_Q", "Distance from noise of W_K"]
