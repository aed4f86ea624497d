"""Every way in which reading from the Hub fails, as one sentence that says what to do."""

from __future__ import annotations

from collections.abc import Mapping

from headspan.errors import HubError

OFFLINE = "the Hub may not be asked for what is not in the cache (HF_HUB_OFFLINE is set); unset it, or give a folder"
LATER = "; try again later"


class Unreachable(HubError):
    """No server answered; what is in the cache may serve instead."""


class NoSuchModel(HubError):
    """The Hub knows no model of that name, or does not show it to this user."""


class Interrupted(Exception):
    """An exchange that ended early or was put off; another attempt may succeed."""

    def __init__(self, reason: str, wait: float | None = None, connected: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.wait, self.connected = reason, wait, connected


def given_up(what: str, host: str, problem: Interrupted) -> HubError:
    """The last failure of several, as what the user is told."""
    if not problem.connected:
        return Unreachable(f"{host} cannot be reached ({problem.reason}); check the connection, or give a folder")
    return HubError(f"reading {what} from {host} failed again and again ({problem.reason}); try again to resume")


def refusal(status: int, headers: Mapping[str, str], repo: str, revision: str, name: str, host: str) -> HubError:
    """What an answer of the Hub with an error status means for the user."""
    code = headers.get("X-Error-Code", "")
    message = headers.get("X-Error-Message", "")
    if code == "GatedRepo":
        return HubError(
            f"'{repo}' is gated: accept its terms on its page at {host}, then log in with `hf auth login` (or HF_TOKEN)"
        )
    if code == "RevisionNotFound":
        return HubError(f"'{repo}' has no revision '{revision}'; its page at {host} lists its branches and tags")
    if code == "EntryNotFound":
        return HubError(f"'{repo}' at {revision:.12} has no file '{name}', though its list of files names it{LATER}")
    if status == 401 and "nvalid" in message:
        return HubError(f"{host} does not accept the token; log in again with `hf auth login`, or unset HF_TOKEN")
    if code == "RepoNotFound" or status in {401, 404}:
        return NoSuchModel(
            f"{host} has no model '{repo}' that you may see; check the name, or log in with `hf auth login`"
        )
    if status == 403:
        return HubError(f"{host} forbids reading '{repo}'; check that your token may read it (`hf auth whoami`)")
    return HubError(f"{host} answered {status} for '{repo}'{LATER}")


def ignores_ranges(host: str, name: str, size: int, repo: str) -> HubError:
    return HubError(
        f"{host} ignores byte ranges and would send all {size / 1e9:.1f} GB of '{name}'; "
        f"download the model (`hf download {repo}`) and open it again"
    )


def wrong_bytes(host: str, name: str, found: str, asked: str) -> HubError:
    return HubError(f"{host} answered {found} of '{name}' where {asked} was asked for; the answer cannot be trusted")


def not_the_hub(host: str, found: str) -> HubError:
    return HubError(f"{host} does not answer like the Hub ({found}); check HF_ENDPOINT, a proxy or a login page")
