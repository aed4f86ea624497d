"""Pointing headspan at a Hub on loopback, in this process or in another one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from huggingface_hub import constants

from headspan.checkpoint.hub import patience
from headspan.checkpoint.hub.patience import Patience
from tests.robustness.hub_server import HubServer

LITTLE_PATIENCE = Patience(
    silence=1.0, beginning=2.0, attempts=4, first_wait=0.01, longest_wait=1.5, grace=0.3, slowest=2000.0
)

MUCH_PATIENCE = Patience(silence=60.0, beginning=120.0, first_wait=0.01, grace=120.0)
"""For tests that count requests: on a busy machine the little patience runs out, and a retry is counted too."""


def use_hub(server: HubServer, home: Path, patch: pytest.MonkeyPatch) -> None:
    """Let this process talk to `server`, with caches below `home`. (huggingface_hub reads its settings when loaded.)"""
    patch.setattr(constants, "ENDPOINT", server.url)
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}")
    patch.setattr(constants, "HF_HUB_OFFLINE", False)
    patch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    patch.setattr(constants, "HF_ASSETS_CACHE", str(home / "assets"))
    patch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    patch.delenv("HF_TOKEN", raising=False)
    patch.setattr(patience, "PATIENCE", LITTLE_PATIENCE)


def hub_environment(server: HubServer, home: Path) -> dict[str, str]:
    """Environment of a process that talks to `server`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return {**inherited, "HF_ENDPOINT": server.url, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
