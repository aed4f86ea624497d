"""The few HTML elements a report is made of. Everything that came from a file is escaped here, and only here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

from headspan.errors import one_line


@dataclass(frozen=True)
class Markup:
    """HTML that is ready to be put on the page; made by the functions of this module."""

    html: str

    def __str__(self) -> str:
        return self.html


def text(value: object) -> Markup:
    """Any value as text: unprintable characters shown as escapes, markup characters harmless."""
    return Markup(escape(one_line(value)))


def element(tag: str, *children: Markup | str, **attributes: str) -> Markup:
    """`<tag>` around children; plain strings are escaped.

    In an attribute's name a trailing underscore is dropped and one inside is a hyphen (`class_`, `aria_label`).
    """
    written = "".join(f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"' for name, value in attributes.items())
    inner = "".join(str(child if isinstance(child, Markup) else text(child)) for child in children)
    return Markup(f"<{tag}{written}>{inner}</{tag}>")


def facts(rows: Iterable[tuple[str, str]]) -> Markup:
    """A list of names and values."""
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in rows))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table with one header row; it scrolls sideways by itself where it is too wide."""
    head = element("thead", element("tr", *(element("th", name, scope="col") for name in header)))
    body = element("tbody", *(element("tr", *(element("td", cell) for cell in row)) for row in rows))
    return element("div", element("table", head, body), class_="scroll")


def section(identifier: str, title: str, *children: Markup | str) -> Markup:
    """A titled part of the page that a link can point to."""
    return element("section", element("h2", title), *children, id_=identifier)


def folded(summary: str, *children: Markup | str, **attributes: str) -> Markup:
    """A part of the page that is a line until it is opened."""
    return element("details", element("summary", summary), *children, **attributes)


WHOLE = re.compile(r"\b(?P<head>L\d{1,6}[HK]\d{1,6})\b|\b[pqz] [=<>] \+?-?\d[\d.]*(?:e-?\d+)?|\b\d[\d.]* %")
"""What a line does not break: a head, the number of a test, or a percentage."""


def linked_text(sentence: str) -> Markup:
    """`sentence` as HTML in which every head is a link: `L4H7` in it chooses that head; `q = 1e-9` stays on a line."""
    parts, end = [], 0
    for found in WHOLE.finditer(sentence):
        label = found["head"]
        whole = (
            element("span", found.group(), class_="whole")
            if label is None
            else element("a", label, href=f"#head={label}", class_="head", data_head=label)
        )
        parts += [text(sentence[end : found.start()]), whole]
        end = found.end()
    return Markup("".join(map(str, (*parts, text(sentence[end:])))))


def asset(name: str) -> str:
    """The text of one file of `assets/`: scripts and styles are plain files, put on the page as they are."""
    return resources.files("headspan.explorer").joinpath("assets", name).read_text("utf-8")


def style(*names: str) -> Markup:
    """Style sheets as one element."""
    return element("style", *(Markup(asset(name)) for name in names))
