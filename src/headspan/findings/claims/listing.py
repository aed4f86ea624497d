"""The ledger as a page: one table per document and chapter, with the numbers each verdict rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from headspan.findings.claims.claim import DOCUMENTS, STATUSES
from headspan.findings.claims.examining import Examination
from headspan.findings.claims.trial import Evidence, Trial

COLUMNS = ("id", "claim", "status", "what is right", "tolerance", "evidence", "verdict")
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


def table_rows(examinations: Sequence[Examination]) -> Iterator[tuple[str, ...]]:
    """The cells of each claim's row."""
    for examination in examinations:
        claim, evidence = examination.claim, examination.evidence
        found = examination.reason if evidence is None else evidence_text(evidence)
        yield claim.id, claim.statement, claim.status, claim.correction, claim.tolerance, found, examination.verdict


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
    """The whole ledger as Markdown."""
    lines = [summary(examinations), ""]
    for document, group in groupby(examinations, key=lambda examination: examination.claim.document):
        lines += [f"## {document}: {DOCUMENTS[document]}", ""]
        lines += [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
        lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in table_rows(list(group))]
        lines.append("")
    return "\n".join(lines)
