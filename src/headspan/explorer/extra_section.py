"""A section that a report gets from elsewhere than a lens: its place in the contents, its findings, and its markup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headspan.explorer.html import Markup
from headspan.explorer.store import Store
from headspan.finding import Finding


@dataclass(frozen=True)
class ExtraSection:
    """One more section of a page."""

    name: str
    """What links point to, and the `lens` of its findings."""
    title: str
    body: Callable[[Store], Markup]
    """The whole section, figures included, their numbers put into the page's store."""
    findings: Sequence[Finding] = ()
