"""A claim: what a document says, whether it is so, what is right instead, and the check that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from headspan.errors import BrokenCheck
from headspan.ledger.trial import Evidence

Kind = Literal["formula", "text", "typo", "code", "added"]
Status = Literal["holds", "asymptotic", "approximate", "wrong", "observational", "not reproduced"]
STATUSES: tuple[str, ...] = get_args(Status)
DOCUMENTS = {
    "000": "null and row spaces of attention heads",
    "001": "projection kernel and composition score",
    "002": "positions and tokens in orthogonal subspaces",
    "003": "thesis on Gaussian information, softmax geometry and bilinear forms",
    "004": "orthogonal subspaces while a small transformer learns to copy",
}

Check = Callable[..., Evidence]
"""Takes `Draws`, and the `Checkpoint` where the claim is about a model."""


@dataclass(frozen=True)
class Claim:
    """One row of the ledger.

    `statement` and `correction` are in our own words; `correction` is what is right where the claim is wrong, and what
    to add where it holds. `needs` names the model an observational claim is about; its check gets that checkpoint.
    `otherwise` says what the check rests on where that model is not given; without it the claim is skipped then.
    `check` is None where nothing can be computed, and `unchecked` says why.
    """

    id: str
    document: str
    kind: Kind
    status: Status
    statement: str
    reference: str
    correction: str = ""
    tolerance: str = ""
    needs: str = ""
    otherwise: str = ""
    unchecked: str = ""
    check: Check | None = None

    def __post_init__(self) -> None:
        if self.status not in STATUSES or self.kind not in get_args(Kind):
            raise BrokenCheck(f"claim {self.id}: unknown status {self.status!r} or kind {self.kind!r}")
        if self.document not in DOCUMENTS:
            raise BrokenCheck(f"claim {self.id}: document is one of {', '.join(DOCUMENTS)}, not {self.document!r}")
        if (self.check is None) != bool(self.unchecked):
            raise BrokenCheck(f"claim {self.id} needs either a check, or the reason why there is none")
        if self.status == "wrong" and not self.correction:
            raise BrokenCheck(f"claim {self.id} is called wrong but does not say what is right")


class ClaimsOf:
    """Rows of one document: `claim = ClaimsOf("003")`, then `@claim("2.2c", ...)` above the check of each row."""

    def __init__(self, document: str) -> None:
        self.document = document

    def __call__(self, name: str, **facts: Any) -> Callable[[Check], Claim]:
        """The decorator that turns a check into a row; `facts` are the other fields of `Claim`."""

        def row(check: Check) -> Claim:
            return Claim(id=name, document=self.document, check=check, **facts)

        return row

    def without_check(self, name: str, because: str, **facts: Any) -> Claim:
        """A row that nothing can be computed for, and why."""
        return Claim(id=name, document=self.document, unchecked=because, **facts)
