"""A page whose figures, sentences and side panel look at the same head: the bar, the panel, and the scripts.

`linked_page` is what the report, and any other page about the heads of one model, is made with: sections with figures
whose arrays are in a store, and a record of the model's heads, pairs and tables (`record.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headspan.explorer.figure_block import plotly_script
from headspan.explorer.html import Markup, element, scripts
from headspan.explorer.page import page
from headspan.explorer.store import Store, json_text

SCRIPTS = (
    "store.js",
    "tables.js",
    "csv.js",
    "dom.js",
    "labels.js",
    "state.js",
    "words.js",
    "pairs.js",
    "panels.js",
    "figures.js",
    "naming.js",
    "recount.js",
    "sieve.js",
    "marks.js",
    "wiring.js",
    "sparks.js",
    "panel.js",
    "toolbar.js",
    "linking.js",
    "keys.js",
    "theme.js",
    "start_linked.js",
)
"""In the order in which they run; each uses only what stands before it."""
METRIC_NAMES = {"projection_kernel": "Projection kernel", "composition_score": "Composition score"}


def linked_page(
    title: str,
    subtitle: str,
    contents: Mapping[str, str],
    sections: Sequence[Markup],
    record: Mapping[str, Any],
    store: Store,
) -> str:
    """The whole document.

    Parameters
    ----------
    title, subtitle, contents, sections
        As of `page`.
    record
        What the scripts know of the model: see `page_record`.
    store
        The arrays that sections and record refer to.
    """
    data = element("script", Markup(json_text(record)), id_="page-record", type_="application/json")
    drawing = [plotly_script()] if any('class="plot"' in str(section) for section in sections) else []
    end = [data, *store.blocks(), *drawing, *scripts(*SCRIPTS)]
    return page(title, subtitle, contents, sections, end, bar=[_bar(record)], aside=[_panel()])


def _panel() -> Markup:
    body = element("div", id_="panel-body")
    return element("aside", body, id_="panel", aria_labelledby="panel-title", aria_live="polite")


def _bar(record: Mapping[str, Any]) -> Markup:
    search = element(
        "form",
        element("label", "Head", for_="search"),
        Markup(
            '<input id="search" type="text" inputmode="text" autocomplete="off" spellcheck="false" size="8" '
            'placeholder="L4H7" aria-describedby="search-note">'
        ),
        element("span", id_="search-note", role="status"),
        id_="search-form",
        role="search",
    )
    filters = [_layers(record["heads"]["layers"])]
    if record["pairs"]:
        filters = [_pairings(record["pairs"]), *filters, *_metrics(record["pairs"]), _threshold()]
    clear = element("button", "Clear", type_="button", id_="clear", aria_label="Clear filters", hidden="")
    unfold = element(
        "button", "Filters", type_="button", id_="filters-toggle", aria_expanded="false", aria_controls="filters"
    )
    choices = element("div", *filters, clear, id_="filters", role="group", aria_label="Filters")
    return element("div", search, unfold, choices, class_="bar", id_="bar")


def _group(name: str, *children: Markup, kind: str = "group") -> Markup:
    return element("span", element("span", name), *children, class_=kind, role="group", aria_label=name)


def _choice(kind: str, group: str, name: str, label: str, mark: str = "") -> Markup:
    box = Markup(f'<input type="{kind}" name="{group}" id="{group}-{name}" value="{name}" checked>')
    return element("label", box, element("span", label), for_=f"{group}-{name}", class_=f"choice {mark}".strip())


def _pairings(pairs: Mapping[str, Any]) -> Markup:
    boxes = [_choice("checkbox", "pairing", name, name, name) for name in pairs["pairings"]]
    return _group("Pairing", *boxes)


def _metrics(pairs: Mapping[str, Any]) -> list[Markup]:
    if len(pairs["metrics"]) < 2:
        return [element("span", *(_choice("radio", "metric", name, name) for name in pairs["metrics"]), hidden="")]
    choices = [_choice("radio", "metric", name, METRIC_NAMES[name]) for name in pairs["metrics"]]
    return [_group("Score", *choices)]


def _layers(layers: Sequence[int]) -> Markup:
    options = [element("option", str(layer), value=str(layer)) for layer in layers]
    return _group(
        "Layers",
        element("select", *options, id_="layer-low", aria_label="First layer"),
        element("span", "to"),
        element("select", *options, id_="layer-high", aria_label="Last layer"),
    )


def _threshold() -> Markup:
    return _group(
        "At least",
        Markup('<input type="range" id="threshold" min="0" max="200" value="0" aria-label="Least score of a pair">'),
        element("output", id_="threshold-note", for_="threshold"),
        kind="group threshold",
    )
