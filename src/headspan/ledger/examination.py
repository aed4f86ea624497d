"""An examination: a claim with the verdict of its check.

A wrong claim passes when both halves are shown: the printed form fails and the corrected one holds. Any other passes
when its trials hold. A check that raises has failed; a claim about a model that is not at hand is skipped, with the
reason.

The ledger as a page: one table per document, with the numbers each verdict rests on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from headspan.errors import BrokenCheck
from headspan.ledger.claim import DOCUMENTS, STATUSES, Claim
from headspan.ledger.trial import Draws, Evidence, Trial

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint


Verdict = Literal["pass", "fail", "skipped"]
TWO_HALVES = ("wrong", "not reproduced")
"""Statuses under which the printed form must be shown to fail."""


@dataclass(frozen=True)
class Examination:
    """A claim with its verdict; `reason` says why it was skipped or what broke."""

    claim: Claim
    verdict: Verdict
    evidence: Evidence | None = None
    reason: str = ""
    seconds: float = 0.0

    def record(self) -> dict[str, Any]:
        """The examination as JSON."""
        claim, evidence = self.claim, self.evidence
        return {
            "id": claim.id,
            "document": claim.document,
            "kind": claim.kind,
            "status": claim.status,
            "verdict": self.verdict,
            "statement": claim.statement,
            "correction": claim.correction,
            "tolerance": claim.tolerance,
            "reference": claim.reference,
            "model": claim.needs,
            "reason": self.reason,
            "evidence": None if evidence is None else _evidence_record(evidence),
        }


def _evidence_record(evidence: Evidence) -> dict[str, Any]:
    return {
        "truth": [_trial_record(trial) for trial in evidence.truth],
        "printed": [_trial_record(trial) for trial in evidence.printed],
        "figures": {name: _finite(value) for name, value in evidence.figures.items()},
    }


def _trial_record(trial: Trial) -> dict[str, Any]:
    return {
        "name": trial.name,
        "relation": trial.relation,
        "measured": _finite(trial.measured),
        "expected": _finite(trial.expected),
        "slack": trial.slack,
        "holds": trial.holds,
    }


def _finite(value: float) -> float | str:
    """A number as JSON can hold it: infinities by name."""
    return value if abs(value) != float("inf") else ("infinity" if value > 0 else "-infinity")


def verdict_on(claim: Claim, evidence: Evidence) -> Verdict:
    """Pass or fail, by the claim's status."""
    if claim.status in TWO_HALVES:
        if not evidence.printed:
            raise BrokenCheck(f"claim {claim.id} is called {claim.status}, but its check does not try the printed form")
        return "pass" if evidence.truth_holds and not evidence.printed_holds else "fail"
    if evidence.printed:
        raise BrokenCheck(f"claim {claim.id} is said to hold, so its printed form needs no trials of its own")
    return "pass" if evidence.truth_holds else "fail"


def examine(claim: Claim, seed: int = 0, models: Mapping[str, Checkpoint] | None = None) -> Examination:
    """Check one claim. The seed and the claim's id fix its random numbers."""
    if claim.check is None:
        return Examination(claim, "skipped", reason=claim.unchecked)
    about = [models[claim.needs]] if models and claim.needs in models else []
    if claim.needs and not about and not claim.otherwise:
        return Examination(claim, "skipped", reason=f"needs the model {claim.needs}: --model {claim.needs}=PATH")
    begun = perf_counter()
    evidence = None
    try:
        evidence = claim.check(Draws(seed, claim.id), *about)
        return Examination(claim, verdict_on(claim, evidence), evidence, seconds=perf_counter() - begun)
    except Exception as problem:  # noqa: BLE001 - a check that breaks is a verdict, not the end of the run
        return Examination(claim, "fail", evidence, f"{type(problem).__name__}: {problem}", perf_counter() - begun)


def examine_all(
    claims: Iterable[Claim], seed: int = 0, models: Mapping[str, Checkpoint] | None = None
) -> Iterator[Examination]:
    """Check claims, one after the other."""
    for claim in claims:
        yield examine(claim, seed, models)


INTRODUCTION = """\
# Claims

What the documents behind headspan say, whether it is so, and the numbers that show it. Statements are in our own words.
`headspan claims` runs every check again; `headspan claims --id 6.33` shows one in full.

A claim **holds**, holds **asymptotically** or **approximately** (with the error given), is **wrong** (then the right
form stands beside it, and the check shows both halves: the printed form fails, the right one passes), is
**observational** (about a trained model, checked where that model is at hand) or was **not reproduced**. In the
evidence, `measured = expected ± slack` is a trial that came out, `≠` one that did not. Random numbers are seeded;
verdicts do not depend on the seed. Logarithms are natural.

The ledger began as a table of 158 claims with numbers found by others. Where ours differ:

- 2.5a: the number of real eigenvalues of a random matrix is about sqrt(2n/pi) + 1/2, so that at n = 50 the leading term
  alone is 8 % short; the check takes the series of Edelman, Kostlan and Shub to 4 standard errors.
- 6.49: at n = 64 we find the printed bound violated in 17 to 18 % of draws, not 11 %; the estimate for large n,
  (2/pi) atan(1 / (|W_q| |W_k|)), gives 16 to 17 %. That it is violated is the same.
- 7.2.1c, 5.3.2f and 8.5c: the numbers depend on a set-up that is not stated (which logits, which weights, what length);
  ours is in the check, and the verdicts agree.
- 2.3b: the first increase with distance is the step from lag 11 to lag 12.
"""
COLUMNS = ("claim", "what it says, and what is right", "check")
SMALL = 1e-9
SIGNS = {"equals": "=", "at most": "≤", "at least": "≥"}


def number_text(value: float) -> str:
    """Four digits; rounding error, which differs from machine to machine, as a bound."""
    if value != 0 and abs(value) < SMALL:
        return "<1e-9" if value > 0 else ">-1e-9"
    return f"{value:.4g}"


def trial_text(trial: Trial) -> str:
    """`name 1.23 = 1.24 ± 0.02`, with the sign struck out where it does not hold."""
    sign = SIGNS[trial.relation] if trial.holds else {"=": "≠", "≤": ">", "≥": "<"}[SIGNS[trial.relation]]
    slack = f" ± {trial.slack:.2g}" if trial.slack and trial.relation == "equals" else ""
    return f"{trial.name} {number_text(trial.measured)} {sign} {number_text(trial.expected)}{slack}"


def evidence_text(evidence: Evidence) -> str:
    """Every trial and figure on one line, the printed form's first."""
    parts = [f"as printed: {trial_text(trial)}" for trial in evidence.printed]
    parts += [trial_text(trial) for trial in evidence.truth]
    parts += [f"{name} {number_text(value)}" for name, value in evidence.figures.items()]
    return "; ".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def facts(examination: Examination) -> dict[str, str]:
    """Everything about one claim by name, without what is empty."""
    claim, evidence = examination.claim, examination.evidence
    found = {
        "claim": claim.statement,
        "status": claim.status,
        "what is right": claim.correction,
        "tolerance": claim.tolerance,
        "reference": claim.reference,
        "check": examination.verdict,
        "evidence": examination.reason if evidence is None else evidence_text(evidence),
    }
    return {name: text for name, text in found.items() if text}


def table_rows(examinations: Sequence[Examination]) -> Iterator[tuple[str, str, str]]:
    """The three cells of each claim's row."""
    for examination in examinations:
        claim, evidence = examination.claim, examination.evidence
        right = f" **Right:** {claim.correction}" if claim.correction else ""
        within = f" *Tolerance: {claim.tolerance}.*" if claim.tolerance else ""
        found = examination.reason if evidence is None else evidence_text(evidence)
        yield f"{claim.id} {claim.status}", f"{claim.statement}{right}{within}", f"{examination.verdict}: {found}"


def summary(examinations: Sequence[Examination]) -> str:
    """How many claims of each status, and how many passed."""
    statuses = Counter[str](examination.claim.status for examination in examinations)
    verdicts = Counter(examination.verdict for examination in examinations)
    parts = ", ".join(f"{statuses[status]} {status}" for status in STATUSES if statuses[status])
    return (
        f"{len(examinations)} claims: {parts}. "
        f"Checks: {verdicts['pass']} passed, {verdicts['fail']} failed, {verdicts['skipped']} skipped."
    )


def markdown(examinations: Sequence[Examination]) -> str:
    """The whole ledger as a page of Markdown."""
    lines = [INTRODUCTION, summary(examinations), ""]
    for document, group in groupby(examinations, key=lambda examination: examination.claim.document):
        lines += [f"## {document}: {DOCUMENTS[document]}", ""]
        lines += [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
        lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in table_rows(list(group))]
        lines.append("")
    return "\n".join(lines)
