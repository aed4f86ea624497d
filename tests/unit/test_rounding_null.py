"""The null of rounding: true to noise with steps of its own, silent on rounded weights, not on what is no noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

import headspan
from headspan.errors import ArgumentError
from tests.unit.test_drift import gpt2, rows_of

SHAPE = {"n_embd": 64, "n_head": 8, "n_layer": 3}
GROUP = 8


def steps(weight: torch.Tensor) -> torch.Tensor:
    """One step for every group of entries along a row."""
    return weight.reshape(-1, GROUP).abs().amax(1, keepdim=True).expand(-1, GROUP).reshape(weight.shape) / 8


def each(change: Callable) -> Callable:
    """Every matrix changed, in a model that uses some axes of the stream more than others, as trained ones do."""

    def apply(attention: list) -> None:
        axes = torch.logspace(-0.5, 0.7, SHAPE["n_embd"], dtype=torch.float64)
        for layer, module in enumerate(attention):
            module.c_attn.weight *= axes[:, None]
            module.c_proj.weight *= axes
            for place, weight in enumerate((module.c_attn.weight, module.c_proj.weight)):
                generator = torch.Generator().manual_seed(10 * layer + place)
                weight.copy_(change(weight, steps(weight), generator))

    return apply


def dithered(weight: torch.Tensor, step: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return weight + step * (torch.rand(weight.shape, generator=generator, dtype=weight.dtype) - 0.5)


def to_nearest(weight: torch.Tensor, step: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return (weight / step).round() * step


def to_zero(weight: torch.Tensor, step: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return (weight / step).trunc() * step


def unchanged(weight: torch.Tensor, step: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return weight


@pytest.fixture(scope="module")
def base() -> headspan.Heads:
    return gpt2(each(unchanged), **SHAPE)


def test_p_values_are_uniform_under_noise_with_steps(base: headspan.Heads) -> None:
    rows = rows_of(headspan.drift(base, gpt2(each(dithered), **SHAPE), noise="rounding"))
    for name in ("grassmann_p", "outside_share_p", "growth_p"):
        assert stats.kstest(rows[name], "uniform").pvalue > 1e-3, name
    assert (rows[["grassmann_q", "growth_q"]] > 0.01).all(axis=None)
    np.testing.assert_allclose(rows["spectrum_change"].mean(), rows["spectrum_change_null"].mean(), rtol=0.1)


def test_a_gaussian_null_would_have_called_that_noise_an_effect(base: headspan.Heads) -> None:
    rows = rows_of(headspan.drift(base, gpt2(each(dithered), **SHAPE)))
    assert (rows["grassmann_q"] < 0.05).mean() > 0.2


def test_rounding_to_the_nearest_level_is_as_good_as_noise(base: headspan.Heads) -> None:
    result = headspan.drift(base, gpt2(each(to_nearest), **SHAPE), noise="rounding")
    rows = rows_of(result)
    assert (rows["grassmann_q"] > 0.01).all()
    assert (rows["growth_q"] > 0.01).all()
    assert "rounding noise" in result.attrs["null"]


def test_rounding_towards_zero_is_no_noise_and_is_found(base: headspan.Heads) -> None:
    result = headspan.drift(base, gpt2(each(to_zero), **SHAPE), noise="rounding")
    rows = rows_of(result)
    assert (rows["growth_q"] < 0.01).all()
    assert (rows["growth"] < 0).all()
    (found,) = [finding for finding in result.findings if "shrank along themselves" in finding.statement]
    assert found.statement.startswith("96 of 96 changed head matrices shrank")


def test_growth_is_the_projection_of_the_change_on_the_weights(base: headspan.Heads) -> None:
    other = gpt2(each(dithered), **SHAPE)
    result = headspan.drift(base, other, noise="rounding")
    W, E = base.W_K[1, 3].double(), (other.W_K[1, 3] - base.W_K[1, 3]).double()
    row = result["K"].sel(kv_head="L1H3")
    assert float(row["growth"]) == pytest.approx(float((W * E).sum() / W.square().sum()))
    assert float(row["growth_null_sd"]) == pytest.approx(float((W * E).square().sum().sqrt() / W.square().sum()))


def test_the_choice_of_noise_reaches_edges_and_is_checked(base: headspan.Heads) -> None:
    other = gpt2(each(to_nearest), **SHAPE)
    result = headspan.compare(base, other, noise="rounding", draws=4)
    assert result.attrs["noise"] == "rounding"
    assert result.attrs["change_null"].startswith("rounding noise on every head")
    p = np.concatenate([result[f"wiring/{pairing}"].change_p.values.ravel() for pairing in ("OQ", "OK", "OV")])
    assert 0.01 < (p[~np.isnan(p)] < 0.05).mean() < 0.09
    assert "read_share" not in result["wiring/OK"]
    assert "tokens" not in result
    for function in (headspan.drift, headspan.compare):
        with pytest.raises(ArgumentError, match="noise='loud' is unknown; random changes are gaussian and rounding"):
            function(base, other, noise="loud")
