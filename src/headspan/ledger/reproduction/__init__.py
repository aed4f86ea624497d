"""Every figure of the five documents, drawn from a model at hand, with a verdict: one module per document.

A module `document_NNN` holds `EXHIBITS`, the declarative list of the document's figures and tables (`exhibit`).
`headspan.explorer.reproductions` runs them, keeps what is finished, and writes the page.
"""

from __future__ import annotations

from importlib import import_module

from headspan.errors import ArgumentError
from headspan.ledger.claim import DOCUMENTS
from headspan.ledger.reproduction.exhibit import AtHand, Exhibit, Exhibits, Shown


def exhibits_of(document: str) -> Exhibits:
    """The exhibits of one document."""
    if document not in DOCUMENTS:
        raise ArgumentError(f"there is no document {document!r}; documents are {', '.join(DOCUMENTS)}")
    found: Exhibits = import_module(f"{__name__}.document_{document}").EXHIBITS
    return found


__all__ = ["AtHand", "Exhibit", "Exhibits", "Shown", "exhibits_of"]
