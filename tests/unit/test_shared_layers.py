"""Layers that run several times (ALBERT): passes compose, and each head is counted once where heads are counted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import AlbertConfig, AlbertModel

import headspan
from headspan.lenses.affinity import pair_tables

SHAPE = {"embedding_size": 16, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 60}


def albert(**more: int) -> AlbertModel:
    torch.manual_seed(0)
    return AlbertModel(AlbertConfig(**SHAPE, **{"num_hidden_layers": 6, **more}))


def heads_by_hand(model: AlbertModel, passes: list[tuple[int, int]]) -> list[dict[str, np.ndarray]]:
    """Orthonormal bases of what the heads of every pass write and read through keys, [head, d, p]."""
    found = []
    for group, inner in passes:
        attention = model.encoder.albert_layer_groups[group].albert_layers[inner].attention
        written = attention.dense.weight.detach().double().numpy().reshape(32, 4, 8).transpose(1, 0, 2)
        read = attention.key.weight.detach().double().numpy().reshape(4, 8, 32).transpose(0, 2, 1)
        found.append({"O": np.linalg.qr(written)[0], "K": np.linalg.qr(read)[0]})
    return found


@pytest.mark.parametrize(
    ("shape", "passes"),
    [
        ({}, [(0, 0)] * 6),
        ({"num_hidden_groups": 2}, [(0, 0)] * 3 + [(1, 0)] * 3),
        ({"num_hidden_groups": 2, "inner_group_num": 2}, [(0, 0), (0, 1)] * 3 + [(1, 0), (1, 1)] * 3),
    ],
)
def test_a_pass_composes_with_all_later_ones(shape: dict[str, int], passes: list[tuple[int, int]]) -> None:
    model = albert(**shape)
    bases = heads_by_hand(model, passes)
    found = headspan.affinity(model, pairings="OK")
    kernel = found.grid("OK")["projection_kernel"].values
    assert kernel.shape == (len(passes), 4, len(passes), 4)
    for a, src in enumerate(bases):
        for b, dst in enumerate(bases):
            if a >= b:
                assert np.isnan(kernel[a, :, b]).all()
                continue
            expected = np.square(np.einsum("hdp,kdq->hkpq", src["O"], dst["K"])).sum((-2, -1))
            np.testing.assert_allclose(kernel[a, :, b], expected, rtol=1e-5)
    assert found.attrs["n_layers"] == len(passes)
    assert "same scores" in found.attrs["shared_weights"]


def test_the_order_of_passes_is_the_order_in_which_the_model_runs() -> None:
    model = albert(num_hidden_groups=2, inner_group_num=2)
    seen: list[tuple[int, int]] = []
    for group, outer in enumerate(model.encoder.albert_layer_groups):
        for inner, layer in enumerate(outer.albert_layers):
            layer.attention.register_forward_hook(_noting(seen, (group, inner)))
    with torch.no_grad():
        model(torch.tensor([[1, 2, 3]]))
    passes = headspan.open(model).heads().stack.passes
    assert [divmod(layer, 2) for layer in passes] == seen


def _noting(seen: list[tuple[int, int]], place: tuple[int, int]) -> Callable[..., None]:
    def note(*_: object) -> None:
        seen.append(place)

    return note


def test_one_shared_layer_has_no_null_of_the_reverse_order() -> None:
    found = headspan.affinity(albert())
    for pairing in ("OQ", "OK", "OV"):
        node = found[pairing]
        for metric in ("projection_kernel", "composition_score"):
            for part in ("null", "null_sd", "z", "p", "q"):
                here = node[f"{metric}_{part}"]
                assert here.sel(null="haar").notnull().sum() == 15 * 16
                assert here.drop_sel(null="haar").isnull().all()
            assert node[f"{metric}_reverse"].isnull().all()
            assert np.isnan(float(node[f"{metric}_direction_p"]))
    said = [finding.statement for finding in found.findings]
    assert any("6 layers of the wiring are passes through 1 stored layer" in line for line in said)
    assert not any("reverse" in line for line in said)


def test_the_table_of_a_shared_layer_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def counted(*args: object, **settings: object) -> object:
        sizes.append(len(args[0].rank))  # type: ignore[attr-defined]
        return kernels(*args, **settings)  # type: ignore[arg-type]

    kernels = pair_tables.projection_kernels
    monkeypatch.setattr(pair_tables, "projection_kernels", counted)
    headspan.affinity(albert(), pairings="OK", metrics="projection_kernel")
    assert sizes == [4]


def test_lenses_that_count_heads_count_each_once() -> None:
    model = albert()
    assert headspan.ranks(model)["rank_Q"].size == 4
    assert headspan.spectra(model, matrices="W_Q_head")["W_Q_head"].sizes["head"] == 4
    assert headspan.ranks(model).attrs["n_layers"] == 1


def test_a_pair_of_passes_can_be_asked_for() -> None:
    model = albert()
    one = headspan.channels(model, "L1H0", "L4H2", pairings="OK", draws=50)["pair"]
    table = headspan.affinity(model, pairings="OK")["OK"].projection_kernel
    assert float(one["OK"].projection_kernel) == float(table.sel(src="L1H0", dst="L4H2"))
    assert float(np.square(np.cos(np.radians(one["OK"].angle))).sum()) == pytest.approx(
        float(one["OK"].projection_kernel), rel=1e-6
    )


def test_every_way_to_the_table_knows_passes() -> None:
    model = albert()
    exact = headspan.affinity(model, pairings="OK", metrics="projection_kernel")["OK"].projection_kernel
    sketch = headspan.affinity(model, pairings="OK", metrics="projection_kernel", algorithm="sketch", top=5)
    top = sketch.top(5)
    for row in top.to_dict("records"):
        assert row["score"] == pytest.approx(float(exact.sel(src=row["src"], dst=row["dst"])), rel=1e-5)
    checked = headspan.affinity(model, pairings="OK", robustness=True, sensitivity=True)
    assert float(checked["sensitivity"]["largest_change"].sel(directions=8, pairing="OK")) < 1e-6


@pytest.mark.slow
def test_a_comparison_of_shared_layers_says_why_it_has_no_wiring() -> None:
    first, second = albert(num_hidden_groups=2), albert(num_hidden_groups=2)
    with torch.no_grad():
        second.encoder.albert_layer_groups[0].albert_layers[0].attention.query.weight.mul_(1.5)
    found = headspan.compare(first, second, draws=3)
    assert "layers are shared" in found.attrs["wiring_left_out"]
