"""The page around sections: one self-contained HTML file that asks nothing of the network.

`page` is any page. `linked_page` is what the report, and any other page about the heads of one model, is made with: its
figures, sentences and side panel look at the same head. It has a bar, a panel, a store with the arrays of its figures,
and a record of the model's heads, pairs and tables (`record.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headspan._version import __version__
from headspan.explorer.figure_block import plotly_script
from headspan.explorer.html import Markup, element, scripts, style
from headspan.explorer.store import Store, json_text

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""Told to the browser: what is on the page may run; nothing may be fetched or sent."""
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


def page(
    title: str,
    subtitle: str,
    contents: Mapping[str, str],
    sections: Sequence[Markup],
    end: Sequence[Markup] = (),
    bar: Sequence[Markup] = (),
    aside: Sequence[Markup] = (),
) -> str:
    """The whole document.

    Parameters
    ----------
    title, subtitle
        What the page is about.
    contents
        Title of each section to link to, by its identifier.
    sections, end
        The sections, and the scripts that run when they are there.
    bar, aside
        What stays at the top while the page scrolls, and what stands beside the sections; both only on a linked page.
    """
    head = element(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        element("title", f"{title} · headspan"),
        style("page.css", "figures.css", *(("linked.css",) if aside else ())),
    )
    links = [element("a", name, href=f"#{identifier}") for identifier, name in contents.items()]
    theme = [element("button", "Dark", type_="button", id_="theme")] if aside else []
    words = element("div", element("h1", title), element("p", subtitle, class_="subtitle"))
    header = element("header", words, *theme, class_="top", id_="top")
    columns = element(
        "div", element("nav", *links, aria_label="Contents"), element("main", *sections), *aside, class_="columns"
    )
    footer = element("footer", f"Made by headspan {__version__}. This page is complete in itself and works offline.")
    body = element("body", header, *bar, columns, footer, *end, class_="linked" if aside else "plain")
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


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
    choices = [
        _choice("radio", "metric", name, f"{words[0].upper()}{words[1:]}") for name, words in pairs["metrics"].items()
    ]
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
