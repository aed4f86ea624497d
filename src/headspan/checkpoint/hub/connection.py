"""Talking to the Hub and to the hosts it leads to: one exchange, and bytes of a file asked for until they are there.

The session, its proxies and certificates are those of `huggingface_hub`. Redirects are followed by hand: the user's
token goes to the Hub's own origin (scheme, host and port) and nowhere else, no redirect leaves https for http, and
their number is bounded. Bodies are read as they come, never unpacked, and counted.

1. A range is asked for. The answer's status, Content-Range, length and content hash are held against what the list of
   files says before a byte is used; an answer that contradicts it is an error, not a reason to ask again.
2. A connection that breaks, stalls or is put off is followed by another attempt after a wait, from the byte that was
   reached. Waits grow; the number of failures in a row is bounded.
3. The host that the Hub leads to is remembered until it refuses, for its links expire.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial

import httpx2
from huggingface_hub import __version__ as huggingface_hub_version
from huggingface_hub import constants, get_session, get_token, hf_hub_url
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import parse_ratelimit_headers

from headspan._version import __version__
from headspan.checkpoint.hub import patience as limits
from headspan.checkpoint.hub.cache import ByteRange, ListedFile
from headspan.checkpoint.hub.patience import (
    LATER,
    OFFLINE,
    Attempts,
    Interrupted,
    Patience,
    Unreachable,
    ignores_ranges,
    not_the_hub,
    refusal,
    within,
    wrong_bytes,
)
from headspan.errors import HubError

USER_AGENT = f"headspan/{__version__}; hf_hub/{huggingface_hub_version}"
REDIRECTS = frozenset({301, 302, 303, 307, 308})
CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
SPARE_BYTES = 4 * 2**20
"""A server that ignores ranges is put up with where no more than this is transferred for nothing."""


class HubToken(httpx2.Auth):
    """The user's token, shown to one origin. Its value is in no repr, and so in no log or trace."""

    def __init__(self, endpoint: str) -> None:
        self._origin = httpx2.URL(endpoint).origin
        self._value = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        if self._value is not None and request.url.origin == self._origin:
            request.headers["Authorization"] = f"Bearer {self._value}"
        yield request


@dataclass(frozen=True, eq=False)
class Answer:
    """A server's answer, its body not yet read."""

    url: str
    from_hub: bool
    response: httpx2.Response
    hub_headers: httpx2.Headers
    """Headers of the Hub's own answer: this one, or the redirect that led here."""
    connection: Connection

    @property
    def host(self) -> str:
        return httpx2.URL(self.url).netloc.decode("ascii")

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def headers(self) -> httpx2.Headers:
        return self.response.headers

    def chunks(self, most: int) -> Iterator[bytes]:
        """The body as it arrives; more than `most` bytes, or too slow a trickle, end it."""
        if self.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise not_the_hub(self.host, "it packs its answers though it was asked not to")
        begun, received, patience = time.monotonic(), 0, self.connection.patience
        for chunk in self.response.iter_raw():
            received += len(chunk)
            self.connection.bytes_transferred += len(chunk)
            if received > most:
                raise HubError(
                    f"{self.host} sends more than the {most:,} bytes that were to come; it cannot be trusted"
                )
            yield chunk
            elapsed = time.monotonic() - begun
            if elapsed > patience.grace and received < elapsed * patience.slowest:
                raise Interrupted(f"it sent {received:,} bytes in {elapsed:.0f} s")


@dataclass(eq=False)
class Connection:
    """A Hub, and how to talk to it."""

    endpoint: str
    patience: Patience
    token: HubToken | None = None
    bytes_transferred: int = 0

    @classmethod
    def to_the_hub(cls) -> Connection:
        """The Hub of `HF_ENDPOINT`, with the user's token."""
        try:
            token = HubToken(constants.ENDPOINT)
        except (httpx2.InvalidURL, ValueError):
            raise HubError(f"HF_ENDPOINT is '{constants.ENDPOINT:.80}', which is not the address of a server") from None
        return cls(constants.ENDPOINT, limits.PATIENCE, token=token)

    @property
    def host(self) -> str:
        return httpx2.URL(self.endpoint).netloc.decode("ascii")

    @contextmanager
    def answer(self, url: str, byte_range: ByteRange | None = None) -> Iterator[Answer]:
        """What `url` answers to GET, or where it leads; with the whole body or one range of it to be read."""
        headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
        if byte_range is not None:
            headers["Range"] = f"bytes={byte_range[0]}-{byte_range[1] - 1}"
        hub_headers = httpx2.Headers()
        for _ in range(self.patience.redirects + 1):
            with self._exchange(url, headers) as response:
                from_hub = response.url.origin == httpx2.URL(self.endpoint).origin
                hub_headers = response.headers if from_hub and "X-Linked-Etag" not in hub_headers else hub_headers
                if response.status_code not in REDIRECTS or "Location" not in response.headers:
                    yield Answer(url, from_hub, response, hub_headers, self)
                    return
                url = _redirect_target(response)
        raise not_the_hub(self.host, f"it redirects more than {self.patience.redirects} times")

    @contextmanager
    def _exchange(self, url: str, headers: dict[str, str]) -> Iterator[httpx2.Response]:
        try:
            with closing(
                within(self.patience.beginning, partial(self._begin, url, headers), httpx2.Response.close)
            ) as response:
                yield response
        except OfflineModeIsEnabled:
            raise Unreachable(OFFLINE) from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as problem:
            raise Interrupted(_reason(problem), connected=False) from None
        except httpx2.TimeoutException:
            raise Interrupted(f"it was silent for {self.patience.silence:g} s") from None
        except TimeoutError:
            raise Interrupted(f"it did not begin to answer in {self.patience.beginning:g} s") from None
        except (httpx2.NetworkError, httpx2.RemoteProtocolError) as problem:
            raise Interrupted(_reason(problem)) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ValueError) as problem:
            raise not_the_hub(self.host, _reason(problem)) from None

    def _begin(self, url: str, headers: dict[str, str]) -> httpx2.Response:
        """The answer to one request, as far as its headers."""
        session = get_session()
        request = session.build_request("GET", url, headers=headers, timeout=self.patience.silence)
        return session.send(request, auth=self.token, stream=True, follow_redirects=False)


def _redirect_target(response: httpx2.Response) -> str:
    """Where a redirect leads; never from https to http."""
    target = response.url.join(response.headers["Location"])
    if target.scheme not in {"https", response.url.scheme} or not target.host:
        raise not_the_hub(response.url.host, f"it redirects to the address '{str(target)[:60]}'")
    return str(target)


def _reason(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__)[:120]


def check_put_off(answer: Answer) -> None:
    """Raise `Interrupted` where a server says: not now, and how long it asks to wait if it says so in seconds."""
    if answer.status not in LATER:
        return
    limit, stated = parse_ratelimit_headers(answer.headers), answer.headers.get("Retry-After", "").strip()
    if limit is not None and limit.remaining == 0:
        # Bounded before it becomes a float: the header may hold a number of a thousand digits.
        wait: float | None = float(min(limit.reset_in_seconds, 10**9))
    else:
        wait = float(stated) if stated.isdecimal() and len(stated) < 10 else None
    raise Interrupted(f"it answered {answer.status}", wait=wait)


@dataclass(eq=False)
class Download:
    """One file of one commit, on the Hub or where the Hub leads."""

    connection: Connection
    repo: str
    commit: str
    file: ListedFile
    _location: str | None = field(default=None, repr=False)
    """Where the Hub led last time: a link that is signed and expires."""

    @property
    def url(self) -> str:
        return hf_hub_url(self.repo, self.file.name, revision=self.commit, endpoint=self.connection.endpoint)

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        """Bytes `start` up to `end`, in order, exactly."""
        position = reached = start
        attempts = Attempts(self.connection.patience, f"'{self.file.name}'", self.connection.host)
        while position < end:
            try:
                for chunk in self._once(position, end):
                    position += len(chunk)
                    yield chunk
            except Interrupted as problem:
                attempts.wait(problem, position - reached)
                reached = position

    def _once(self, start: int, end: int) -> Iterator[bytes]:
        """What one answer gives of `start` up to `end`; at least one byte, or `Interrupted`."""
        remembered, whole = self._location, (start, end) == (0, self.file.size)
        with self.connection.answer(remembered or self.url, None if whole else (start, end)) as answer:
            if remembered is not None and answer.status in {401, 403, 404, 410}:
                self._location = None
                raise Interrupted(f"{answer.host} answered {answer.status}, its link has expired")
            skipped, length = self._check(answer, start, end)
            self._location = None if answer.from_hub else answer.url
            received = 0
            for chunk in answer.chunks(skipped + length if answer.status == 206 else self.file.size):
                useful = chunk[max(0, skipped - received) : skipped + length - received]
                received += len(chunk)
                if useful:
                    yield useful
                if received >= skipped + length and answer.status == 200:
                    return
            if received < skipped + length:
                raise Interrupted(f"its answer ended after {received:,} of {skipped + length:,} bytes")

    def _check(self, answer: Answer, start: int, end: int) -> tuple[int, int]:
        """How many bytes of the body to pass over, and how many to take after them."""
        check_put_off(answer)
        self._check_same_content(answer)
        if answer.status == 206:
            return 0, self._ranged_length(answer, start, end)
        if answer.status == 200:
            return self._whole_file(answer, start, end)
        if answer.status == 416:
            raise wrong_bytes(answer.host, self.file.name, "that there are no such bytes", f"{start}..{end}")
        if answer.status >= 400 and answer.from_hub:
            raise refusal(answer.status, answer.headers, self.repo, self.commit, self.file.name, answer.host)
        raise not_the_hub(answer.host, f"it answered {answer.status} for '{self.file.name}'")

    def _ranged_length(self, answer: Answer, start: int, end: int) -> int:
        stated = answer.headers.get("Content-Range", "")
        match = CONTENT_RANGE.fullmatch(stated)
        first, last, total = match.groups() if match else ("-1", "-1", "*")
        if int(first) != start or not start <= int(last) < end or total not in {"*", str(self.file.size)}:
            asked = f"{start}-{end - 1}/{self.file.size}"
            raise wrong_bytes(answer.host, self.file.name, f"'{stated[:60]}'", f"'bytes {asked}'")
        length = int(last) + 1 - start
        self._check_length(answer, length)
        return length

    def _whole_file(self, answer: Answer, start: int, end: int) -> tuple[int, int]:
        if "html" in answer.headers.get("Content-Type", "") and not self.file.name.endswith(".html"):
            raise not_the_hub(answer.host, f"it sent a web page for '{self.file.name}'")
        self._check_length(answer, self.file.size)
        if start + self.file.size - end > SPARE_BYTES:
            raise ignores_ranges(answer.host, self.file.name, self.file.size, self.repo)
        return start, end - start

    def _check_length(self, answer: Answer, expected: int) -> None:
        stated = answer.headers.get("Content-Length")
        if stated is not None and stated != str(expected):
            raise wrong_bytes(answer.host, self.file.name, f"{stated[:20]} bytes", f"{expected:,} bytes")

    def _check_same_content(self, answer: Answer) -> None:
        """Hold the hash that the Hub sends with the file against the one in its list of files."""
        tag = answer.hub_headers.get("X-Linked-Etag") or answer.hub_headers.get("ETag") or ""
        digest = tag.removeprefix("W/").strip('"')
        if answer.status < 400 and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", digest) and digest != self.file.digest:
            raise HubError(
                f"'{self.file.name}' of '{self.repo}' is not the file that the Hub listed (its hash is {digest:.12}, "
                f"not {self.file.digest:.12}); open the model again"
            )
