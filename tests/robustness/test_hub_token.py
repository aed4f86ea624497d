"""The user's token: to the Hub and nowhere else, in no log, message or trace."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import pytest

from headspan.checkpoint import open_checkpoint
from headspan.errors import HubError
from tests.robustness import hub_faults
from tests.robustness.hub_model import WEIGHTS
from tests.robustness.hub_server import HubServer

SECRET = "hf_thisMustNeverBeSeenElsewhere"
FAULTS = {
    "a connection dropped at once": hub_faults.drop_at_once,
    "a server that stalls": hub_faults.stall,
    "unavailable": hub_faults.status(503),
}


def test_the_token_goes_to_the_hub_and_not_where_it_leads(
    folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    caplog.set_level(logging.DEBUG)
    for name in ("huggingface_hub", "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.DEBUG)
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    checkpoint = open_checkpoint("org/tiny")
    _ = checkpoint.heads().W_Q
    assert checkpoint.folder is not None
    by_port = {port: [seen.headers for seen in hub.seen if seen.port == port] for port in ("hub", "cdn")}
    assert by_port["hub"]
    assert all(headers["Authorization"] == f"Bearer {SECRET}" for headers in by_port["hub"])
    assert by_port["cdn"]
    assert not any("Authorization" in headers or SECRET in str(headers) for headers in by_port["cdn"])
    assert caplog.text, "nothing was logged, so it proves nothing"
    assert SECRET not in caplog.text
    assert SECRET not in repr(checkpoint) + repr(checkpoint.store) + repr(vars(checkpoint.store))


@pytest.mark.usefixtures("patient_hub")
def test_a_token_is_not_sent_where_the_list_of_files_leads(
    folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    for other in (hub.cdn_url, hub.url.replace("127.0.0.1", "localhost")):
        hub.forget()
        hub.fail(hub_faults.redirect_to(f"{other}/elsewhere"), "/api/models")
        with pytest.raises(HubError, match="has no model"):
            open_checkpoint("org/tiny")
        assert ["Authorization" in seen.headers for seen in hub.seen] == [True, False]


@pytest.mark.parametrize("name", FAULTS)
def test_no_error_shows_the_token(name: str, folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    hub.fail(FAULTS[name], WEIGHTS, times=1000)
    with pytest.raises(HubError, match="failed again and again") as refusal:
        open_checkpoint("org/tiny")
    problem: BaseException | None = refusal.value
    while problem is not None:
        shown = traceback.TracebackException.from_exception(problem, capture_locals=True)
        assert SECRET not in "".join(shown.format())
        assert SECRET not in repr(problem)
        problem = problem.__cause__ or problem.__context__
