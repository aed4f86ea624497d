"""The claims: what a document says, whether it is so, what is right instead, and the check that shows it.

Texts are data: `texts/*.yaml` holds every claim in reading order. A check is a function under `@check(id)` in a module
of this folder. `all_claims` ties the two together and refuses a claim without a check and a check without a claim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from headspan.errors import ArgumentError, BrokenCheck
from headspan.input_files import file_text, yaml_value
from headspan.ledger.trial import Evidence

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint

Kind = Literal["formula", "text", "typo", "code", "added"]
Status = Literal["holds", "asymptotic", "approximate", "wrong", "observational", "not reproduced"]
STATUSES: tuple[str, ...] = get_args(Status)
Verdict = Literal["pass", "fail", "differs", "kept numbers", "baseline", "skipped"]
VERDICTS: tuple[str, ...] = get_args(Verdict)
WITHOUT_MODEL = ("pass", "kept numbers", "baseline")
"""What a check can come to at best where no model was given."""
RUNNING = "running"
MODELS = {"gpt2": "gpt2", "minilm": "bert", "mistral": "mistral", "stories": "llama", "lab": "headspan-lab"}
"""Names of the models that claims are about, each with its family."""
DEMO = "demo"
"""The model that is always at hand."""
DOCUMENTS = {
    "000": "null and row spaces of attention heads",
    "001": "projection kernel and composition score",
    "002": "positions and tokens in orthogonal subspaces",
    "003": "thesis on Gaussian information, softmax geometry and bilinear forms",
    "004": "orthogonal subspaces while a small transformer learns to copy",
}
FOLDER = Path(__file__).with_name("texts")
TEXTS = {
    "document_000": "000",
    "document_001": "001",
    "document_002": "002",
    "chapter_2": "003",
    "chapter_4": "003",
    "chapter_5_softmax": "003",
    "chapter_5_ratios": "003",
    "chapter_6": "003",
    "chapter_7": "003",
    "chapter_8": "003",
    "document_004": "004",
}
"""Files of texts in reading order, each with its document."""
MODULES = (
    "document_000",
    "document_001",
    "document_002",
    "chapter_2_moments",
    "chapter_2_attention",
    "chapter_4",
    "chapter_5_exponentials",
    "chapter_5_circles",
    "chapter_6_scores",
    "chapter_6_weights",
    "chapter_7",
    "chapter_8",
    "chapter_8_mistral",
    "document_004",
)
"""Modules of checks."""

Check = Callable[..., Evidence]
"""Takes `Draws`, and the `Checkpoint` where the claim is about a model."""
CHECKS: dict[str, Check] = {}
"""Every check by the id of its claim, filled as modules are imported."""


def check(name: str) -> Callable[[Check], Check]:
    """The decorator that ties a computation to the claim of that id."""

    def tie(function: Check) -> Check:
        if name in CHECKS:
            raise BrokenCheck(f"claim {name} has two checks: {CHECKS[name].__name__} and {function.__name__}")
        CHECKS[name] = function
        return function

    return tie


@dataclass(frozen=True)
class Claim:
    """One row of the ledger.

    `statement` and `correction` are in our own words; `correction` is what is right where the claim is wrong, and what
    to add where it holds. `needs` names the model a claim is about, and others it can be tried on after " or "; the
    check gets the first of them that was given and has all that it `uses` (stored parts such as W_E and MLP, or
    "running"). `otherwise` says what the check rests on where none is given, and `at_best` what it comes to then:
    "pass" where the claim is about any weights, "baseline" where only what random weights give was tried, "kept
    numbers" where numbers of earlier runs were compared. Without `otherwise` the claim is skipped then.
    """

    id: str
    document: str
    kind: Kind
    status: Status
    statement: str
    reference: str
    check: Check
    correction: str = ""
    tolerance: str = ""
    needs: str = ""
    uses: str = ""
    otherwise: str = ""
    at_best: Verdict = "pass"

    def __post_init__(self) -> None:
        if self.status not in STATUSES or self.kind not in get_args(Kind):
            raise BrokenCheck(f"claim {self.id}: unknown status {self.status!r} or kind {self.kind!r}")
        if self.document not in DOCUMENTS:
            raise BrokenCheck(f"claim {self.id}: document is one of {', '.join(DOCUMENTS)}, not {self.document!r}")
        if unknown := [name for name in self.models if name not in (*MODELS, DEMO)]:
            raise BrokenCheck(f"claim {self.id} needs {unknown[0]!r}; models are {', '.join((*MODELS, DEMO))}")
        if self.at_best not in WITHOUT_MODEL or (self.at_best != "pass" and not (self.needs and self.otherwise)):
            raise BrokenCheck(f"claim {self.id}: at_best is {self.at_best!r}, of a claim that says what it rests on")
        if self.status == "wrong" and not self.correction:
            raise BrokenCheck(f"claim {self.id} is called wrong but does not say what is right")

    @property
    def models(self) -> tuple[str, ...]:
        """Models the check can be given: first the one the claim is about, then others it can be tried on."""
        return tuple(self.needs.split(" or ")) if self.needs else ()

    def obstacle(self, checkpoint: Checkpoint) -> str | None:
        """What of the check's needs a checkpoint lacks, in one line; None where it has everything."""
        from headspan.runtime import run_obstacle

        uses = self.uses.split(", ") if self.uses else []
        if RUNNING in uses and (reason := run_obstacle(checkpoint)) is not None:
            return reason
        lacking = [part for part in uses if part != RUNNING and part in checkpoint.stack().missing()]
        return f"it lacks {', '.join(lacking)}" if lacking else None


@cache
def all_claims() -> tuple[Claim, ...]:
    """Every claim, in reading order, with its check."""
    for module in MODULES:
        import_module(f"headspan.ledger.{module}")
    rows = [row for name, document in TEXTS.items() for row in claims_of(FOLDER / f"{name}.yaml", document)]
    if orphans := CHECKS.keys() - {row.id for row in rows}:
        raise BrokenCheck(f"there are checks of claims that no file of texts holds: {', '.join(sorted(orphans))}")
    return tuple(rows)


def claims_of(path: Path, document: str) -> list[Claim]:
    """The claims of one file of texts, each with the check registered for its id."""
    rows = yaml_value(file_text(path), path.name)
    allowed = Claim.__dataclass_fields__.keys() - {"document", "check"}
    for row in rows:
        for key, value in row.items():
            if key not in allowed or not isinstance(value, str):
                fields = ", ".join(sorted(allowed))
                raise BrokenCheck(f"claim {row.get('id')}: {key}: {value!r} is no text of one of the fields {fields}")
        if lacking := {"id", "kind", "status", "statement", "reference"} - row.keys():
            raise BrokenCheck(f"claim {row.get('id')} lacks {', '.join(sorted(lacking))}")
        if row["id"] not in CHECKS:
            raise BrokenCheck(f"claim {row['id']} has no check: what nothing tries has no place in the ledger")
    return [Claim(document=document, check=CHECKS[row["id"]], **row) for row in rows]


def select_claims(
    claims: Sequence[Claim], *, document: str | None = None, name: str | None = None, status: str | None = None
) -> list[Claim]:
    """The claims of a document, of an id (a whole one or the beginning of several) and of a status."""
    if document is not None and document not in DOCUMENTS:
        raise ArgumentError(f"there is no document {document!r}; documents are {', '.join(DOCUMENTS)}")
    if status is not None and status not in STATUSES:
        raise ArgumentError(f"there is no status {status!r}; statuses are {', '.join(STATUSES)}")
    wanted = [row for row in claims if document in (None, row.document) and status in (None, row.status)]
    if name is not None:
        exact = [claim for claim in wanted if claim.id == name]
        wanted = exact or [claim for claim in wanted if claim.id.startswith(name)]
    if not wanted:
        raise ArgumentError("no claim is of that document, id and status; `headspan claims` without options shows all")
    return wanted
