"""Edges that really form in the weights of a series are found when they form, and no others; quantities have names."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from safetensors.torch import save_file
from scipy.stats import norm

from headspan.statistics import prediction_tail, q_values
from headspan.sweeps import evolution, open_store, sweep
from headspan.sweeps.course.curves import Curve, curve_dataset, quantity_words
from headspan.sweeps.course.documents import write_page
from headspan.sweeps.course.figures import figures
from headspan.sweeps.course.findings import findings
from headspan.sweeps.course.wiring import chosen_null, tail_q
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
        assert not sweep(series, store, lenses="affinity", client=client).failures
    return evolution(open_store(store), walks=19)


def test_edges_are_found_when_they_form_and_no_others(course: xr.DataTree) -> None:
    table = course["run/wiring"].to_dataset()
    assert table.attrs["null"] == "reverse"
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
    found = findings(course)
    text = " ".join(finding.statement for finding in found)
    assert "L0H1 → L2H3 becomes a Q-composition edge at step" in text
    assert "2 pairs of heads are edges at step 900, 1 at step 0; 2 appeared in between and stayed, 1 vanished." in text
    table = course["run/wiring"].to_dataset()
    drawn = figures(course)["Wiring over training"]
    marks = {trace.name: sorted(trace.x) for trace in drawn.data if trace.name in ("appears", "vanishes")}
    for name, places in marks.items():
        np.testing.assert_array_equal(places, np.sort(table[name].values[np.isfinite(table[name].values)]))
    assert set(marks) == {"appears", "vanishes"}
    counts = next(trace for trace in drawn.data if trace.name == "number in OQ")
    np.testing.assert_array_equal(counts.y, table["n_edges"].sel(counted_pairing="OQ"))
    page = write_page(course, found, tmp_path / "page.html").read_text()
    assert "L0H1 → L2H3 becomes a Q-composition edge" in page


def pairs(values: np.ndarray) -> xr.DataArray:
    return xr.DataArray(values, dims=("step", "src", "dst"))


def test_no_pair_lies_beyond_the_tail_at_95_of_100_steps_under_the_null() -> None:
    """Kernels are skewed to the right, as untrained weights give them: a normal tail would find three times as many."""
    random, shape = np.random.default_rng(0), (1000, 6, 6)
    kernel, reverse = (pairs(random.gamma(8.0, size=shape)) for _ in range(2))
    share = float((tail_q(kernel, reverse) < 0.05).any(["src", "dst"]).mean())
    assert share < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1000)
    z = (kernel - reverse.mean(["src", "dst"])) / reverse.std(["src", "dst"], ddof=1)
    tail = prediction_tail(z.values, 36)
    assert np.mean([(q_values(row) < 0.05).any() for row in tail]) > 0.1


@pytest.mark.parametrize(
    ("nulls", "n_reverse", "chosen"),
    [
        (["two-way", "reverse", "haar"], 36, "two-way"),
        (["reverse", "haar"], 36, "reverse"),
        (["reverse", "haar"], 9, "haar"),
    ],
)
def test_edges_take_the_best_null_that_the_model_has(nulls: list[str], n_reverse: int, chosen: str) -> None:
    reverse = np.full((1, 6, 6), np.nan)
    reverse.ravel()[:n_reverse] = 1.0
    node = pairs(reverse).to_dataset(name="projection_kernel_reverse").assign_coords(null=nulls)
    assert chosen_null({"OK": node}) == chosen


def test_a_single_pair_beyond_the_tail_stands_out_and_an_undefined_one_does_not() -> None:
    reverse = 4 + 0.5 * norm.ppf((np.arange(36) + 0.5) / 36).reshape(1, 6, 6)
    kernel = reverse.copy()
    kernel[0, 2, 3], kernel[0, 1, 1] = 8.0, np.nan
    q = tail_q(pairs(kernel), pairs(reverse)).values
    assert np.argwhere(q <= 0.05).tolist() == [[0, 2, 3]]
    assert np.isnan(q[0, 1, 1])


@pytest.mark.parametrize(
    ("name", "attributes", "node", "words"),
    [
        ("relative_change", {"long_name": "relative change of W_O"}, "O", "Relative change of W_O (O)"),
        ("projection_kernel_mean", {"long_name": "mean projection kernel"}, "OK", "Mean projection kernel (OK)"),
        ("grassmann", {"long_name": "distance of query and key spaces"}, "", "Distance of query and key spaces"),
        ("new_thing", {}, "node", "New thing (node)"),
    ],
)
def test_quantities_are_named_by_what_their_lens_says(
    name: str, attributes: dict[str, str], node: str, words: str
) -> None:
    assert quantity_words(name, xr.DataArray(0.0, attrs=attributes), node) == words


def test_no_two_quantities_have_one_name() -> None:
    steps, values = np.arange(2), np.arange(2.0)
    named = (("a", "x_y", "Same"), ("a", "x y", "Same"), ("spectra", "W_Q ks", "Distance (W_Q)"))
    words = curve_dataset([Curve(*names, steps, values, values) for names in named], steps)["words"].values
    assert list(words) == ["Same [a x_y]", "Same [a x y]", "Distance (W_Q)"]


def test_every_quantity_of_a_swept_lens_has_a_name_of_its_own(course: xr.DataTree) -> None:
    words = list(course["run/quantities"]["words"].values)
    assert len(set(words)) == len(words)
    assert "Projection kernel (OQ)" in words
    assert not [text for text in words if "_" in text]
