"""Servers that answer something else than was asked: refused at once, in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headspan.checkpoint import open_checkpoint
from headspan.errors import CheckpointError, HeadspanError, HubError
from tests.robustness import hostile, hub_faults
from tests.robustness.hub_model import WEIGHTS, agree, heads_from_the_hub
from tests.robustness.hub_server import HubServer

LIES = {
    "bytes from elsewhere": (
        hub_faults.ranged(content_range="bytes 7-106/999999"),
        r"answered 'bytes 7-106/999999'",
    ),
    "a range of another file": (hub_faults.ranged(content_range="bytes 0-131071/131072"), r"cannot be trusted"),
    "no range at all": (hub_faults.ranged(content_range=None), r"answered '' of 'model\.safetensors' where 'bytes 0-"),
    "a range in words": (hub_faults.ranged(content_range="bytes all"), r"answered 'bytes all' of"),
    "a length that is not the range's": (hub_faults.ranged(content_length=5), r"answered 5 bytes of 'model"),
    "a web page": (
        hub_faults.web_page,
        r"does not answer like the Hub \(it sent a web page for 'model",
    ),
    "the whole file, cut": (hub_faults.status(200), r"answered 2 bytes of 'model\.safetensors' where [\d,]+ bytes"),
    "no such bytes": (hub_faults.status(416), r"answered that there are no such bytes of"),
    "a packed answer": (hub_faults.ranged(content_encoding="gzip"), r"packs its answers though it was asked not to"),
    "a redirect to itself": (hub_faults.redirect_to_itself, r"\(it redirects more than 5 times\)"),
    "a redirect to a file": (
        hub_faults.redirect_to("file:///etc/passwd"),
        r"it redirects to the address 'file:/",
    ),
    "a redirect to nowhere": (hub_faults.redirect_to("http://[::bad"), r"Invalid URL in location header"),
    "forbidden": (hub_faults.status(403), r"answered 403 for 'model\.safetensors'"),
    "a status nobody knows": (hub_faults.status(299), r"it answered 299"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_refused_at_once_in_one_sentence(name: str, folder: Path, hub: HubServer) -> None:
    behaviour, message = LIES[name]
    hub.fail(behaviour, WEIGHTS, port="cdn", times=1000)
    hub.fail(behaviour, "elsewhere", times=1000)
    with pytest.raises(HubError, match=message) as refusal:
        open_checkpoint("org/tiny")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_a_server_that_ignores_ranges_is_not_allowed_to_send_everything(
    folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.fail(hub_faults.ignore_range, WEIGHTS, port="cdn", times=1000)
    with pytest.raises(
        HubError,
        match=r"ignores byte ranges and would send all 0\.0 GB of 'model\.safetensors'; download the mod",
    ):
        open_checkpoint("org/tiny")
    monkeypatch.setattr("headspan.checkpoint.hub.connection.SPARE_BYTES", 10**9)
    assert agree(folder, heads_from_the_hub())


def test_a_file_that_changes_between_list_and_reading_is_refused(folder: Path, hub: HubServer) -> None:
    hub.fail(hub_faults.another_etag, WEIGHTS, port="hub")
    with pytest.raises(HubError, match=r"'model\.safetensors' of 'org/tiny' is not the file that the Hub listed"):
        open_checkpoint("org/tiny")


def test_a_small_file_that_is_not_the_listed_one_is_refused(folder: Path, hub: HubServer) -> None:
    hub.repositories["org/tiny"].listing()
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace("192", "193"))
    hub.fail(lambda request: request.answer(200, {}, request.content()), "config.json", times=9)
    with pytest.raises(HubError, match=r"what 127.+ sent as 'config\.json' is not the file it lists"):
        open_checkpoint("org/tiny")


LISTINGS = {
    "a web page": (hub_faults.web_page, r"like the Hub \(the list of files cannot be read as JSON"),
    "nested lists": (
        hub_faults.garbled_json,
        r"like the Hub \(the list of files cannot be read as JSON",
    ),
    "an endless answer": (hub_faults.endless, r"sends more than the 4,194,304 bytes that were to come"),
    "a redirect to itself": (hub_faults.redirect_to_itself, r"it redirects more than 5 times"),
    "nothing": (hub_faults.status(204), r"it answered 204|cannot be read as JSON"),
    "not found": (
        hub_faults.status(404),
        r"folder 'org/tiny' here, and 127.+ has no model 'org/tiny' that",
    ),
    "forbidden": (hub_faults.status(403), r"forbids reading 'org/tiny'; check that your token may read it"),
    "a refused token": (
        hub_faults.status(401, x_error_message="Invalid credentials in Authorization header"),
        r"does not accept the token; log in again",
    ),
    "a teapot": (hub_faults.status(418), r"answered 418 for 'org/tiny'; try again later"),
}


@pytest.mark.parametrize("name", LISTINGS)
def test_an_answer_that_is_no_list_of_files_is_one_sentence(
    name: str, folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headspan.checkpoint.hub.model.MAX_JSON_BYTES", 4 * 2**20)
    behaviour, message = LISTINGS[name]
    hub.fail(behaviour, "/api/models", times=1000)
    with pytest.raises(HubError, match=message) as refusal:
        open_checkpoint("org/tiny")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sha": "../../../etc"}, "its answer names no commit and files"),
        ({"siblings": None}, "its answer names no commit and files"),
        ({"siblings": [7]}, "it lists a file without a name"),
        ({"siblings": [{"rfilename": WEIGHTS}]}, r"it does not say how long 'model\.safetensors' is"),
        ({"siblings": [{"rfilename": WEIGHTS, "size": 10**30, "blobId": "a" * 40}]}, "it does not say how long"),
        ({"siblings": [{"rfilename": WEIGHTS, "size": 9, "blobId": "../x"}]}, "it gives no content hash of"),
        (
            {"siblings": []},
            r"'org/tiny' holds no model\.safetensors, pytorch_model\.bin or index of shards; found nothing",
        ),
    ],
)
def test_a_list_of_files_that_makes_no_sense_is_refused(
    change: dict[str, object], message: str, folder: Path, hub: HubServer
) -> None:
    content = json.dumps({**hub.repositories["org/tiny"].listing(), **change}).encode()
    hub.fail(lambda request: request.answer(200, {}, content), "/api/models")
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint("org/tiny")


NOT_SERVABLE = {
    "link out of the folder",
    "config that is a link",
    "link to itself",
    "folder where a file was expected",
    "named pipe for a file",
}
"""What a file system can do and a web server cannot."""


@pytest.mark.parametrize("name", sorted(set(hostile.CASES) - NOT_SERVABLE))
def test_a_bad_checkpoint_is_refused_over_http_as_it_is_locally(name: str, hub: HubServer, tmp_path: Path) -> None:
    make, message = hostile.CASES[name]
    folder = tmp_path / "bad"
    folder.mkdir()
    make(folder)
    if any(not path.is_file() or path.is_symlink() for path in folder.iterdir()):
        pytest.fail(f"'{name}' cannot be served; name it in NOT_SERVABLE")
    large = {path.name: "ab" * 32 for path in folder.iterdir() if path.stat().st_size > 10**8}
    hub.add("org/bad", folder, digests=large)
    with pytest.raises(HeadspanError, match=message) as refusal:
        open_checkpoint("org/bad")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500
    assert not (folder / "code-ran").exists()
    assert hub.sent() < 40 * 2**20
