"""A section that a report gets from elsewhere than a lens: its place in the contents, its findings, and its markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headspan.finding import Finding
from headspan.report.html import Markup


@dataclass(frozen=True)
class ExtraSection:
    """One more section of a page.

    `name` is what links point to, and the `lens` of its findings; `body` is the whole section, figures included.
    """

    name: str
    title: str
    body: Markup
    findings: Sequence[Finding] = ()
