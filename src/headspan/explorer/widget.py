"""`headspan.explore`: the component in a notebook, through anywidget, where Python answers.

The payload and its archive go to the browser as traits; questions come back as messages with a number, and each is
answered by a message with the same number (`assets/notebook_home.js`). What is selected there is a trait here. Works
where anywidget does: Jupyter, VS Code, Colab, marimo.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from headspan.errors import ArgumentError, HeadspanError
from headspan.explorer.assembly import names_by_head, page_classes
from headspan.explorer.live import on_pair, on_prompt, prompt_lenses
from headspan.explorer.model_name import model_name
from headspan.explorer.payload import HeadGrid, PageData, Payload, payload
from headspan.explorer.reports import Settings, skip_reasons
from headspan.explorer.store import Archive, Store
from headspan.lenses.catalog import lens, lenses
from headspan.lenses.model import Model, open_model
from headspan.lenses.run import run
from headspan.progress import progress_bar
from headspan.result import Lens, Result

if TYPE_CHECKING:
    from headspan.explorer.notebook import ExplorerWidget

NEEDED = "headspan.explore needs anywidget: pip install 'headspan[notebook]'"


class Exploration:
    """One model as a widget looks at it: which layers are open, and the answers to questions."""

    def __init__(self, model: Model, stack: str | None, names: Sequence[str] | None, progress: bool | None) -> None:
        if stack is None and len(model.stacks) > 1 and not model.has_chosen_heads:
            stack = model.stacks[0]
        self.model, self.stack, self.progress = model, stack, progress
        self.lenses = self._chosen(names)
        self.layers = [int(layer) for layer in model.heads(stack=stack).layers]
        self.runs = any(True for _ in prompt_lenses(model, stack)) and model.unasked_obstacle() is None

    def _chosen(self, names: Sequence[str] | None) -> list[Lens]:
        """Lenses by name; by default those that read weights alone, and those that run the model on a prompt."""
        reasons = skip_reasons(self.model, Settings(), self.stack)
        if names is None:
            prompted = {each.name for each in prompt_lenses(self.model, self.stack)}
            return [
                lens(name)
                for name, reason in reasons.items()
                if reason is None and (lens(name).reads_weights_alone or name in prompted)
            ]
        for name in names:
            if reasons.get(lens(name).name) is not None:
                raise ArgumentError(f"lenses={list(names)}: {name} {reasons[name]}")
        return [each for name, each in lenses().items() if name in names]

    def opened(self, layers: Sequence[int] | None = None) -> tuple[Payload, Archive]:
        """What the component is given, with all layers open or some."""
        heads = self.model.heads(stack=self.stack)
        subject = self.model if layers is None else Model(heads.checkpoint, heads=self._within(layers))
        results: dict[str, Result] = {}
        with progress_bar(len(self.lenses), shown=self.progress is not False) as step:
            for each in self.lenses:
                step(each.title)
                if each.runs:
                    if self.runs:
                        results[each.name] = run(each, [self.model], {}, {"stack": self.stack, "progress": False})
                    continue
                try:
                    results[each.name] = run(each, [subject], {}, {"stack": self.stack}, unasked=True)
                except HeadspanError:
                    # Fewer layers can be too few for a lens; the others are shown.
                    continue
        store, shown = Store(), self._within(layers) if layers is not None else heads
        classes = names_by_head(page_classes(heads, results))
        record = payload(PageData(HeadGrid.of(shown), results, classes, name=model_name(self.model)), store)
        record |= {"runs": self.runs, "prompt": "", "model_layers": self.layers}
        return record, store.archive()

    def _within(self, layers: Sequence[int]) -> Any:
        return self.model.checkpoint.heads(layers=list(layers), stack=self.stack)

    def answer(self, question: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        """The answer to a question and its archive; what cannot be answered is one line."""
        try:
            if question.get("ask") == "run":
                scales = {str(label): float(scale) for label, scale in dict(question.get("scales") or {}).items()}
                found = on_prompt(self.model, str(question.get("prompt") or "") or None, scales, self.stack)
                archive = found.store.archive()
                told = {"maps": found.maps, "before": found.before, "after": found.after, "index": archive.index}
                return told, [archive.packed]
            if question.get("ask") == "pair":
                first, second = map(str, question["heads"])
                return {"lines": on_pair(self.model, first, second, self.stack)}, []
            return {"problem": f"{question.get('ask')!r} is not a question that is known here"}, []
        except (HeadspanError, TypeError, ValueError, KeyError) as problem:
            return {"problem": str(problem)}, []


def explore(
    model: Any,
    *,
    stack: str | None = None,
    lenses: Sequence[str] | None = None,
    progress: bool | None = None,
) -> ExplorerWidget:
    """The wiring diagram and head cards of a model in a notebook, where Python answers.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned.
    stack
        Which stack, for a model with several; the first by default.
    lenses
        Which analyses to show; by default those that read weights alone, and attention where the model can be run.
    progress
        A bar while the lenses run; by default on a terminal and in a notebook.

    Returns
    -------
    ExplorerWidget
        A widget. `.selected` is the chosen head ("" where none is), `.selected_pair` a chosen pair as [src, dst].

    >>> import headspan
    >>> widget = headspan.explore("demo", lenses=["affinity"])  # doctest: +SKIP
    >>> widget.selected  # doctest: +SKIP
    ''
    """
    if find_spec("anywidget") is None:
        raise HeadspanError(NEEDED)
    from headspan.explorer.notebook import ExplorerWidget

    return ExplorerWidget(Exploration(open_model(model), stack, lenses, progress))


def trait_values(record: Payload, archive: Archive) -> dict[str, Any]:
    """The traits that hand a payload to the browser."""
    return {
        "payload": json.dumps(record, allow_nan=False),
        "index": json.dumps(archive.index),
        "archive": archive.packed,
    }
