"""Lenses that run the model: a sweep keeps what the lens gives, or says in a line before it starts why it will not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from headspan.lenses import model as model_module
from headspan.lenses.catalog import lens as lens_of
from headspan.sweeps import open_store, sweep
from headspan.threads import one_thread
from tests.robustness.sweep_models import client_in_this_process, part_bytes, write_series

STEPS = (0, 50)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with client_in_this_process() as client:
        yield client


@pytest.fixture(scope="module")
def series(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real small model, and the same with some noise."""
    folder = tmp_path_factory.mktemp("series") / "run"
    for step in STEPS:
        shutil.copytree(stories, folder / f"step-{step}")
        generator = torch.Generator().manual_seed(step)
        noisy = {
            name: weights + 1e-3 * step * torch.randn(weights.shape, generator=generator)
            for name, weights in load_file(stories / "model.safetensors").items()
        }
        save_file(noisy, folder / f"step-{step}" / "model.safetensors")
    return folder


def swept_as_computed(lens: str, variable: str, series: Path, client: Any, store: Path) -> None:
    """A sweep's results are those of the lens on each checkpoint, and differ between them."""
    summary = sweep(series, store, lenses=lens, client=client)
    assert (summary.done, list(summary.failures), dict(summary.skipped)) == (len(STEPS), [], {})
    kept = open_store(store)[f"run/{lens}"].to_dataset().sel(model="run")
    for step in STEPS:
        with one_thread():
            bare = lens_of(lens).function(series / f"step-{step}")
        np.testing.assert_array_equal(kept[variable].sel(step=step).values, bare[variable].values)
    assert not np.array_equal(*(kept[variable].sel(step=step).values for step in STEPS), equal_nan=True)
    assert sweep(series, store, lenses=lens, client=client).reused == len(STEPS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lens", "variable"),
    [("detect", "induction"), ("attention", "pattern"), ("gaussian", "entropy_measured"), ("intervene", "kl")],
)
def test_every_lens_that_runs_the_model_is_swept_as_it_is_computed(
    lens: str, variable: str, series: Path, client: Any, tmp_path: Path
) -> None:
    swept_as_computed(lens, variable, series, client, tmp_path / "store")


def test_a_model_too_large_to_be_run_is_refused_before_any_task(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_module, "MOST_PARAMETERS", 1_000)
    series = write_series(tmp_path / "run", (0, 1))
    summary = sweep(series, tmp_path / "store", lenses="attention,detect,ranks", client=client)
    reason = "models of more than 1,000 parameters are run only by the lens's own command"
    assert summary.skipped == {"run": {"attention": reason, "detect": reason}}
    assert (summary.done, list(summary.failures)) == (2, [])
    assert all(name.startswith("parts/ranks/") for name in part_bytes(tmp_path / "store"))
