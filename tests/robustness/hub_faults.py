"""Ways to answer one request that no good server has; each is a behaviour for `HubServer.fail`."""

from __future__ import annotations

import time

from tests.robustness.hub_server import Behaviour, Request, send

STALL_SECONDS = 5.0


def drop_after(n_bytes: int) -> Behaviour:
    """Announce everything, send a part, hang up."""

    def behave(request: Request) -> None:
        request.head(206, request.range_headers())
        request.body(request.content()[:n_bytes])
        request.hang_up()

    return behave


def drop_at_once(request: Request) -> None:
    request.hang_up()


def shorter_than_stated(n_bytes: int) -> Behaviour:
    """A chunked answer that claims the whole range and ends early, in good form."""

    def behave(request: Request) -> None:
        headers = request.range_headers()
        request.head(206, {"Content-Range": headers["Content-Range"], "Transfer-Encoding": "chunked"})
        part = request.content()[:n_bytes]
        request.body(f"{len(part):x}\r\n".encode() + part + b"\r\n0\r\n\r\n")

    return behave


def endless(request: Request) -> None:
    """A chunked answer that claims the range and never ends (until nobody listens, or 64 MB have gone)."""
    request.head(200, {"Transfer-Encoding": "chunked", "Content-Type": "application/json"})
    for _ in range(64):
        request.body(b"100000\r\n" + b" " * 2**20 + b"\r\n")


def ranged(**changes: object) -> Behaviour:
    """A 206 whose headers are changed: `content_range=...`, `content_length=...`; None leaves a header out."""

    def behave(request: Request) -> None:
        given = {name.replace("_", "-").title(): value for name, value in changes.items()}
        headers = {n: v for n, v in {**request.range_headers(), **given}.items() if v is not None}
        request.head(206, headers)
        request.body(request.content())
        request.hang_up()

    return behave


def ignore_range(request: Request) -> None:
    assert request.file is not None
    request.start, request.end = 0, request.file.stat().st_size
    send(request, 200, {"Content-Length": request.end}, {})


def web_page(request: Request) -> None:
    request.answer(200, {"Content-Type": "text/html; charset=utf-8"}, b"<html><body>Please log in</body></html>")


def garbled_json(request: Request) -> None:
    request.answer(200, {"Content-Type": "application/json"}, b"[" * 200_000)


def redirect_to(location: str) -> Behaviour:
    return lambda request: request.answer(302, {"Location": location})


def redirect_to_itself(request: Request) -> None:
    request.answer(302, {"Location": request.handler.path})


def stall(request: Request) -> None:
    """Announce everything, send ten bytes, say nothing more."""
    request.head(206, request.range_headers())
    request.body(request.content()[:10])
    time.sleep(STALL_SECONDS)


def stall_at_once(request: Request) -> None:
    time.sleep(STALL_SECONDS)


def trickle(request: Request) -> None:
    """One byte every fiftieth of a second, for as long as someone listens."""
    request.head(206, request.range_headers())
    for byte in request.content()[: int(STALL_SECONDS * 50)]:
        request.body(bytes([byte]))
        time.sleep(0.02)


def trickle_headers(request: Request) -> None:
    """Headers one byte at a time, so that no silence is ever long."""
    for byte in b"HTTP/1.1 206 OK\r\nX-Slow: " + b"x" * int(STALL_SECONDS * 5):
        request.handler.wfile.write(bytes([byte]))
        time.sleep(0.1)


def status(code: int, **headers: object) -> Behaviour:
    named = {name.replace("_", "-").title(): value for name, value in headers.items()}
    return lambda request: request.answer(code, named, b"no")


def another_etag(request: Request) -> None:
    request.head(206, {**request.range_headers(), "ETag": '"' + "ee" * 32 + '"'})
    request.body(request.content())


def not_http(request: Request) -> None:
    request.body(b"220 mail.example ESMTP\r\n")
    request.hang_up()
