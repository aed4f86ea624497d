"""One task's result as one file, written whole or not at all, the same bytes for the same result.

A part is an archive (`headspan.storage`) of all variables of a result. It is written to a temporary name, flushed to
the disk, and renamed; a file that has its name is finished. It holds no time and no name of a machine, so two workers
that do the same task write the same bytes.

Why not Zarr here: a tree of 771 small variables takes 6 s of CPU time to write as Zarr and 0.04 s as one archive, while
the lens that makes it takes 0.1 s. Zarr is written once per series, of all its parts (`groups`).
"""

from __future__ import annotations

import errno
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import xarray as xr

from headspan.errors import HeadspanError, StoreError
from headspan.storage import read_archive, write_archive

SCHEMA = "headspan.sweep-part/2"
TEMPORARY = ".part-"
"""Beginning of the names of files that are not finished."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
OF_THE_SOURCE = ("model", "revision", "before_model", "before_revision")
"""Attributes that say where weights came from. A part belongs to the weights, wherever they lie."""


@dataclass(frozen=True)
class Part:
    """A result by node path (the root is ""), or the reason why there is none; and what was warned of."""

    nodes: Mapping[str, xr.Dataset] = field(default_factory=dict)
    left_out: str = ""
    warnings: Sequence[str] = ()


def part_nodes(data: xr.DataTree) -> dict[str, xr.Dataset]:
    """A result's tree as datasets by path, without the attributes of its source."""
    nodes = {}
    for node in data.subtree:
        dataset = node.to_dataset(inherit=False)
        dataset.attrs = {key: value for key, value in dataset.attrs.items() if key not in OF_THE_SOURCE}
        if dataset.variables or dataset.attrs:
            nodes[node.path.strip("/")] = dataset
    return nodes


def write_part(path: Path, part: Part) -> None:
    """Write a part under its final name."""
    with _new_file(path) as file:
        write_archive(file, part.nodes, schema=SCHEMA, left_out=part.left_out, warnings=list(part.warnings))


def write_text(path: Path, text: str) -> None:
    """Write a small text file in the same way."""
    with _new_file(path) as file:
        file.write(f"{text}\n".encode())


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the name `path` if the block succeeds, all its bytes on the disk, and is removed if not."""
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as problem:
        message = f"cannot write '{path}': {problem.strerror or problem}"
        raise (StoreError if problem.errno in FULL else HeadspanError)(message) from problem
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_part(path: Path) -> Part:
    """A finished part; refused with its name if it is damaged or another version's."""
    try:
        # Opened here: np.load leaves a file that it opened itself open where the archive is damaged.
        with path.open("rb") as file:
            nodes, header = read_archive(file)
        written, left_out, warned = header["schema"], header["left_out"], header["warnings"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as problem:
        raise StoreError(
            f"the result '{path}' is damaged ({problem}); delete it and run the sweep again to compute it anew"
        ) from problem
    if written != SCHEMA:
        raise StoreError(
            f"the result '{path}' is in the format {written!r}, not {SCHEMA!r}; it was left as it is: sweep into "
            "another store"
        )
    return Part(nodes, left_out, warned)


def is_finished(path: Path) -> bool:
    """Whether a part is there with all its bytes: its table of contents, which is written last, can be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "header.npy" in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False
