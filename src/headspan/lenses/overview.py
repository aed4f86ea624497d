"""One row per head with the leading numbers of all lenses: the table to start from, and the numbers of a head's card.

Which variables these are, the lenses' schemas say (`card`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import HeadLabel
from headspan.errors import DegenerateSubspace, UnsupportedModel
from headspan.frames import nodes_of
from headspan.lenses.catalog import lenses
from headspan.lenses.model import open_model
from headspan.lenses.run import run
from headspan.result import Result
from headspan.schema import Variable

if TYPE_CHECKING:
    from headspan.lenses.run import Opening

HEAD_DIMS = ("head", "kv_head")
TOKEN_DIMS = ("place", "token")
"""Axes whose texts stand on one line of a card."""
MOST_LINES = 4
"""Of texts on a card."""


@dataclass(frozen=True)
class Fact:
    """A number of the table as a head's card shows it: what it is, and the columns beside it."""

    title: str
    column: str
    expected: str = ""
    p: str = ""
    of: str = ""


def table(model: Any, **opening: Unpack[Opening]) -> pd.DataFrame:
    """One row per head with the leading numbers of every lens that reads weights alone and applies.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned.
    **opening
        `stack`, `fold`, `dtype`, `device`, `progress`, `time_limit` (of each lens).

    >>> import headspan
    >>> headspan.table("demo")[["head", "ranks.rank_Q"]].head(2).values.tolist()
    [['L0H0', 16], ['L0H1', 16]]
    """
    opened = open_model(model, opening.get("config"))
    reasons, results = opened.skip_reasons(opening.get("stack")), {}
    for name, lens in lenses().items():
        if reasons.get(name, "two") is None and lens.reads_weights_alone and not lens.on_request:
            try:
                results[name] = run(lens, [opened], lens.series_options, opening, unasked=True)
            except (DegenerateSubspace, UnsupportedModel):
                continue
    stack = opened.checkpoint.stack(opening.get("stack")).stack
    layers = opened.heads(stack=opening.get("stack")).layers
    return head_table(layers, stack.n_heads, stack.n_kv_heads, results)


def head_table(layers: Sequence[int], n_heads: int, n_kv_heads: int, results: Mapping[str, Result]) -> pd.DataFrame:
    """Every head of a model, kv heads after the others where they are fewer; what a lens does not say is NaN."""
    kinds = [(n_heads, False)] + ([(n_kv_heads, True)] if n_kv_heads < n_heads else [])
    heads = [HeadLabel(layer, head, kv) for count, kv in kinds for layer in layers for head in range(count)]
    columns: dict[str, Any] = {
        "head": [str(head) for head in heads],
        "layer": [head.layer for head in heads],
        "index": [head.head for head in heads],
        "kv": [head.kv for head in heads],
    }
    found = pd.DataFrame(columns)
    for result in results.values():
        for column, values in _columns(result):
            found[column] = found["head"].map(values)
    return found


def card_facts(results: Mapping[str, Result]) -> list[Fact]:
    """What a head's card says, in the order of the lenses."""
    found = []
    for start, dataset, variable in (one for result in results.values() for one in _numbers(result)):
        expected, p = (f"{start}.{beside}" if beside in dataset else "" for beside in _beside(variable))
        of = f"{start}.{variable.of}" if variable.of else ""
        found.append(Fact(variable.card, f"{start}.{variable.name}", expected, p, of))
    return found


@dataclass(frozen=True)
class Curve:
    """A variable of every head with one more axis, which a card draws as a curve."""

    title: str
    name: str
    """The node it is from, such as W_Q; empty where curves of one title need not be told apart."""
    values: np.ndarray
    """[head, point], in the order of the labels."""
    kv: bool
    in_radians: bool
    is_null: bool = False


def card_curves(results: Mapping[str, Result]) -> Iterator[Curve]:
    """Curves of heads, each followed by what is expected under the null where that is known."""
    for result in results.values():
        for node, dataset, variable in _on_card(result):
            values = _first(dataset[variable.name])
            if values.ndim != 2 or values.dtype.kind in "OU":
                continue
            axis = next(dim for dim in values.dims if dim in HEAD_DIMS)
            about = (variable.card, node.removesuffix("_head"))
            kind = (axis == "kv_head", "radian" in variable.range)
            yield Curve(*about, values.transpose(axis, ...).values, *kind)
            null = f"{variable.name}_null"
            if null in dataset and dataset[null].dims == dataset[variable.name].dims:
                yield Curve(*about, _first(dataset[null]).transpose(axis, ...).values, *kind, is_null=True)


@dataclass(frozen=True)
class Map:
    """A variable of every head with two more axes over a text, which a card draws as a map."""

    lens: str
    title: str
    labels: tuple[str, ...]
    values: np.ndarray
    """[head, row, column], in [0, 1]."""
    texts: tuple[str, ...]
    words: tuple[int, ...] | None
    """The word of every token; None where that is not known."""


def card_maps(results: Mapping[str, Result]) -> Iterator[Map]:
    """Maps of heads over the text that the model was run on."""
    for result in results.values():
        for _, dataset, variable in _on_card(result):
            values = _first(dataset[variable.name])
            if values.ndim == 3 and values.dims[0] == "head" and f"{values.dims[1]}_text" in dataset.coords:
                row = str(values.dims[1])
                texts = tuple(str(text) for text in dataset[f"{row}_text"].values)
                words = tuple(map(int, dataset[f"{row}_word"].values)) if f"{row}_word" in dataset.coords else None
                labels = tuple(str(label) for label in dataset["head"].values)
                yield Map(result.lens.name, variable.card, labels, values.values, texts, words)


def card_texts(results: Mapping[str, Result]) -> Iterator[tuple[str, dict[str, list[dict[str, Any]]]]]:
    """Texts of heads, such as the tokens that a head writes: title, and by head the first lines with their names."""
    for result in results.values():
        for _, dataset, variable in _on_card(result):
            values = _first(dataset[variable.name])
            if values.ndim > 1 and values.dtype.kind in "OU" and values.dims[0] in HEAD_DIMS:
                labels = [str(label) for label in dataset[values.dims[0]].values]
                yield variable.card, dict(zip(labels, map(_text_lines, values), strict=True))


def _text_lines(own: xr.DataArray) -> list[dict[str, Any]]:
    """One head's texts: along an axis of tokens they stand on one line, along any other on a line each.

    A text that lists tokens (`"a | b"`) is taken apart, so that each can be told from its neighbors.
    """
    lines: dict[str, list[str]] = {}
    for place, text in np.ndenumerate(own.values):
        named = [
            str(own[axis].values[at]) if axis in own.coords else str(at + 1)
            for axis, at in zip(own.dims, place, strict=True)
            if axis not in TOKEN_DIMS
        ]
        if str(text):
            lines.setdefault(" ".join(named), []).extend(str(text).split(" | "))
    return [{"name": name, "tokens": texts} for name, texts in list(lines.items())[:MOST_LINES]]


def _on_card(result: Result) -> Iterator[tuple[str, xr.Dataset, Variable]]:
    for node, dataset in nodes_of(result.data).items():
        for variable in result.lens.schema.declared(node).values():
            if variable.card and variable.name in dataset:
                yield node, dataset, variable


def _numbers(result: Result) -> Iterator[tuple[str, xr.Dataset, Variable]]:
    """What a card shows as a number; first what the names of its columns begin with: the lens, and the node where
    several have such a number.
    """
    found = [one for one in _on_card(result) if _first(one[1][one[2].name]).ndim == 1]
    names = [variable.name for _, _, variable in found]
    for node, dataset, variable in found:
        which = f".{node.replace('/', '.')}" if names.count(variable.name) > 1 else ""
        yield f"{result.lens.name}{which}", dataset, variable


def _columns(result: Result) -> Iterator[tuple[str, pd.Series]]:
    for start, dataset, variable in _numbers(result):
        one = _first(dataset[variable.name])
        labels = pd.Index(one[one.dims[0]].values)
        yield f"{start}.{variable.name}", pd.Series(one.values, index=labels)
        for beside in (*_beside(variable), variable.of):
            if beside and beside in dataset:
                other = _first(dataset[beside]).values
                yield f"{start}.{beside}", pd.Series(np.broadcast_to(other, one.shape), index=labels)


def _beside(variable: Variable) -> tuple[str, str]:
    """Names of what is expected of a variable, and of its p-value; a z-score has that of its quantity."""
    return f"{variable.name}_null", f"{variable.name.removesuffix('_z')}_p"


CHOSEN = ("null", "prompt", "setting", "table", "centering")
"""Axes of which a card shows the first."""


def _first(values: xr.DataArray) -> xr.DataArray:
    """The values at the first place of every axis that offers a choice."""
    return values.isel({dim: 0 for dim in values.dims if dim in CHOSEN}, drop=True)
