"""Sentences in which every head that is named is a link to it."""

from __future__ import annotations

import re

from headspan.explorer.html import Markup, element, text

HEAD = re.compile(r"\bL\d{1,6}[HK]\d{1,6}\b")


def linked_text(sentence: str) -> Markup:
    """`sentence` as HTML; `L4H7` in it chooses that head."""
    parts, end = [], 0
    for found in HEAD.finditer(sentence):
        label = found.group()
        parts += [
            text(sentence[end : found.start()]),
            element("a", label, href=f"#head={label}", class_="head", data_head=label),
        ]
        end = found.end()
    return Markup("".join(map(str, (*parts, text(sentence[end:])))))
