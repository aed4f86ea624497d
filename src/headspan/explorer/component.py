"""The component as one script: the files of `assets/` in the order in which they run, inside one function.

`headspanComponent(root, home)` makes a component in an element. Every file adds one name to its `headspan` object and
uses only what stands before it; nothing is global, so that a notebook can hold several. `home` is where it lives (the
page, `page_home.js`, or a notebook, `notebook_home.js`): it hands out the payload, the archives and the drawing
library. There is no build step: the files are put one after another as they are.
"""

from __future__ import annotations

from headspan.explorer.html import Markup, asset, element

FIGURES = ("store.js", "panels.js", "figures.js")
"""Enough to draw figures and nothing else."""
FILES = (
    "store.js",
    "payload.js",
    "tables.js",
    "csv.js",
    "dom.js",
    "labels.js",
    "state.js",
    "words.js",
    "pairs.js",
    "sets.js",
    "panels.js",
    "figures.js",
    "naming.js",
    "recount.js",
    "sieve.js",
    "marks.js",
    "sparks.js",
    "controls.js",
    "graph.js",
    "layout.js",
    "frames.js",
    "arrows.js",
    "nodes.js",
    "diagram.js",
    "exports.js",
    "wiring.js",
    "maps.js",
    "live.js",
    "card.js",
    "linking.js",
    "keys.js",
    "start.js",
)


def component_source(files: tuple[str, ...] = FILES) -> str:
    """The function that makes a component."""
    body = "\n".join(asset(name) for name in files)
    return (
        '"use strict";\n'
        "let headspanCount = 0;\n"
        "async function headspanComponent(root, home) {\n"
        "const headspan = {root, home, id: ++headspanCount};\n"
        f"{body}\n"
        "return headspan;\n}\n"
    )


def page_scripts() -> list[Markup]:
    """What a page about heads has at its end."""
    return [
        element("script", Markup(component_source() + asset("library.js") + asset("page_home.js"))),
        element("script", Markup(asset("theme.js"))),
    ]


def figure_scripts() -> list[Markup]:
    """What a page with figures alone has at its end."""
    scripts = (component_source((*FIGURES, "start_figures.js")), asset("library.js"), asset("page_home.js"))
    return [element("script", Markup("".join(scripts)))]


def notebook_style() -> str:
    """The styles of a page, for one element of a notebook alone: every rule is nested in that of the element."""
    rules = asset("page.css") + asset("explorer.css")
    dark = 'body[data-jp-theme-light="false"] &'
    for old, new in ((':root[data-theme="dark"]', dark), (':root:not([data-theme="light"])', "&"), (":root", "&")):
        rules = rules.replace(old, new)
    return f".headspan.notebook {{\n{rules}\n}}\n{asset('notebook.css')}"


def notebook_source() -> str:
    """The component as the module that anywidget loads."""
    return component_source() + asset("notebook_home.js")
