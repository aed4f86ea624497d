"""What was read stays read: after an interruption, beside other processes, and where pieces are damaged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from headspan.checkpoint import open_checkpoint
from headspan.checkpoint.hub import cache, ranged_file
from headspan.errors import DamagedFile, HubError
from tests.robustness.hub_model import WEIGHTS, agree, heads_from_the_hub
from tests.robustness.hub_server import HubServer
from tests.robustness.local_hub import hub_environment


def test_a_reading_that_was_stopped_goes_on_where_it_stood(
    folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "PIECE_BYTES", 2**16)
    checkpoint = open_checkpoint("org/tiny")
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
    again = open_checkpoint("org/tiny").heads().W_Q
    assert torch.equal(again, open_checkpoint(folder).heads().W_Q)
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
    with pytest.warns(DamagedFile, match="a cached piece of a Hub file, .* is damaged; it is read again"):
        again = heads_from_the_hub()
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
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
        _ = open_checkpoint("org/tiny").folder


@pytest.mark.slow
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
    printed = {process.communicate(timeout=300)[0] for process in running}
    assert len(printed) == 1
    assert re.fullmatch(r"[0-9a-f]{64}\n", printed.pop())
    hub.forget()
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, timeout=300)
    assert hub.sent(WEIGHTS) == 0
    assert list((tmp_path / "shared-home").rglob(".*-*")) == []
