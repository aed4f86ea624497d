"""The ledger: all claims in reading order, and the choice of some of them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from headspan.errors import HeadspanError
from headspan.ledger.claim import DOCUMENTS, STATUSES, Claim

CHAPTERS = (
    "seed_000",
    "seed_001",
    "seed_001_gpt2",
    "seed_002",
    "seed_002_models",
    "seed_002_directions",
    "chapter_2_moments",
    "chapter_2_information",
    "chapter_2_attention",
    "chapter_2_spectra",
    "chapter_4",
    "chapter_4_tokens",
    "chapter_5_exponentials",
    "chapter_5_spheres",
    "chapter_5_divergence",
    "chapter_5_ratios",
    "chapter_6_scores",
    "chapter_6_alignment",
    "chapter_6_spheres",
    "chapter_6_bounds",
    "chapter_7_attention",
    "chapter_7_collapse",
    "chapter_8",
    "seed_004",
)
"""Modules of this folder that hold claims, in reading order."""


def ledger() -> list[Claim]:
    """Every claim, in reading order."""
    modules = [import_module(f"headspan.ledger.{name}") for name in CHAPTERS]
    return [row for module in modules for row in vars(module).values() if isinstance(row, Claim)]


def chosen(
    claims: Sequence[Claim], *, document: str | None = None, name: str | None = None, status: str | None = None
) -> list[Claim]:
    """The claims of a document, of an id (a whole one or the beginning of several) and of a status."""
    if document is not None and document not in DOCUMENTS:
        raise HeadspanError(f"there is no document {document!r}; documents are {', '.join(DOCUMENTS)}")
    if status is not None and status not in STATUSES:
        raise HeadspanError(f"there is no status {status!r}; statuses are {', '.join(STATUSES)}")
    wanted = [
        claim
        for claim in claims
        if (document is None or claim.document == document) and (status is None or claim.status == status)
    ]
    if name is not None:
        exact = [claim for claim in wanted if claim.id == name]
        wanted = exact or [claim for claim in wanted if claim.id.startswith(name)]
    if not wanted:
        raise HeadspanError("no claim is of that document, id and status; `headspan claims` without options shows all")
    return wanted
