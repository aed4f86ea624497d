"""Models on the Hugging Face Hub: how a user names one, and (in the modules) how only the bytes asked for are read.

A name is `org/name`, `org/name@revision`, an old name without an organization, or one of these followed by a GGUF file
of the repository (`org/name/file.gguf`, `org/name/folder/file.gguf@revision`). The modules are loaded when a Hub
name is opened, not before. From the bottom up: `patience` says how long and how often a server is asked, and what the
user is told when it fails; `cache` keeps lists of files and pieces of them on disk; `connection` is one exchange with a
server, repeated until the bytes are there; `ranged_file` is a remote file made of all that; `hub_files` is the
`TensorStore`; `model` opens one by its name.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from headspan.errors import HubError

NAME = r"[A-Za-z0-9_](?:[\w.-]{0,94}[A-Za-z0-9_])?"
REFERENCE = re.compile(rf"((?:{NAME}/)?{NAME})(?:@([\w./+-]{{1,200}}))?", re.ASCII)
GGUF_FILE = re.compile(
    rf"({NAME}/{NAME})/((?:[\w.+-]{{1,96}}/){{0,4}}[\w.+-]{{1,200}}\.gguf)(?:@([\w./+-]{{1,200}}))?", re.ASCII
)
FILE_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".json", ".git")
"""A name that ends so is a file that is not there, not a model."""
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubReference:
    """A model and a revision of it (a branch, a tag or a commit), and the one file that is meant, if it is one."""

    repo: str
    revision: str = "main"
    file: str | None = None

    def __str__(self) -> str:
        return self.repo if self.file is None else f"{self.repo}/{self.file}"

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, which never means anything else later."""
        return COMMIT.fullmatch(self.revision) is not None


def check_endpoint() -> None:
    """Refuse an `HF_ENDPOINT` with a port that no server has, over which `huggingface_hub` cannot even be imported."""
    endpoint = os.environ.get("HF_ENDPOINT", "")
    try:
        _ = urlsplit(endpoint).port
    except ValueError as problem:
        raise HubError(f"HF_ENDPOINT is '{endpoint:.80}', which is not the address of a server: {problem}") from problem


def hub_reference(text: str) -> HubReference | None:
    """What `text` names on the Hub, or None where no model can be called that."""
    file = None
    match = REFERENCE.fullmatch(text)
    if match is None:
        match = GGUF_FILE.fullmatch(text)
        if match is None:
            return None
        file = match[2]
    repo, revision = match[1], match[match.re.groups] or "main"
    if file is not None and ".." in file:
        return None
    if repo.lower().endswith(FILE_ENDINGS) or any(mark in repo for mark in ("--", "..")):
        return None
    if any(part in {"", ".", ".."} for part in revision.split("/")):
        return None
    return HubReference(repo, revision, file)
