"""One exchange with the Hub or with a host it leads to.

The session, its proxies and certificates are those of `huggingface_hub`. Redirects are followed by hand: the user's
token goes to the Hub's own origin (scheme, host and port) and nowhere else, no redirect leaves https for http, and
their number is bounded. Bodies are read as they come, never unpacked, and counted.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial

import httpx2
from huggingface_hub import __version__ as huggingface_hub_version
from huggingface_hub import constants, get_session, get_token
from huggingface_hub.errors import OfflineModeIsEnabled

from headspan._version import __version__
from headspan.checkpoint.hub import patience as limits
from headspan.checkpoint.hub.deadline import within
from headspan.checkpoint.hub.failures import OFFLINE, Interrupted, Unreachable, not_the_hub
from headspan.checkpoint.hub.patience import Patience
from headspan.checkpoint.hub.ranges import ByteRange
from headspan.errors import HubError

USER_AGENT = f"headspan/{__version__}; hf_hub/{huggingface_hub_version}"
REDIRECTS = frozenset({301, 302, 303, 307, 308})


class HubToken(httpx2.Auth):
    """The user's token, shown to one origin. Its value is in no repr, and so in no log or trace."""

    def __init__(self, endpoint: str) -> None:
        self._origin = httpx2.URL(endpoint).origin
        self._value = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        if self._value is not None and request.url.origin == self._origin:
            request.headers["Authorization"] = f"Bearer {self._value}"
        yield request


@dataclass
class Traffic:
    """What has been transferred."""

    n_bytes: int = 0
    n_requests: int = 0


@dataclass(frozen=True, eq=False)
class Answer:
    """A server's answer, its body not yet read."""

    url: str
    from_hub: bool
    response: httpx2.Response
    hub_headers: httpx2.Headers
    """Headers of the Hub's own answer: this one, or the redirect that led here."""
    patience: Patience
    traffic: Traffic

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
        begun, received = time.monotonic(), 0
        for chunk in self.response.iter_raw():
            received += len(chunk)
            self.traffic.n_bytes += len(chunk)
            if received > most:
                raise HubError(
                    f"{self.host} sends more than the {most:,} bytes that were to come; it cannot be trusted"
                )
            yield chunk
            elapsed = time.monotonic() - begun
            if elapsed > self.patience.grace and received < elapsed * self.patience.slowest:
                raise Interrupted(f"it sent {received:,} bytes in {elapsed:.0f} s")


@dataclass(frozen=True, eq=False)
class Connection:
    """A Hub, and how to talk to it."""

    endpoint: str
    patience: Patience
    traffic: Traffic = field(default_factory=Traffic)
    token: HubToken | None = None

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
                    yield Answer(url, from_hub, response, hub_headers, self.patience, self.traffic)
                    return
                url = _redirected(response)
        raise not_the_hub(self.host, f"it redirects more than {self.patience.redirects} times")

    @contextmanager
    def _exchange(self, url: str, headers: dict[str, str]) -> Iterator[httpx2.Response]:
        self.traffic.n_requests += 1
        try:
            with closing(within(self.patience.beginning, partial(self._begun, url, headers), _close)) as response:
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

    def _begun(self, url: str, headers: dict[str, str]) -> httpx2.Response:
        """The answer to one request, as far as its headers."""
        session = get_session()
        request = session.build_request("GET", url, headers=headers, timeout=self.patience.silence)
        return session.send(request, auth=self.token, stream=True, follow_redirects=False)


def _close(response: httpx2.Response) -> None:
    response.close()


def _redirected(response: httpx2.Response) -> str:
    """Where a redirect leads; never from https to http."""
    target = response.url.join(response.headers["Location"])
    if target.scheme not in {"https", response.url.scheme} or not target.host:
        raise not_the_hub(response.url.host, f"it redirects to the address '{str(target)[:60]}'")
    return str(target)


def _reason(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__)[:120]
