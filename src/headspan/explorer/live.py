"""What Python answers while a notebook looks at a model: a prompt, heads scaled or ablated, one pair of heads.

Which lenses answer, their records say: a prompt is answered by those that run the model on a prompt and have a map for
a head's card, a pair by those whose function takes `src` and `dst`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

from headspan.dims import COMPOSING, HeadLabel
from headspan.errors import HeadspanError
from headspan.explorer.payload import HeadMap, head_maps
from headspan.explorer.store import Store
from headspan.lenses.catalog import lenses
from headspan.lenses.model import Model
from headspan.lenses.run import run
from headspan.result import Lens, Result
from headspan.runtime import encoded
from headspan.runtime.interventions import ScaledHeads, intervened
from headspan.runtime.model import RunnableModel
from headspan.runtime.prompt import continuation, default_prompt

WRITTEN = 24
"""Tokens of a continuation."""


@dataclass(frozen=True)
class Answer:
    """Maps on a prompt, and what the model writes after it; None where it does not write."""

    maps: list[HeadMap]
    store: Store
    before: str | None = None
    after: str | None = None
    """With heads scaled; None where none is."""


def prompt_lenses(model: Model, stack: str | None = None) -> Iterator[Lens]:
    """Lenses that run the model on a prompt and apply to it."""
    for name, reason in model.skip_reasons(stack).items():
        each = lenses()[name]
        if reason is None and each.runs and "prompt" in signature(each.function).parameters:
            yield each


def pair_lenses(model: Model, stack: str | None = None) -> Iterator[Lens]:
    """Lenses about one pair of heads that apply."""
    for name, reason in model.skip_reasons(stack).items():
        given = signature(lenses()[name].function).parameters
        if reason is None and {"src", "dst"} <= set(given) and given["src"].kind is Parameter.POSITIONAL_OR_KEYWORD:
            yield lenses()[name]


def on_prompt(model: Model, prompt: str | None, scales: Mapping[str, float], stack: str | None = None) -> Answer:
    """Maps of every head on a prompt, and what the model writes, with heads scaled.

    Parameters
    ----------
    model, stack
        What is run.
    prompt
        Text; the lens's own example where it is empty.
    scales
        Head label to what its contribution is multiplied by.
    """
    running, store = model.running(stack=stack), Store()
    changed = intervened(running, ScaledHeads(scales)) if scales else nullcontext()
    with changed:
        results = {each.name: _prompted(each, running, prompt) for each in prompt_lenses(model, stack)}
        after = _written(running, prompt) if scales else None
    before = _written(running, prompt)
    return Answer(head_maps(results, store), store, before, after)


def _prompted(lens: Lens, running: RunnableModel, prompt: str | None) -> Result:
    options: dict[str, Any] = {"prompt": prompt} if prompt else {}
    # Tests by permutation take longest and are not shown here.
    if "permutations" in signature(lens.function).parameters:
        options["permutations"] = 0
    return run(lens, [running], options, {"progress": False})


def _written(running: RunnableModel, prompt: str | None) -> str | None:
    if not running.writes or running.tokenizer is None:
        return None
    given = encoded(running, prompt) if prompt else default_prompt(running)
    return str(running.tokenizer.decode(list(continuation(running, given, WRITTEN))))


def on_pair(model: Model, first: str, second: str, stack: str | None = None) -> list[str]:
    """What the lenses of single pairs say, one finding a line; the head of the earlier layer writes."""
    src, dst = sorted((HeadLabel.parse(first), HeadLabel.parse(second)), key=lambda head: head.layer)
    lines: list[str] = []
    for each in pair_lenses(model, stack):
        try:
            result = each.function(model, str(src), str(dst), stack=stack, progress=False)
        except HeadspanError as problem:
            lines.append(f"{each.title}: {problem}")
            continue
        told = [finding.statement for finding in result.findings]
        lines += told or _rows(result)
    return lines or ["No analysis of single pairs applies to this model."]


def _rows(result: Result, most: int = 6) -> list[str]:
    """The first rows of a result without findings, a line each."""
    lines, table = [], result.table()
    if "pairing" in table:
        # Pairings that compose come first.
        table = table.sort_values("pairing", key=lambda names: ~names.isin(COMPOSING), kind="stable")
    for row in table.head(most).to_dict("records"):
        shown = {name: value for name, value in row.items() if value == value and value != ""}
        lines.append(", ".join(f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
                               for name, value in list(shown.items())[:8]))  # fmt: skip
    return lines
