"""Shared by the tests of bad input: a model that a Hub on loopback serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.robustness.hub_model import write_model
from tests.robustness.hub_server import HubServer


@pytest.fixture
def folder(hub: HubServer, tmp_path: Path) -> Path:
    """The folder behind `org/tiny`."""
    folder = write_model(tmp_path / "model", "safetensors")
    hub.add("org/tiny", folder)
    return folder
