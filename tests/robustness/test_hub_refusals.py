"""What the Hub does not have or does not give, and a Hub that is not there: one clear sentence each."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from huggingface_hub import constants

from headspan.checkpoint import open_checkpoint
from headspan.errors import HeadspanError, HubError
from tests.robustness import hub_faults
from tests.robustness.hub_model import WEIGHTS, agree, heads_from_the_hub
from tests.robustness.hub_server import HubServer

SECRET = "hf_thisMustNeverBeSeenElsewhere"


def test_a_missing_model_revision_or_file_is_one_sentence(folder: Path, hub: HubServer) -> None:
    with pytest.raises(
        HubError,
        match=r"there is no file or folder 'org/none' here, and 127\S+ has no model 'org/none' that",
    ):
        open_checkpoint("org/none")
    with pytest.raises(HubError, match=r"'org/tiny' has no revision 'v9'; its page at 127\S+ lists its branches"):
        open_checkpoint("org/tiny@v9")
    hub.fail(hub_faults.status(404, x_error_code="EntryNotFound"), WEIGHTS)
    with pytest.raises(HubError, match=r"has no file 'model\.safetensors', though its list of files names it"):
        open_checkpoint("org/tiny")


def test_a_gated_model_is_one_sentence_and_opens_with_a_token(
    folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["org/tiny"].gated = True
    with pytest.raises(HubError, match=r"'org/tiny' is gated: accept its terms on its page at 127.+`hf auth login`"):
        open_checkpoint("org/tiny")
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert agree(folder, heads_from_the_hub())


def test_no_network_is_one_sentence(folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.ports["hub"].shutdown()
    hub.ports["hub"].server_close()
    begun = time.monotonic()
    with pytest.raises(
        HubError,
        match=r"no file or folder 'org/tiny' here, and 127\S+ cannot be reached \(.*refused\); check the",
    ):
        open_checkpoint("org/tiny")
    assert time.monotonic() - begun < 60


def test_offline_is_one_sentence(folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        HubError, match=r"there is no file or folder 'gpt2' here, and the Hub may not be asked .*HF_HUB_OFFLINE is set"
    ):
        open_checkpoint("gpt2")
    assert hub.seen == []


@pytest.mark.parametrize("endpoint", ["somewhere", "http://[::1", ""])
def test_an_endpoint_that_is_no_address_is_one_sentence(
    endpoint: str, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    with pytest.raises(HubError, match=r"HF_ENDPOINT is '.*', which is not the address of a server"):
        open_checkpoint("org/tiny")


@pytest.mark.parametrize(
    "text", ["./org/tiny", "a/b/c", "/no/such", "~/none", "x.safetensors", "a b", "org/tiny@../x", ""]
)
def test_what_cannot_be_a_name_is_not_asked_for(text: str, folder: Path, hub: HubServer) -> None:
    with pytest.raises(HeadspanError, match=r"there is no file or folder|holds no model"):
        open_checkpoint(text)
    assert hub.seen == []
