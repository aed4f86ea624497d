"""The widget itself. A module of its own, because anywidget and traitlets are there only with `headspan[notebook]`."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from headspan.errors import HeadspanError
from headspan.explorer.component import notebook_source, notebook_style
from headspan.explorer.widget import Exploration, trait_values


class ExplorerWidget(anywidget.AnyWidget):
    """What `headspan.explore` returns."""

    _esm = notebook_source()
    _css = notebook_style()
    payload = traitlets.Unicode("").tag(sync=True)
    index = traitlets.Unicode("[]").tag(sync=True)
    archive = traitlets.Bytes(b"").tag(sync=True)
    selected = traitlets.Unicode("").tag(sync=True)
    """The chosen head; empty where none is."""
    selected_pair = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The chosen pair as [src, dst]; empty where none is."""

    def __init__(self, exploration: Exploration) -> None:
        self.exploration = exploration
        super().__init__(**trait_values(*exploration.opened()))
        self.on_msg(self._asked)

    def open_layers(self, low: int, high: int) -> None:
        """Show the layers from `low` to `high` alone: of a large model, all pairs among them."""
        wanted = [layer for layer in self.exploration.layers if low <= layer <= high]
        if not wanted:
            raise HeadspanError(f"there is no layer from {low} to {high}; layers are {self.exploration.layers}")
        everything = wanted == self.exploration.layers
        values = trait_values(*self.exploration.opened(None if everything else wanted))
        # The payload last: the browser draws anew when it changes.
        for name in ("index", "archive", "payload"):
            setattr(self, name, values[name])

    def _asked(self, widget: Any, message: dict[str, Any], buffers: list[bytes]) -> None:
        question = message.get("question") or {}
        packed: list[bytes] = []
        if question.get("ask") == "layers":
            answer = self._layers(question)
        else:
            answer, packed = self.exploration.answer(question)
        self.send({"number": message.get("number"), "answer": answer}, buffers=packed)

    def _layers(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            self.open_layers(int(question["low"]), int(question["high"]))
        except (HeadspanError, KeyError, TypeError, ValueError) as problem:
            return {"problem": str(problem)}
        return {}
