"""The page on quantization: every scheme is on it and rounds as described, and part of its tables comes out again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from docs.make_quantization import PAGE
from docs.quantization.rows import loaded, scheme_row
from docs.quantization.schemes import NF4, SCHEMES


def test_every_scheme_is_in_both_tables_of_the_language_model() -> None:
    part = PAGE.read_text(encoding="utf-8").split("### stories260K")[1].split("### MiniLM")[0]
    for scheme in SCHEMES:
        assert sum(line.startswith(f"| {scheme} |") for line in part.splitlines()) == 2, scheme


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_errs_by_no_more_than_its_bits_allow_and_leaves_its_levels_alone(scheme: str) -> None:
    W = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    bits, round_trip = SCHEMES[scheme]
    once = round_trip(W)
    error = float((once - W).norm() / W.norm())
    assert 0 < error < {32: 0.12, 16: 2e-3}.get(round(bits), 0.03 if bits >= 8 else 0.05 if bits >= 5.5 else 0.13)
    if scheme in ("F16", "BF16", "nf4", "int8, per row", "fp8, per tensor"):
        torch.testing.assert_close(round_trip(once), once, rtol=1e-6, atol=1e-7)


def test_the_levels_of_nf4_are_quantiles_of_a_normal_law() -> None:
    """As published: 8 levels up to 1 and 7 from -1 on, by equal steps of probability, with 0 between them."""
    law = torch.distributions.Normal(0.0, 1.0)
    end = 0.5 * (1 - 1 / 30 + 1 - 1 / 32)
    up = law.icdf(torch.linspace(end, 0.5, 9)[:-1])
    down = -law.icdf(torch.linspace(end, 0.5, 8)[:-1])
    levels = torch.cat([up, down, torch.zeros(1)]).sort().values
    torch.testing.assert_close(levels / levels.max(), torch.tensor(NF4), atol=1e-4, rtol=0)


@pytest.mark.slow
def test_rounding_is_noise_to_the_rounding_null_and_an_effect_to_a_gaussian_one(stories: Path) -> None:
    model = loaded(stories)
    for scheme in ("Q8_0", "Q4_0", "noise in steps of Q4_0"):
        row = scheme_row(stories, model, scheme, seed=1, draws=8, sequences=8)
        assert row["heads_beyond"] <= 3 < 40 < row["heads_beyond_gaussian"], scheme
        assert row["pairs_beyond"] <= 3, scheme
        assert row["divergence_beyond"] <= 3, scheme
        assert row["divergence"] == pytest.approx(row["divergence_null"], rel=0.5)
        assert row["loss_change_p"] > 1e-3, scheme


@pytest.mark.slow
def test_floats_of_four_bits_shrink_weights(stories: Path) -> None:
    row = scheme_row(stories, loaded(stories), "MXFP4", seed=1, draws=4, sequences=4)
    assert row["growth"] < -0.01
    assert row["growth_beyond"] > 20
