"""Revisions on the Hub as one series: each is read at its own commit, and one that is not there is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import headspan
from headspan.sweeps import open_store, sweep
from tests.robustness.hub_server import HubServer
from tests.robustness.sweep_models import client_in_this_process, write_checkpoint


def test_revisions_in_braces_are_swept_each_at_its_commit(hub: HubServer, tmp_path: Path) -> None:
    for step, seed in ((1, 1), (2, 1), (10, 5)):
        folder = write_checkpoint(tmp_path / f"step{step}", seed)
        hub.add(f"org/tiny@step{step}", folder, revisions=(f"step{step}",), commit=f"{step:040x}")
    store = tmp_path / "store"
    with client_in_this_process() as client:
        summary = sweep("org/tiny@{step1,step2,step10,step99}", store, lenses="ranks", client=client)
        (failure,) = summary.failures
        assert failure.what == "'org/tiny@step99'"
        assert list(summary.identical) == ["org/tiny: step 2 has the same weights as step 1"]
        hub.forget()
        again = sweep("org/tiny@{step1,step2,step10}", store, lenses="ranks", client=client)
    assert (summary.done, again.done, again.reused) == (2, 0, 2)
    assert hub.sent("model.safetensors") < 5000
    kept = open_store(store)["org--tiny/ranks"].to_dataset().sel(model="org/tiny")
    assert list(kept["step"].values) == [1, 2, 10]
    assert list(kept["revision"].values) == [f"{step:040x}" for step in (1, 2, 10)]
    bare = headspan.ranks(tmp_path / "step10")
    np.testing.assert_array_equal(kept["rank_K"].sel(step=10), bare["rank_K"])
