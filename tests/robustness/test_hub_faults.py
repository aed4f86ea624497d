"""Servers that fail, lie or stall: what can be repeated is repeated, everything else is one sentence."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

import headspan
from headspan.checkpoint.hub import extents, ranged_file
from headspan.errors import CheckpointError, HeadspanError, HubError
from tests.robustness import hostile, hub_server
from tests.robustness.hub_server import COMMIT, HubServer
from tests.robustness.local_hub import hub_environment
from tests.unit.test_hub import all_heads, write_model

WEIGHTS = "model.safetensors"
SECRET = "hf_thisMustNeverBeSeenElsewhere"


@pytest.fixture
def folder(hub: HubServer, tmp_path: Path) -> Path:
    folder = write_model(tmp_path / "model", "safetensors")
    hub.add("org/tiny", folder)
    return folder


def heads_from_the_hub() -> list[torch.Tensor]:
    return all_heads(headspan.open("org/tiny").heads())


def agree(folder: Path, heads: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(heads, all_heads(headspan.open(folder).heads()), strict=True))


PASSING = {
    "a connection dropped in the middle": hub_server.drop_after(100_000),
    "a connection dropped at once": hub_server.drop_at_once,
    "an answer that ends early": hub_server.shorter_than_stated(50_000),
    "a server that stalls": hub_server.stall,
    "a server that stalls before it answers": hub_server.stall_at_once,
    "a server that trickles": hub_server.trickle,
    "too many requests": hub_server.status(429, retry_after=1),
    "unavailable": hub_server.status(503),
    "an error inside the server": hub_server.status(500),
    "not HTTP": hub_server.not_http,
}


@pytest.mark.parametrize("name", PASSING)
def test_a_fault_that_passes_is_overcome(name: str, folder: Path, hub: HubServer) -> None:
    checkpoint = headspan.open("org/tiny")
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


def test_a_dropped_connection_is_resumed_at_the_byte_it_reached(folder: Path, hub: HubServer) -> None:
    checkpoint = headspan.open("org/tiny")
    hub.forget()
    for _ in range(3):
        hub.fail(hub_server.drop_after(60_000), WEIGHTS, port="cdn")
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
        ("a server that stalls", r"failed again and again \(it was silent for 0\.4 s\)"),
        ("a server that trickles", r"failed again and again \(it sent [\d,]+ bytes in 0 s\)"),
        ("unavailable", r"failed again and again \(it answered 503\)"),
        ("an answer that ends early", r"failed again and again \(its answer ended after 1,000 of [\d,]+ bytes\)"),
    ],
)
def test_a_fault_that_stays_is_one_sentence_after_few_attempts(
    name: str, message: str, folder: Path, hub: HubServer
) -> None:
    checkpoint = headspan.open("org/tiny")
    behaviours = {
        **PASSING,
        "a connection dropped in the middle": hub_server.drop_after(1000),
        "an answer that ends early": hub_server.shorter_than_stated(1000),
    }
    hub.fail(behaviours[name], WEIGHTS, port="cdn", times=1000)
    begun = time.monotonic()
    with pytest.raises(HubError, match=message) as refusal:
        _ = checkpoint.heads().W_Q
    assert "\n" not in str(refusal.value)
    assert time.monotonic() - begun < 10
    assert hub.faults[0].times == 1000 - 4


def test_a_server_that_asks_for_a_long_wait_is_not_waited_for(folder: Path, hub: HubServer) -> None:
    hub.fail(hub_server.status(429, retry_after=86_400), "/api/")
    begun = time.monotonic()
    with pytest.raises(HubError, match=r"asks to wait 86400 s before the list of files of 'org/tiny' is read"):
        headspan.open("org/tiny")
    assert time.monotonic() - begun < 2


def test_a_rate_limit_that_lasts_is_not_waited_for(folder: Path, hub: HubServer) -> None:
    hub.fail(hub_server.status(429, ratelimit='"api";r=0;t=55'), "/api/")
    with pytest.raises(HubError, match=r"asks to wait 55 s before the list of files"):
        headspan.open("org/tiny")


@pytest.mark.parametrize("endpoint", ["somewhere", "http://[::1", ""])
def test_an_endpoint_that_is_no_address_is_one_sentence(
    endpoint: str, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    with pytest.raises(HubError, match=r"HF_ENDPOINT is '.*', which is not the address of a server"):
        headspan.open("org/tiny")


def test_retry_after_is_honoured(folder: Path, hub: HubServer) -> None:
    hub.fail(hub_server.status(429, retry_after=1), "/api/")
    begun = time.monotonic()
    headspan.open("org/tiny")
    assert time.monotonic() - begun >= 1


LIES = {
    "bytes from elsewhere": (
        hub_server.ranged(content_range="bytes 7-106/999999"),
        r"answered 'bytes 7-106/999999'",
    ),
    "a range of another file": (hub_server.ranged(content_range="bytes 0-131071/131072"), r"cannot be trusted"),
    "no range at all": (hub_server.ranged(content_range=None), r"answered '' of 'model\.safetensors' where 'bytes 0-"),
    "a range in words": (hub_server.ranged(content_range="bytes all"), r"answered 'bytes all' of"),
    "a length that is not the range's": (hub_server.ranged(content_length=5), r"answered 5 bytes of 'model"),
    "a web page": (
        hub_server.web_page,
        r"does not answer like the Hub \(it sent a web page for 'model",
    ),
    "the whole file, cut": (hub_server.status(200), r"answered 2 bytes of 'model\.safetensors' where [\d,]+ bytes"),
    "no such bytes": (hub_server.status(416), r"answered that there are no such bytes of"),
    "a packed answer": (hub_server.ranged(content_encoding="gzip"), r"packs its answers though it was asked not to"),
    "a redirect to itself": (hub_server.redirect_to_itself, r"\(it redirects more than 5 times\)"),
    "a redirect to a file": (
        hub_server.redirect_to("file:///etc/passwd"),
        r"it redirects to the address 'file:/",
    ),
    "a redirect to nowhere": (hub_server.redirect_to("http://[::bad"), r"Invalid URL in location header"),
    "forbidden": (hub_server.status(403), r"answered 403 for 'model\.safetensors'"),
    "a status nobody knows": (hub_server.status(299), r"it answered 299"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_refused_at_once_in_one_sentence(name: str, folder: Path, hub: HubServer) -> None:
    behaviour, message = LIES[name]
    hub.fail(behaviour, WEIGHTS, port="cdn", times=1000)
    hub.fail(behaviour, "elsewhere", times=1000)
    with pytest.raises(HubError, match=message) as refusal:
        headspan.open("org/tiny")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_a_server_that_ignores_ranges_is_not_allowed_to_send_everything(
    folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.fail(hub_server.ignore_range, WEIGHTS, port="cdn", times=1000)
    with pytest.raises(
        HubError,
        match=r"ignores byte ranges and would send all 0\.0 GB of 'model\.safetensors'; download the mod",
    ):
        headspan.open("org/tiny")
    monkeypatch.setattr("headspan.checkpoint.hub.download.SPARE_BYTES", 10**9)
    assert agree(folder, heads_from_the_hub())


def test_a_file_that_changes_between_list_and_reading_is_refused(folder: Path, hub: HubServer) -> None:
    hub.fail(hub_server.another_etag, WEIGHTS, port="hub")
    with pytest.raises(HubError, match=r"'model\.safetensors' of 'org/tiny' is not the file that the Hub listed"):
        headspan.open("org/tiny")


def test_a_small_file_that_is_not_the_listed_one_is_refused(folder: Path, hub: HubServer) -> None:
    hub.repositories["org/tiny"].listing()
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace("192", "193"))
    hub.fail(lambda request: request.answer(200, {}, request.content()), "config.json", times=9)
    with pytest.raises(HubError, match=r"what 127.+ sent as 'config\.json' is not the file it lists"):
        headspan.open("org/tiny")


LISTINGS = {
    "a web page": (hub_server.web_page, r"like the Hub \(the list of files cannot be read as JSON"),
    "nested lists": (
        hub_server.garbled_json,
        r"like the Hub \(the list of files cannot be read as JSON",
    ),
    "an endless answer": (hub_server.endless, r"sends more than the 4,194,304 bytes that were to come"),
    "a redirect to itself": (hub_server.redirect_to_itself, r"it redirects more than 5 times"),
    "nothing": (hub_server.status(204), r"it answered 204|cannot be read as JSON"),
    "not found": (
        hub_server.status(404),
        r"folder 'org/tiny' here, and 127.+ has no model 'org/tiny' that",
    ),
    "forbidden": (hub_server.status(403), r"forbids reading 'org/tiny'; check that your token may read it"),
    "a refused token": (
        hub_server.status(401, x_error_message="Invalid credentials in Authorization header"),
        r"does not accept the token; log in again",
    ),
    "a teapot": (hub_server.status(418), r"answered 418 for 'org/tiny'; try again later"),
}


@pytest.mark.parametrize("name", LISTINGS)
def test_an_answer_that_is_no_list_of_files_is_one_sentence(
    name: str, folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headspan.checkpoint.hub.opening.MAX_JSON_BYTES", 4 * 2**20)
    behaviour, message = LISTINGS[name]
    hub.fail(behaviour, "/api/models", times=1000)
    with pytest.raises(HubError, match=message) as refusal:
        headspan.open("org/tiny")
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
        headspan.open("org/tiny")


def test_a_missing_model_revision_or_file_is_one_sentence(folder: Path, hub: HubServer) -> None:
    with pytest.raises(
        HubError,
        match=r"there is no file or folder 'org/none' here, and 127\S+ has no model 'org/none' that",
    ):
        headspan.open("org/none")
    with pytest.raises(HubError, match=r"'org/tiny' has no revision 'v9'; its page at 127\S+ lists its branches"):
        headspan.open("org/tiny@v9")
    hub.fail(hub_server.status(404, x_error_code="EntryNotFound"), WEIGHTS)
    with pytest.raises(HubError, match=r"has no file 'model\.safetensors', though its list of files names it"):
        headspan.open("org/tiny")


def test_a_gated_model_is_one_sentence_and_opens_with_a_token(
    folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["org/tiny"].gated = True
    with pytest.raises(HubError, match=r"'org/tiny' is gated: accept its terms on its page at 127.+`hf auth login`"):
        headspan.open("org/tiny")
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
        headspan.open("org/tiny")
    assert time.monotonic() - begun < 3


def test_offline_is_one_sentence(folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        HubError, match=r"there is no file or folder 'gpt2' here, and the Hub may not be asked .*HF_HUB_OFFLINE is set"
    ):
        headspan.open("gpt2")
    assert hub.seen == []


@pytest.mark.parametrize(
    "text", ["./org/tiny", "a/b/c", "/no/such", "~/none", "x.safetensors", "a b", "org/tiny@../x", ""]
)
def test_what_cannot_be_a_name_is_not_asked_for(text: str, folder: Path, hub: HubServer) -> None:
    with pytest.raises(HeadspanError, match=r"there is no file or folder|holds no model"):
        headspan.open(text)
    assert hub.seen == []


def test_a_link_that_expires_is_asked_for_again(folder: Path, hub: HubServer) -> None:
    checkpoint = headspan.open("org/tiny")
    hub.fail(hub_server.status(403), WEIGHTS, port="cdn")
    hub.forget()
    assert agree(folder, all_heads(checkpoint.heads()))
    assert [seen.port for seen in hub.seen][:3] == ["cdn", "hub", "cdn"]


def test_the_token_goes_to_the_hub_and_not_where_it_leads(
    folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    caplog.set_level(logging.DEBUG)
    for name in ("huggingface_hub", "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.DEBUG)
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    checkpoint = headspan.open("org/tiny")
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


def test_a_token_is_not_sent_where_the_list_of_files_leads(
    folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    for other in (hub.cdn_url, hub.url.replace("127.0.0.1", "localhost")):
        hub.forget()
        hub.fail(hub_server.redirect_to(f"{other}/elsewhere"), "/api/models")
        with pytest.raises(HubError, match="has no model"):
            headspan.open("org/tiny")
        assert ["Authorization" in seen.headers for seen in hub.seen] == [True, False]


@pytest.mark.parametrize("name", ["a connection dropped at once", "a server that stalls", "unavailable"])
def test_no_error_shows_the_token(name: str, folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    hub.fail(PASSING[name], WEIGHTS, times=1000)
    with pytest.raises(HubError, match="failed again and again") as refusal:
        headspan.open("org/tiny")
    problem: BaseException | None = refusal.value
    while problem is not None:
        shown = traceback.TracebackException.from_exception(problem, capture_locals=True)
        assert SECRET not in "".join(shown.format())
        assert SECRET not in repr(problem)
        problem = problem.__cause__ or problem.__context__


def test_a_reading_that_was_stopped_goes_on_where_it_stood(
    folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extents, "PIECE_BYTES", 2**16)
    checkpoint = headspan.open("org/tiny")
    stopped = 0

    def stop(chunk_bytes: int) -> None:
        nonlocal stopped
        stopped += chunk_bytes
        if stopped > 200_000:
            raise KeyboardInterrupt

    class Bar:
        def __enter__(self) -> object:
            return stop

        def __exit__(self, *_: object) -> None:
            return None

    with monkeypatch.context() as patch:
        patch.setattr(ranged_file, "progress_bar", lambda label, total: Bar())
        with pytest.raises(KeyboardInterrupt):
            _ = checkpoint.heads().W_Q
    hub.forget()
    again = headspan.open("org/tiny").heads().W_Q
    assert torch.equal(again, headspan.open(folder).heads().W_Q)
    whole = sum(info.n_bytes for name, info in checkpoint.store.infos.items() if "q_proj" in name)
    assert hub.sent(WEIGHTS) <= whole - 200_000 + 4096


@pytest.mark.parametrize("damage", ["shortened", "changed", "emptied"])
def test_a_damaged_piece_of_the_cache_is_read_again(damage: str, folder: Path, hub: HubServer) -> None:
    first = heads_from_the_hub()
    pieces = sorted(Path(constants.HF_ASSETS_CACHE).glob("headspan/*/ranges/*/*"))
    for path in pieces:
        content = bytearray(path.read_bytes())
        if damage == "changed":
            content[len(content) // 2] ^= 1
        path.write_bytes({"shortened": content[:-1], "changed": content, "emptied": b""}[damage])
    hub.forget()
    assert all(torch.equal(a, b) for a, b in zip(first, heads_from_the_hub(), strict=True))
    assert hub.sent(WEIGHTS) > 0
    hub.forget()
    heads_from_the_hub()
    assert hub.sent(WEIGHTS) == 0


def test_a_cache_that_cannot_be_written_is_done_without(
    folder: Path, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / "file"))
    assert agree(folder, heads_from_the_hub())
    with pytest.raises(HubError, match=r"'config\.json' cannot be written to .* set HF_HOME"):
        _ = headspan.open("org/tiny").folder


def test_two_processes_at_once_do_not_spoil_the_cache(folder: Path, hub: HubServer, tmp_path: Path) -> None:
    program = (
        "import hashlib, headspan\n"
        "heads = headspan.open('org/tiny').heads()\n"
        "content = b''.join(w.numpy().tobytes() for w in (heads.W_Q, heads.W_K, heads.W_V, heads.W_O, heads.W_E))\n"
        "print(hashlib.sha256(content).hexdigest())"
    )
    environment = hub_environment(hub, tmp_path / "shared-home")
    running = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    printed = {process.communicate(timeout=60)[0] for process in running}
    assert len(printed) == 1
    assert re.fullmatch(r"[0-9a-f]{64}\n", printed.pop())
    hub.forget()
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, timeout=60)
    assert hub.sent(WEIGHTS) == 0
    assert list((tmp_path / "shared-home").rglob(".*-*")) == []


def test_the_command_line_reads_from_the_hub(folder: Path, hub: HubServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headspan", "inspect", f"org/tiny@{COMMIT}"]
    done = subprocess.run(
        command, env=hub_environment(hub, tmp_path / "home"), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "Size on the Hub" in done.stdout
    missing = [sys.executable, "-m", "headspan", "inspect", "org/none"]
    done = subprocess.run(
        missing, env=hub_environment(hub, tmp_path / "home"), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"headspan: there is no file or folder 'org/none' here, and .+\n", done.stderr)


def test_inspecting_a_model_on_the_hub_does_not_load_torch(folder: Path, hub: HubServer, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from headspan.cli.main import app\n"
        "app(['inspect', sys.argv[1]], standalone_mode=False)\n"
        "print([name for name in ('torch', 'numpy', 'safetensors', 'huggingface_hub') if name in sys.modules])"
    )
    for model, loaded in (("org/tiny", "['huggingface_hub']"), ("demo", "[]")):
        done = subprocess.run(
            [sys.executable, "-c", program, model],
            env=hub_environment(hub, tmp_path / "home"),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.splitlines()[-1] == loaded


@pytest.mark.parametrize("piped", [False, True], ids=["terminal", "pipe"])
def test_a_bar_is_drawn_on_a_terminal_only(piped: bool, folder: Path, hub: HubServer, tmp_path: Path) -> None:
    program = "import headspan; assert headspan.open('org/tiny').heads().W_E.shape == (6000, 192)"
    ours, theirs = os.openpty()
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**hub_environment(hub, tmp_path / "home"), "TERM": "xterm", "COLUMNS": "120"},
        stdout=subprocess.PIPE if piped else theirs,
        stderr=theirs,
        check=True,
        timeout=60,
    )
    os.write(theirs, b"end")
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    os.close(theirs)
    assert not done.stdout
    assert ("org/tiny: model.safetensors" in shown) is not piped
    assert (shown == "end") is piped


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
        headspan.open("org/bad")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500
    assert not (folder / "code-ran").exists()
    assert hub.sent() < 40 * 2**20
