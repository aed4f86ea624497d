"""One model trained for real, shared by all tests that need one."""

from __future__ import annotations

from pathlib import Path

import pytest
import xarray as xr

from headspan.lab.recipe import preset
from headspan.lab.session import Run, run_once
from headspan.lab.study import study


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The smoke preset, trained to the end."""
    return run_once(preset("smoke"), tmp_path_factory.mktemp("lab") / "run")


@pytest.fixture(scope="session")
def studied(trained: Run) -> xr.DataTree:
    """Every experiment on it."""
    return study(Path(trained.folder.path))
