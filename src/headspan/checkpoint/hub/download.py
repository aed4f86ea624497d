"""Bytes of a remote file, asked for until they are there.

1. A range is asked for. The answer's status, Content-Range, length and content hash are held against what the list of
   files says before a byte is used; an answer that contradicts it is an error, not a reason to ask again.
2. A connection that breaks, stalls or is put off is followed by another attempt after a wait, from the byte that was
   reached. Waits grow; the number of failures in a row is bounded.
3. The host that the Hub leads to is remembered until it refuses, for its links expire.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from huggingface_hub import hf_hub_url

from headspan.checkpoint.hub.attempts import Attempts, check_put_off
from headspan.checkpoint.hub.connection import Answer, Connection
from headspan.checkpoint.hub.failures import Interrupted, ignores_ranges, not_the_hub, refusal, wrong_bytes
from headspan.checkpoint.hub.listing import ListedFile
from headspan.errors import HubError

CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
SPARE_BYTES = 4 * 2**20
"""A server that ignores ranges is put up with where no more than this is transferred for nothing."""


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
                attempts.failed(problem, position - reached)
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
