"""The data of a page, each array once: named by its content, written as base64, read where it is used.

1. An array becomes a block `<script type="text/plain">` of base64 with its dtype; a list or an object one of JSON.
   No browser runs either, and neither can hold a `<`.
2. A block's id is the hash of what is in it, so that whatever shows the same numbers names the same block.
3. What uses data holds a reference `{"@": id}` in its place, with the shape of an array that has more than one axis.
   `assets/store.js` puts the data there when a figure is drawn or a table is saved.
"""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from typing import Any

import numpy as np

from headspan.explorer.html import Markup, element

SMALLEST = 160
"""Lists and objects whose JSON is shorter than this stay where they are: a reference would save nothing."""
WHOLE_TYPES = ("i1", "u1", "i2", "u2", "i4", "u4")


class Store:
    """What a page carries. Filled while figures and tables are written; `blocks` come last on the page."""

    def __init__(self) -> None:
        self._blocks: dict[str, Markup] = {}

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
        code = f"{kept.dtype.kind}{kept.dtype.itemsize}"
        reference = self._kept(b64encode(kept.tobytes()).decode("ascii"), type_="text/plain", data_dtype=code)
        return reference if kept.ndim == 1 else {**reference, "shape": ",".join(map(str, kept.shape))}

    def value(self, value: Any) -> dict[str, str]:
        """A reference to a list or an object."""
        return self._kept(json_text(value), type_="application/json")

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

    def blocks(self) -> list[Markup]:
        """Everything that was asked for, once each."""
        return list(self._blocks.values())

    def _encoded(self, array: dict[str, str]) -> dict[str, str]:
        """An array that plotly has written as base64 already."""
        reference = self._kept(array["bdata"], type_="text/plain", data_dtype=array["dtype"])
        shape = str(array.get("shape", "")).replace(" ", "")
        return {**reference, "shape": shape} if "," in shape else reference

    def _kept(self, content: str, **attributes: str) -> dict[str, str]:
        digest = sha256(f"{attributes}{content}".encode()).hexdigest()[:12]
        if digest not in self._blocks:
            self._blocks[digest] = element("script", Markup(content), id_=f"d-{digest}", **attributes)
        return {"@": digest}


def json_text(value: Any) -> str:
    """JSON that can stand inside a script element: no `<`, and nothing that is not a number."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")


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
