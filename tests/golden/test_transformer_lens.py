"""TransformerLens 4.3.0, an independent implementation, finds the same kernels and composition scores.

Its conventions are noted in `transformer_lens_oracle`. The first run installs it, which takes minutes and 1.8 GB of
disk in `.venv-transformer-lens`; its composition scores of GPT-2 need some 10 GB of memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import xarray as xr

import headspan
from headspan.result import Result
from tests.golden import transformer_lens_oracle as oracle

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("transformer_lens")]  # one environment, built once

TOLERANCE = 1e-5
PAIRINGS = ("OQ", "OK", "OV")


class Both(NamedTuple):
    ours: Result
    theirs: dict[str, np.ndarray]


def both(model: Path, scratch: Path) -> Both:
    try:
        oracle.environment()
    except oracle.NoOracle as reason:
        pytest.skip(str(reason))
    with np.load(oracle.answers(model, scratch / "answers.npz")) as archive:
        theirs = dict(archive)
    return Both(headspan.affinity(model), theirs)


@pytest.fixture(scope="module")
def gpt2(gpt2_attention: Path, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp("complete")
    return both(oracle.write_complete_gpt2(gpt2_attention, folder / "gpt2"), folder)


@pytest.fixture(scope="module")
def grouped(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return both(stories, tmp_path_factory.mktemp("grouped"))


def composing_pairs(ours: xr.DataArray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both scores at every pair whose source layer is the earlier one, chosen by layer and not by either's marks."""
    assert ours.shape == theirs.shape
    n_layers = ours.sizes["src_layer"]
    earlier = np.arange(n_layers)[:, None] < np.arange(n_layers)
    chosen = np.broadcast_to(earlier[:, None, :, None], ours.shape)
    return ours.values[chosen], theirs[chosen]


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_kernels_of_all_composing_pairs_of_gpt2_are_those_of_transformer_lens(gpt2: Both, pairing: str) -> None:
    kernel = gpt2.ours.grid(pairing)["projection_kernel"]
    ours, theirs = composing_pairs(kernel, gpt2.theirs[f"kernel_{pairing[1]}"])
    assert ours.size == 9504
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_composition_scores_of_all_composing_pairs_of_gpt2_are_those_of_transformer_lens(
    gpt2: Both, pairing: str
) -> None:
    score = gpt2.ours.grid(pairing)["composition_score"]
    ours, theirs = composing_pairs(score, gpt2.theirs[f"composition_{pairing[1]}"])
    assert ours.size == 9504
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_pairs_that_do_not_compose_are_nan_here_and_zero_there(gpt2: Both, pairing: str) -> None:
    valid = gpt2.theirs[f"valid_{pairing[1]}"]
    for variable, name in (("projection_kernel", "kernel"), ("composition_score", "composition")):
        np.testing.assert_array_equal(np.isnan(gpt2.ours.grid(pairing)[variable].values), ~valid)
        assert not gpt2.theirs[f"{name}_{pairing[1]}"][~valid].any()


def test_the_expected_kernel_is_that_of_transformer_lens(gpt2: Both) -> None:
    node = gpt2.ours["OQ"]
    moments = [float(node.projection_kernel_mean_null), float(node.projection_kernel_sd_null) ** 2]
    np.testing.assert_allclose(moments, gpt2.theirs["chance"], rtol=1e-12)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_kernels_of_grouped_heads_are_those_of_transformer_lens(grouped: Both, pairing: str) -> None:
    kernel = grouped.ours.grid(pairing)["projection_kernel"]
    ours, theirs = composing_pairs(kernel, grouped.theirs[f"kernel_{pairing[1]}"])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)


def test_composition_through_grouped_queries_is_that_of_transformer_lens(grouped: Both) -> None:
    # K and V have no counterpart: there each kv head is repeated, here its readers are taken together.
    ours, theirs = composing_pairs(grouped.ours.grid("OQ")["composition_score"], grouped.theirs["composition_Q"])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)
