"""The page around a report's sections: one self-contained HTML file that asks nothing of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headspan._version import __version__
from headspan.report.figure_block import STYLE as FIGURE_STYLE
from headspan.report.html import Markup, element

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""Told to the browser: what is on the page may run; nothing may be fetched or sent."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --paper: #ffffff; --line: #d9dee3; --tint: #f4f6f8;
  --link: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ebee; --soft: #9aa4af; --paper: #14171a; --line: #343a40; --tint: #1d2126;
    --link: #7ab8ff; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 2.5rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .75rem; padding-top: 1.25rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
.subtitle { color: var(--soft); margin: .35rem 0 0; }
dl { display: grid; grid-template-columns: minmax(8rem, max-content) 1fr; gap: .3rem 1.25rem; margin: 1rem 0; }
dt { color: var(--soft); } dd { margin: 0; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .4rem .75rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
nav { margin-top: 1.25rem; display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; font-size: .95rem; }
a { color: var(--link); } nav a { text-decoration: none; } nav a:hover { text-decoration: underline; }
.ranked { padding-left: 1.5rem; } .ranked li { margin: .45rem 0; } .ranked a { font-size: .9rem; white-space: nowrap; }
.finding { background: var(--tint); border-radius: .4rem; padding: .75rem 1rem; margin: .6rem 0; }
.finding p { margin: 0; } .evidence { color: var(--soft); font-size: .9rem; }
footer { color: var(--soft); font-size: .9rem; margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; }
@media print { body { padding: 0; } h2 { break-after: avoid; } .finding, tr { break-inside: avoid; } }
"""


def page(
    title: str,
    subtitle: str,
    contents: Mapping[str, str],
    sections: Sequence[Markup],
    scripts: Sequence[Markup] = (),
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
    """
    head = element(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        element("title", f"{title} · headspan"),
        element("style", Markup(STYLE), Markup(FIGURE_STYLE)),
    )
    links = [element("a", name, href=f"#{identifier}") for identifier, name in contents.items()]
    header = element("header", element("h1", title), element("p", subtitle, class_="subtitle"), element("nav", *links))
    footer = element("footer", f"Made by headspan {__version__}. This page is complete in itself and works offline.")
    body = element("body", header, element("main", *sections), footer, *scripts)
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"
