"""The page around sections: one self-contained HTML file that asks nothing of the network.

`page` is any page. `linked_page` is what the report, and any other page about the heads of one model, is made with: the
component (`component.py`) makes the wiring diagram, the head card and the filters, and its figures and sentences look
at the same head. A model with several stacks has a view for each, of which one is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headspan._version import __version__
from headspan.explorer.component import page_scripts
from headspan.explorer.figure_block import plotly_script
from headspan.explorer.html import Markup, element, style
from headspan.explorer.payload import Payload
from headspan.explorer.store import Store, json_text

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""Told to the browser: what is on the page may run; nothing may be fetched or sent."""


@dataclass(frozen=True)
class Entry:
    """A line of the contents, and the lines below it."""

    identifier: str
    title: str
    below: Sequence[Entry] = ()


@dataclass(frozen=True)
class View:
    """One component with the sections around it."""

    payload: Payload
    sections: Sequence[Markup]
    contents: Sequence[Entry] = ()
    opening: Sequence[Markup] = ()
    """What stands above the diagram: findings, and what was skipped."""
    store: Store = field(default_factory=Store)
    """Arrays that the payload refers to."""
    figures: Store = field(default_factory=Store)
    """Arrays of figures and of tables that are only saved."""
    stack: str = ""
    """Which stack it is of, where there are several."""


def page(
    title: str,
    subtitle: str,
    contents: Mapping[str, str],
    sections: Sequence[Markup],
    end: Sequence[Markup] = (),
) -> str:
    """A page of sections.

    Parameters
    ----------
    title, subtitle
        What the page is about.
    contents
        Title of each section to link to, by its identifier.
    sections, end
        The sections, and the scripts that run when they are there.
    """
    links = [element("a", name, href=f"#{identifier}") for identifier, name in contents.items()]
    words = element("div", element("h1", title), element("p", subtitle, class_="subtitle"))
    header = element("header", words, class_="top", id_="top")
    body = [header, element("nav", *links, aria_label="Contents"), element("main", *sections, data_explorer="")]
    return _document(title, [*body, _footer(), *end], "plain")


def linked_page(title: str, subtitle: str, views: Sequence[View]) -> str:
    """A page about the heads of one model.

    Parameters
    ----------
    title, subtitle
        The model's name, and its facts in one line.
    views
        One, or one for each stack of the model; the first is shown at first.
    """
    switch = [] if len(views) < 2 else [_switch(views)]
    theme = element("button", "Dark", type_="button", id_="theme")
    words = element("div", element("h1", title), element("p", subtitle, class_="subtitle"))
    header = element("header", words, *switch, theme, class_="top", id_="top")
    drawn = any('class="plot"' in str(section) for view in views for section in view.sections)
    end = [block for view in views for block in _data(view)]
    end += [plotly_script()] if drawn else []
    return _document(title, [header, *map(_view, views), _footer(), *end, *page_scripts()], "linked")


def _document(title: str, body: Sequence[Markup], kind: str) -> str:
    head = element(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        element("title", f"{title} · headspan"),
        style("page.css", "figures.css", *(("explorer.css",) if kind == "linked" else ())),
    )
    return f"<!doctype html>\n{element('html', head, element('body', *body, class_=kind), lang='en')}\n"


def _footer() -> Markup:
    return element("footer", f"Made by headspan {__version__}. This page is complete in itself and works offline.")


def _view(view: View) -> Markup:
    marked = {"data_stack": view.stack} if view.stack else {}
    menu = element(
        "details",
        element("summary", "Contents"),
        element("nav", _entries(view.contents), aria_label="Contents", class_="menu-body"),
        class_="menu",
    )
    diagram = element(
        "section", data_place="diagram", class_="diagram", aria_label="Wiring", id_=f"{_start(view)}diagram"
    )
    return element(
        "div",
        element("section", *view.opening, class_="opening", id_=f"{_start(view)}findings"),
        element("div", menu, data_place="bar", class_="bar", role="group", aria_label="Search and filters"),
        element(
            "div",
            element("main", *([diagram] if view.payload["pairs"] else []), *view.sections),
            element("aside", data_place="card", class_="card", aria_live="polite"),
            class_="columns",
        ),
        data_explorer="",
        class_="headspan explorer",
        **marked,
    )


def _start(view: View) -> str:
    return f"{view.stack}-" if view.stack else ""


def _entries(entries: Sequence[Entry]) -> Markup:
    items = [
        element(
            "li",
            element("a", entry.title, href=f"#{entry.identifier}"),
            *([_entries(entry.below)] if entry.below else []),
        )
        for entry in entries
    ]
    return element("ul", *items)


def _switch(views: Sequence[View]) -> Markup:
    links = [element("a", view.stack, href=f"#stack={view.stack}", data_stack=view.stack) for view in views]
    return element("nav", *links, class_="stacks", aria_label="Stacks of the model")


def _data(view: View) -> list[Markup]:
    record = element("script", Markup(json_text(view.payload)), id_=f"{_start(view)}payload", type_="application/json")
    return [record, *view.store.blocks("core", _start(view)), *view.figures.blocks("figures", _start(view))]
