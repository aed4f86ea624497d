"""What a browser would make of a page: its elements, and whether any of them asks for something from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser

FETCHING = ("src", "srcset", "data", "action", "formaction", "poster", "background", "ping", "manifest")
"""Attributes whose value a browser may fetch or send something to."""


@dataclass
class Element:
    """One element: its tag, its attributes, and the text directly inside."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


class _Collector(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        if self.found:
            self.found[-1].text += data


def page_elements(html: str) -> list[Element]:
    """All elements of a page, in order."""
    collector = _Collector()
    collector.feed(html)
    collector.close()
    return collector.found


def asks_nothing(html: str) -> bool:
    """Whether no element names another address, and the page forbids its scripts to."""
    elements = page_elements(html)
    styles = "".join(element.text for element in elements if element.tag == "style")
    policies = [element.attributes.get("content", "") for element in elements if "http-equiv" in element.attributes]
    return (
        not any(name in element.attributes for element in elements for name in FETCHING)
        and all(element.attributes.get("href", "#").startswith("#") for element in elements)
        and "url(" not in styles
        and "@import" not in styles
        and any(policy.startswith("default-src 'none';") and "connect-src" not in policy for policy in policies)
    )
