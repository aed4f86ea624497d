"""Answers of a Hub that are damaged in every way end in a HeadspanError or a checkpoint, never in anything else.

The answers come from inside the process, in place of a network, so that many cases take little time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from huggingface_hub import constants, set_client_factory
from huggingface_hub.utils._http import default_client_factory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headspan.checkpoint import open_checkpoint
from headspan.checkpoint.hub import patience
from headspan.checkpoint.hub.patience import Patience
from headspan.errors import HeadspanError
from tests.robustness import hostile
from tests.robustness.hub_server import COMMIT
from tests.robustness.test_fuzz_readers import (
    FEW,
    INTACT,
    JSON,
    TORCH,
    damaged,
    nothing_read_outside,
    run_many,
    zip_directories,
)

CONFIG = json.dumps(hostile.CONFIG).encode()
ENDPOINT = "http://hub.invalid"
MOST_REQUESTS = 60


@dataclass(frozen=True)
class Damage:
    """How one answer differs from the right one."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: Callable[[bytes], bytes] = bytes
    broken: type[Exception] | None = None


class PretendedHub:
    """Right answers, but for those with a number in `damages`."""

    def __init__(
        self, files: dict[str, bytes], damages: dict[int, Damage] | None = None, listing: bytes | None = None
    ) -> None:
        self.files, self.damages, self.count = files, damages or {}, 0
        siblings = [
            {"rfilename": name, "size": len(content), "lfs": {"sha256": hashlib.sha256(content).hexdigest()}}
            for name, content in files.items()
        ]
        self.listing = json.dumps({"sha": COMMIT, "siblings": siblings}).encode() if listing is None else listing

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.count += 1
        assert self.count < MOST_REQUESTS, "the reader asks without end"
        damage = self.damages.get(self.count, Damage())
        if damage.broken is not None:
            raise damage.broken("broken")
        status, headers, body = self._right(request)
        body = damage.body(body)
        given = {"Content-Length": str(len(body)), **headers, **damage.headers}
        kept = {name: value for name, value in given.items() if value != "absent"}
        return httpx2.Response(damage.status or status, headers=kept, stream=httpx2.ByteStream(body))

    def _right(self, request: httpx2.Request) -> tuple[int, dict[str, str], bytes]:
        if request.url.path.startswith("/api/"):
            return 200, {}, self.listing
        content = self.files.get(request.url.path.rpartition("/")[2], b"")
        asked = request.headers.get("Range", "").removeprefix("bytes=")
        if not asked:
            return 200, {}, content
        start, end = (int(number) for number in asked.split("-"))
        part = content[start : end + 1]
        return 206, {"Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(content)}"}, part


@pytest.fixture(autouse=True)
def _no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "file").touch()
    monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / "file" / "assets"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file" / "hub"))
    monkeypatch.setattr(constants, "ENDPOINT", ENDPOINT)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", ENDPOINT + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(patience, "PATIENCE", Patience(attempts=3, first_wait=0, longest_wait=0))
    yield
    set_client_factory(default_client_factory)


def attempt(hub: PretendedHub) -> str:
    """Open a model on `hub`, and read it if it opens; only the reader's own errors may come out."""
    set_client_factory(lambda: httpx2.Client(transport=httpx2.MockTransport(hub), trust_env=False))
    message = "opened"
    with nothing_read_outside(Path(constants.HF_ASSETS_CACHE).parents[1]):
        try:
            checkpoint = open_checkpoint("org/name")
            for block in checkpoint.heads().blocks():
                assert block.W_Q.isfinite().all()
        except HeadspanError as refusal:
            message = str(refusal)
    assert "\n" not in message
    return message


GOOD = {"config.json": CONFIG, "model.safetensors": INTACT}
BROKEN = (httpx2.ReadTimeout, httpx2.ConnectError, httpx2.ReadError, httpx2.RemoteProtocolError, httpx2.DecodingError)
NUMBERS = st.integers(0, 10**20).map(str) | st.text("0123456789 -,", max_size=12)
LOCATIONS = st.sampled_from(
    ["/", "//", "http://", "http://other.invalid/x", "ftp://x/", "https://[", "\x7f", "x" * 3000]
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Content-Range": st.text("bytes 0123456789-/*", max_size=24) | st.just("absent"),
        "Content-Length": NUMBERS | st.just("absent"),
        "Location": LOCATIONS,
        "Retry-After": NUMBERS,
        "RateLimit": st.sampled_from([1, 30, 400, 5000]).map(lambda digits: f'"api";r=0;t={"9" * digits}'),
        "ETag": st.text('W/"0123456789abcdef', max_size=70),
        "X-Linked-Etag": st.just('"' + "a" * 64 + '"'),
        "X-Error-Code": st.sampled_from(["GatedRepo", "RepoNotFound", "RevisionNotFound", "EntryNotFound", "?"]),
        "Content-Encoding": st.sampled_from(["gzip", "identity", ""]),
        "Content-Type": st.sampled_from(["text/html", "application/json"]),
    },
)
BODIES: st.SearchStrategy[Callable[[bytes], bytes]] = st.sampled_from(
    [bytes, lambda b: b"", lambda b: b[:-1], lambda b: b + b"x", lambda b: b"<html>", lambda b: b * 3]
)
STATUSES = st.none() | st.sampled_from([100, 200, 204, 206, 301, 302, 307, 400, 401, 403, 404, 416, 429, 503, 599])
DAMAGES = st.builds(Damage, STATUSES, HEADERS, BODIES, st.none() | st.sampled_from(BROKEN))


@st.composite
def listings(draw: st.DrawFn) -> bytes:
    """A list of files with some entry, field or the whole replaced by arbitrary JSON."""
    listing: Any = json.loads(PretendedHub(GOOD).listing)
    for _ in range(draw(st.integers(1, 3))):
        value = draw(JSON | st.integers(-1, 2**60) | st.sampled_from(["../x", COMMIT, "a" * 64, "model.safetensors"]))
        where = draw(st.sampled_from(["sha", "siblings", "entry", "rfilename", "size", "lfs", "sha256", "blobId"]))
        entries = listing["siblings"]
        entry = draw(st.sampled_from(entries)) if isinstance(entries, list) and entries else {}
        if where in listing:
            listing[where] = value
        elif where == "entry" and isinstance(entries, list):
            entries.append(value)
        elif where == "sha256" and isinstance(entry, dict) and isinstance(entry.get("lfs"), dict):
            entry["lfs"]["sha256"] = value
        elif isinstance(entry, dict):
            entry[where] = value
    return json.dumps(listing).encode()


def check_listing(listing: bytes) -> None:
    attempt(PretendedHub(GOOD, listing=listing))


def check_answers(damages: dict[int, Damage]) -> None:
    attempt(PretendedHub(GOOD, damages))


def check_files(files: dict[str, bytes]) -> None:
    attempt(PretendedHub({"config.json": CONFIG, **files}))


def one_file(name: str) -> Callable[[bytes], dict[str, bytes]]:
    return lambda content: {name: content}


STRATEGIES: dict[str, tuple[Callable[[Any], None], st.SearchStrategy[Any]]] = {
    "list of files": (check_listing, listings() | damaged(PretendedHub(GOOD).listing)),
    "answers": (check_answers, st.dictionaries(st.integers(1, 6), DAMAGES, min_size=1, max_size=4)),
    "remote files": (
        check_files,
        damaged(INTACT).map(one_file("model.safetensors"))
        | damaged(TORCH[True]).map(one_file("pytorch_model.bin"))
        | zip_directories().map(one_file("pytorch_model.bin"))
        | damaged(TORCH[False]).map(one_file("pytorch_model.bin")),
    ),
}


def test_the_pretended_hub_is_read_when_nothing_is_damaged() -> None:
    assert attempt(PretendedHub(GOOD)) == "opened"
    assert attempt(PretendedHub({"config.json": CONFIG, "pytorch_model.bin": TORCH[True]})) == "opened"


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_damaged_answer_never_gets_past_the_readers_own_errors(name: str) -> None:
    check, strategy = STRATEGIES[name]
    settings(max_examples=FEW, suppress_health_check=list(HealthCheck))(given(strategy)(lambda value: check(value)))()


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_many_damaged_answers_never_get_past_the_readers_own_errors(name: str) -> None:
    run_many(*STRATEGIES[name])
