"""The page around a report's sections: one self-contained HTML file that asks nothing of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headspan._version import __version__
from headspan.explorer.html import Markup, element, style

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""Told to the browser: what is on the page may run; nothing may be fetched or sent."""


def page(
    title: str,
    subtitle: str,
    contents: Mapping[str, str],
    sections: Sequence[Markup],
    scripts: Sequence[Markup] = (),
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
    sections, scripts
        The sections, and what runs when they are there.
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
    body = element("body", header, *bar, columns, footer, *scripts, class_="linked" if aside else "plain")
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"
