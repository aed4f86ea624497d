"""Connections that break, stall or are put off: tried again while it helps, then one sentence."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from headspan.checkpoint import open_checkpoint
from headspan.errors import HubError
from tests.robustness import hub_faults
from tests.robustness.hub_model import WEIGHTS, agree, all_heads, heads_from_the_hub
from tests.robustness.hub_server import HubServer

PASSING = {
    "a connection dropped in the middle": hub_faults.drop_after(100_000),
    "a connection dropped at once": hub_faults.drop_at_once,
    "an answer that ends early": hub_faults.shorter_than_stated(50_000),
    "a server that stalls": hub_faults.stall,
    "a server that stalls before it answers": hub_faults.stall_at_once,
    "a server that trickles": hub_faults.trickle,
    "a server that trickles its headers": hub_faults.trickle_headers,
    "too many requests": hub_faults.status(429, retry_after=1),
    "unavailable": hub_faults.status(503),
    "an error inside the server": hub_faults.status(500),
    "not HTTP": hub_faults.not_http,
}


@pytest.mark.parametrize("name", PASSING)
def test_a_fault_that_passes_is_overcome(name: str, folder: Path, hub: HubServer) -> None:
    checkpoint = open_checkpoint("org/tiny")
    hub.fail(PASSING[name], WEIGHTS, port="cdn", times=2)
    assert agree(folder, all_heads(checkpoint.heads()))
    assert all(fault.times == 0 for fault in hub.faults)


@pytest.mark.parametrize(
    "name", ["a connection dropped at once", "a server that stalls before it answers", "unavailable"]
)
def test_a_fault_of_the_hub_itself_is_overcome(name: str, folder: Path, hub: HubServer) -> None:
    hub.fail(PASSING[name], "/api/models", times=2)
    hub.fail(PASSING[name], "config.json", times=2)
    assert agree(folder, heads_from_the_hub())
    assert all(fault.times == 0 for fault in hub.faults)


@pytest.mark.usefixtures("patient_hub")
def test_a_dropped_connection_is_resumed_at_the_byte_it_reached(folder: Path, hub: HubServer) -> None:
    checkpoint = open_checkpoint("org/tiny")
    hub.forget()
    for _ in range(3):
        hub.fail(hub_faults.drop_after(60_000), WEIGHTS, port="cdn")
    assert agree(folder, all_heads(checkpoint.heads()))
    ranges = [seen.headers["Range"] for seen in hub.seen if seen.port == "cdn"]
    starts = [int(re.findall(r"\d+", text)[0]) for text in ranges]
    assert starts[1] - starts[0] == starts[2] - starts[1] == 60_000


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "a connection dropped at once",
            r"reading 'model\.safetensors' from 127.+ failed again and again \(.+\); try",
        ),
        ("a connection dropped in the middle", r"failed again and again \(peer closed connection"),
        ("a server that stalls", r"failed again and again \(it was silent for 1 s\)"),
        ("a server that trickles", r"failed again and again \(it sent [\d,]+ bytes in 0 s\)"),
        ("a server that trickles its headers", r"failed again and again \(it did not begin to answer in 2 s\)"),
        ("unavailable", r"failed again and again \(it answered 503\)"),
        ("an answer that ends early", r"failed again and again \(its answer ended after 1,000 of [\d,]+ bytes\)"),
    ],
)
def test_a_fault_that_stays_is_one_sentence_after_few_attempts(
    name: str, message: str, folder: Path, hub: HubServer
) -> None:
    checkpoint = open_checkpoint("org/tiny")
    behaviours = {
        **PASSING,
        "a connection dropped in the middle": hub_faults.drop_after(1000),
        "an answer that ends early": hub_faults.shorter_than_stated(1000),
    }
    hub.fail(behaviours[name], WEIGHTS, port="cdn", times=1000)
    begun = time.monotonic()
    with pytest.raises(HubError, match=message) as refusal:
        _ = checkpoint.heads().W_Q
    assert "\n" not in str(refusal.value)
    assert time.monotonic() - begun < 60
    assert hub.faults[0].times == 1000 - 4


def test_a_server_that_asks_for_a_long_wait_is_not_waited_for(folder: Path, hub: HubServer) -> None:
    hub.fail(hub_faults.status(429, retry_after=86_400), "/api/")
    begun = time.monotonic()
    with pytest.raises(HubError, match=r"asks to wait 86400 s before the list of files of 'org/tiny' is read"):
        open_checkpoint("org/tiny")
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        ("55", "asks to wait 55 s before the list"),
        ("9" * 400, "asks to wait 1000000000 s"),
        ("9" * 5000, "like the Hub"),
    ],
)
def test_a_rate_limit_that_lasts_is_not_waited_for(seconds: str, message: str, folder: Path, hub: HubServer) -> None:
    hub.fail(hub_faults.status(429, ratelimit=f'"api";r=0;t={seconds}'), "/api/")
    with pytest.raises(HubError, match=message):
        open_checkpoint("org/tiny")


def test_retry_after_is_honoured(folder: Path, hub: HubServer) -> None:
    hub.fail(hub_faults.status(429, retry_after=1), "/api/")
    begun = time.monotonic()
    open_checkpoint("org/tiny")
    assert time.monotonic() - begun >= 1


@pytest.mark.usefixtures("patient_hub")
def test_a_link_that_expires_is_asked_for_again(folder: Path, hub: HubServer) -> None:
    checkpoint = open_checkpoint("org/tiny")
    hub.fail(hub_faults.status(403), WEIGHTS, port="cdn")
    hub.forget()
    assert agree(folder, all_heads(checkpoint.heads()))
    assert [seen.port for seen in hub.seen][:3] == ["cdn", "hub", "cdn"]
