"""A Hub on loopback: the few answers of the real one that headspan asks for, and every way to get them wrong.

Two ports: the Hub, which lists files, serves small ones and redirects to large ones, and the host it redirects to.
Every request is written down with the bytes that were sent for it. Faults are scripted: each has a condition, a
behaviour and a number of times. The servers end with the `with` block; their threads are daemons.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".safetensors", ".bin", ".gguf")


@dataclass
class Repository:
    """The files of one commit, and who may see them."""

    folder: Path
    commit: str = COMMIT
    revisions: tuple[str, ...] = ("main",)
    gated: bool = False
    digests: dict[str, str] = field(default_factory=dict)
    """Content hashes by name, for files that are too large to be hashed."""

    def digest(self, name: str) -> str:
        if name not in self.digests:
            content = (self.folder / name).read_bytes()
            large = name.endswith(LARGE)
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            self.digests[name] = hashlib.sha256(content).hexdigest() if large else blob
        return self.digests[name]

    def listing(self) -> dict[str, Any]:
        siblings = []
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            name = path.relative_to(self.folder).as_posix()
            size, digest = path.stat().st_size, self.digest(name)
            entry: dict[str, Any] = {"rfilename": name, "size": size, "blobId": digest[:40]}
            if path.name.endswith(LARGE):
                entry["lfs"] = {"size": size, "sha256": digest, "pointerSize": 134}
            siblings.append(entry)
        return {"id": "x", "sha": self.commit, "siblings": siblings}


@dataclass
class Seen:
    """One request as the server saw it."""

    port: str
    """`hub` or `cdn`."""
    method: str
    path: str
    headers: dict[str, str]
    sent: int = 0


@dataclass
class Request:
    """What a behaviour may use: the handler and the bytes that would be right."""

    handler: BaseHTTPRequestHandler
    seen: Seen
    file: Path | None = None
    start: int = 0
    end: int = 0

    def content(self) -> bytes:
        assert self.file is not None
        with self.file.open("rb") as file:
            file.seek(self.start)
            return file.read(self.end - self.start)

    def head(self, status: int, headers: dict[str, object]) -> None:
        self.handler.send_response(status)
        for name, value in headers.items():
            self.handler.send_header(name, str(value))
        self.handler.end_headers()

    def body(self, content: bytes) -> None:
        if self.seen.method != "HEAD":
            # Counted first: a client that has the bytes may look at the count at once.
            self.seen.sent += len(content)
            self.handler.wfile.write(content)
            self.handler.wfile.flush()

    def answer(self, status: int, headers: dict[str, object], content: bytes = b"") -> None:
        self.head(status, {"Content-Length": len(content), **headers})
        self.body(content)

    def range_headers(self) -> dict[str, object]:
        assert self.file is not None
        total = self.file.stat().st_size
        return {"Content-Length": self.end - self.start, "Content-Range": f"bytes {self.start}-{self.end - 1}/{total}"}

    def hang_up(self) -> None:
        self.handler.close_connection = True
        self.handler.connection.shutdown(socket.SHUT_RDWR)


Behaviour = Callable[[Request], None]


@dataclass
class Fault:
    condition: Callable[[Seen], bool]
    behaviour: Behaviour
    times: int


class HubServer:
    """Both ports, the repositories, what was asked and what is to go wrong."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.seen: list[Seen] = []
        self.faults: list[Fault] = []
        self.ports = {role: _server(self, role) for role in ("hub", "cdn")}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['hub'].server_address[1]}"

    @property
    def cdn_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['cdn'].server_address[1]}"

    def add(self, name: str, folder: Path, **options: Any) -> Repository:
        self.repositories[name] = Repository(folder, **options)
        return self.repositories[name]

    def at(self, name: str, revision: str) -> Repository | None:
        """The repository of that name, or of several added as `name@revision` the one that has the revision."""
        for key, repository in self.repositories.items():
            if key.partition("@")[0] == name and revision in (*repository.revisions, repository.commit):
                return repository
        return next((found for key, found in self.repositories.items() if key.partition("@")[0] == name), None)

    def fail(self, behaviour: Behaviour, where: str = "", port: str | None = None, times: int = 1) -> None:
        """From now on, answer the next requests whose path holds `where` with `behaviour`."""
        self.faults.append(Fault(lambda seen: where in seen.path and port in (None, seen.port), behaviour, times))

    def sent(self, where: str = "") -> int:
        return sum(seen.sent for seen in self.seen if where in seen.path)

    def forget(self) -> None:
        self.seen.clear()

    def behaviour(self, seen: Seen) -> Behaviour | None:
        for fault in self.faults:
            if fault.times > 0 and fault.condition(seen):
                fault.times -= 1
                return fault.behaviour
        return None


@contextmanager
def hub_server() -> Iterator[HubServer]:
    """A Hub that runs until the block ends."""
    server = HubServer()
    threads = [threading.Thread(target=port.serve_forever, args=(0.02,), daemon=True) for port in server.ports.values()]
    for thread in threads:
        thread.start()
    try:
        yield server
    finally:
        for port in server.ports.values():
            port.shutdown()
            port.server_close()


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of the tests."""


def _server(hub: HubServer, role: str) -> _QuietServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 20
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            seen = Seen(role, self.command, unquote(self.path), dict(self.headers.items()))
            hub.seen.append(seen)
            respond(hub, Request(self, seen))

        do_HEAD = do_GET  # noqa: N815 - the name http.server asks for

        def log_message(self, *_: Any) -> None:
            """Tests print nothing."""

    return _QuietServer(("127.0.0.1", 0), Handler)


def respond(hub: HubServer, request: Request) -> None:
    path = urlsplit(request.seen.path).path
    if path.startswith("/api/models/"):
        _respond_listing(hub, request, path.removeprefix("/api/models/"))
    elif "/resolve/" in path:
        _respond_file(hub, request, path.lstrip("/"))
    else:
        request.answer(404, {})


def _respond_listing(hub: HubServer, request: Request, path: str) -> None:
    behaviour = hub.behaviour(request.seen)
    name, _, revision = path.partition("/revision/")
    repository = hub.at(name, revision)
    if behaviour is not None:
        behaviour(request)
    elif repository is None:
        request.answer(401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
    elif revision not in (*repository.revisions, repository.commit):
        request.answer(404, {"X-Error-Code": "RevisionNotFound"})
    else:
        request.answer(200, {"Content-Type": "application/json"}, json.dumps(repository.listing()).encode())


def _respond_file(hub: HubServer, request: Request, path: str) -> None:
    name, _, rest = path.partition("/resolve/")
    revision, _, file_name = rest.partition("/")
    repository = hub.at(name, revision) or hub.repositories[name]
    request.file = repository.folder / file_name
    if repository.gated and "Authorization" not in request.seen.headers and request.seen.port == "hub":
        request.answer(401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to the model is restricted"})
        return
    size = request.file.stat().st_size
    asked = request.seen.headers.get("Range", "").removeprefix("bytes=")
    first, _, last = asked.partition("-")
    request.start, request.end = (int(first), min(int(last) + 1, size)) if asked else (0, size)
    behaviour = hub.behaviour(request.seen)
    digest = repository.digest(file_name)
    linked = {"X-Repo-Commit": repository.commit, "X-Linked-Etag": f'"{digest}"', "X-Linked-Size": size}
    if behaviour is not None:
        behaviour(request)
    elif file_name.endswith(LARGE) and request.seen.port == "hub":
        request.answer(302, {**linked, "Location": f"{hub.cdn_url}{request.seen.path}?signed=1"})
    else:
        tag = {"ETag": f'"{digest}"', "X-Repo-Commit": repository.commit} if request.seen.port == "hub" else {}
        send(request, 206 if asked else 200, request.range_headers() if asked else {"Content-Length": size}, tag)


def send(request: Request, status: int, headers: dict[str, object], tag: dict[str, str]) -> None:
    request.head(status, {**headers, **tag})
    step, end = 2**20, request.end
    for start in range(request.start, end, step):
        request.start, request.end = start, min(start + step, end)
        request.body(request.content())
