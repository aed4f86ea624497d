"""The data of a page, each array once: named by its content, packed into archives, read where it is used.

1. What uses data holds a reference `{"@": id}` in its place, with the shape of an array that has more than one axis.
   The id is the hash of the content, so that whatever shows the same numbers names the same bytes.
2. An archive is the bytes of all blocks one after another, packed by gzip, and an index: id, dtype and length of each.
   Bytes of numbers stand sorted by significance (all first bytes, all second bytes, ...), which packs better.
3. A page has two: `core`, which is unpacked at once, and `figures`, which is unpacked when the first figure is drawn
   and refers to the first for what it has already. `assets/store.js` reads them.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from headspan.explorer.html import Markup, element

SMALLEST = 160
"""Lists and objects whose JSON is shorter than this stay where they are: a reference would save nothing."""
WHOLE_TYPES = ("i1", "u1", "i2", "u2", "i4", "u4")
JSON_TYPE = "json"


@dataclass(frozen=True)
class Archive:
    """What a component unpacks."""

    index: list[tuple[str, str, int]]
    """Id, dtype and number of bytes of every block, in order."""
    packed: bytes
    """All of them, by gzip."""


class Store:
    """What a page carries. Filled while figures and tables are written."""

    def __init__(self, first: Store | None = None) -> None:
        self._blocks: dict[str, tuple[str, bytes]] = {}
        self._first = first
        """What is there before this is; it is not kept twice."""

    def __len__(self) -> int:
        return len(self._blocks)

    def array(self, values: np.ndarray) -> dict[str, str]:
        """A reference to an array of numbers.

        Parameters
        ----------
        values
            Any shape. Whole numbers are kept in the smallest type that holds them; float32 and float64 as they are.
        """
        kept = _typed(values)
        reference = self._kept(f"{kept.dtype.kind}{kept.dtype.itemsize}", kept.tobytes())
        return reference if kept.ndim == 1 else {**reference, "shape": ",".join(map(str, kept.shape))}

    def value(self, value: Any) -> dict[str, str]:
        """A reference to a list or an object."""
        return self._kept(JSON_TYPE, json_text(value).encode())

    def figure(self, document: Any) -> Any:
        """A figure's JSON (as plain Python values) with its arrays, long lists and template replaced by references."""
        if isinstance(document, dict):
            if "bdata" in document:
                return self._encoded(document)
            return {key: self.value(part) if key == "template" else self.figure(part) for key, part in document.items()}
        if not isinstance(document, list):
            return document
        if any(isinstance(part, dict) for part in document):
            return [self.figure(part) for part in document]
        return document if len(json_text(document)) < SMALLEST else self.value(document)

    def archive(self) -> Archive:
        """Everything that was asked for, once each."""
        index = [(name, dtype, len(content)) for name, (dtype, content) in self._blocks.items()]
        whole = b"".join(_sorted(dtype, content) for dtype, content in self._blocks.values())
        return Archive(index, gzip.compress(whole, compresslevel=6, mtime=0))

    def blocks(self, name: str, prefix: str = "") -> list[Markup]:
        """The archive as two elements of a page, under this name; the prefix keeps several apart."""
        if not self._blocks:
            return []
        archive = self.archive()
        index = element(
            "script", Markup(json_text(archive.index)), id_=f"{prefix}index-{name}", type_="application/json"
        )
        return [index, packed_text(f"{prefix}archive-{name}", archive.packed)]

    def _encoded(self, array: dict[str, str]) -> dict[str, str]:
        """An array that plotly has written as base64 already."""
        reference = self._kept(array["dtype"], b64decode(array["bdata"]))
        shape = str(array.get("shape", "")).replace(" ", "")
        return {**reference, "shape": shape} if "," in shape else reference

    def _kept(self, dtype: str, content: bytes) -> dict[str, str]:
        digest = sha256(dtype.encode() + content).hexdigest()[:12]
        if self._first is None or digest not in self._first._blocks:
            self._blocks.setdefault(digest, (dtype, content))
        return {"@": digest}


def packed_text(identifier: str, packed: bytes) -> Markup:
    """Packed bytes as text of a page, which no browser runs."""
    return element("script", Markup(b64encode(packed).decode("ascii")), id_=identifier, type_="text/plain")


def json_text(value: Any) -> str:
    """JSON that can stand inside a script element: no `<`, and nothing that is not a number."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")


def _sorted(dtype: str, content: bytes) -> bytes:
    """Bytes of numbers by significance; of text as they are."""
    if dtype == JSON_TYPE or dtype[1] == "1":
        return content
    return np.frombuffer(content, np.uint8).reshape(-1, int(dtype[1])).T.tobytes()


def _typed(values: np.ndarray) -> np.ndarray:
    """Little-endian, in a type that a browser has too."""
    if values.dtype.kind == "b":
        values = values.astype(np.uint8)
    if values.dtype.kind in "iu":
        low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
        for name in WHOLE_TYPES:
            if np.iinfo(name).min <= low and high <= np.iinfo(name).max:
                return np.ascontiguousarray(values, dtype=f"<{name}")
        values = values.astype(np.float64)
    kept = "<f4" if values.dtype.itemsize <= 4 else "<f8"
    return np.ascontiguousarray(values, dtype=kept)
