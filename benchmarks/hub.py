"""Reading from the Hub: what is transferred, and what it costs against a plain download of the same bytes.

A Mistral-7B-shaped sharded checkpoint (sparse, 14.5 GB) behind a server on loopback that answers like the Hub.

- Bytes and requests of `open` (all that `inspect` needs) and of all heads of one layer, as shares of the whole.
- Time to read one layer's attention, cache empty and cache filled, against one plain GET of as many bytes to a file.
- What one request costs, as the number of bytes that arrive in that time: ranges closer than that are better joined.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx2
import pytest
import torch
from huggingface_hub import close_session

import headspan
from benchmarks.sparse_checkpoint import MISTRAL_7B, write_sparse_checkpoint
from headspan.checkpoint import Checkpoint
from headspan.checkpoint.hub import patience
from headspan.checkpoint.hub.patience import Patience
from tests.robustness.hub_server import HubServer, hub_server
from tests.robustness.local_hub import use_hub

ROUNDS = 5


def main() -> None:
    """Print every figure with its target."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, hub_server() as server, pytest.MonkeyPatch.context() as patch:
        folder = Path(name) / "model"
        folder.mkdir()
        write_sparse_checkpoint(folder, MISTRAL_7B)
        digests = {path.name: f"{number:064x}" for number, path in enumerate(sorted(folder.glob("*.safetensors")))}
        server.add("org/seven", folder, digests=digests)
        homes = (Path(name) / f"home-{number}" for number in itertools.count())

        def opened() -> Checkpoint:
            """The model with an empty cache."""
            use_hub(server, next(homes), patch)
            patch.setattr(patience, "PATIENCE", Patience())
            return headspan.open("org/seven").checkpoint

        checkpoint = opened()
        _transferred(server, checkpoint)
        _timed(server, opened, Path(name) / "plain")
        _request_cost(server)
        close_session()


def _transferred(server: HubServer, checkpoint: Checkpoint) -> None:
    whole = checkpoint.store.bytes_on_disk or 0
    _show(server, "open (inspect)", whole, "target < 0.01 %")
    server.forget()
    checkpoint.heads(layers=[3]).layer(3)
    _show(server, "all heads of one layer", whole, "target < 0.6 %")
    exact = sum(i.n_bytes for n, i in checkpoint.store.infos.items() if ".layers.3.self_attn." in n)
    print(f"  transferred / attention of that layer: {server.sent('.safetensors') / exact:.4f} (target < 1.01)")


def _show(server: HubServer, what: str, whole: int, target: str) -> None:
    sent, requests = server.sent(), len(server.seen)
    print(f"{what}: {sent / 1e6:.2f} MB of {whole / 1e9:.2f} GB = {sent / whole:.4%} ({target}), {requests} requests")


def _timed(server: HubServer, opened: Callable[[], Checkpoint], file: Path) -> None:
    url = f"{server.url}/org/seven/resolve/main/model-00001-of-00003.safetensors"
    plain, ours, cached = [], [], []
    for _ in range(ROUNDS):
        store = opened().store
        names = [name for name in store.infos if ".layers.3.self_attn." in name]
        n_bytes = sum(store.infos[name].n_bytes for name in names)
        ours.append(_seconds(partial(store.read, names)))
        cached.append(_seconds(partial(store.read, names)))
        plain.append(_seconds(partial(_plain_get, url, n_bytes, file)))
    print(f"one layer's attention, {n_bytes / 1e6:.0f} MB, cache empty: {min(ours):.3f} s")
    print(
        f"  against a plain download of as many bytes, {min(plain):.3f} s: {min(ours) / min(plain):.2f} (target <= 2)"
    )
    print(f"  from the cache: {min(cached):.3f} s = {min(cached) / min(plain):.2f} of the download (target <= 0.5)")


def _plain_get(url: str, n_bytes: int, file: Path) -> None:
    headers = {"Range": f"bytes=0-{n_bytes - 1}"}
    with httpx2.stream("GET", url, headers=headers, follow_redirects=True) as response, file.open("wb") as target:
        for chunk in response.iter_raw():
            target.write(chunk)


def _request_cost(server: HubServer) -> None:
    url = f"{server.cdn_url}/org/seven/resolve/main/model-00001-of-00003.safetensors"
    with httpx2.Client() as client:
        small, large = (
            min(_seconds(partial(client.get, url, headers={"Range": f"bytes=0-{n - 1}"})) for _ in range(20))
            for n in (1, 16 * 2**20)
        )
    rate = 16 * 2**20 / (large - small)
    print(f"one request: {small * 1e3:.1f} ms; {rate * small / 1e6:.2f} MB arrive meanwhile, at {rate / 1e6:.0f} MB/s")


def _seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
