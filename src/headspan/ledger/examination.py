"""An examination: a claim with the verdict of its check.

A wrong claim passes when both halves are shown: the printed form fails and the corrected one holds. Any other passes
when its trials hold. A check that raises has failed; a claim about a model that is not at hand is skipped, with the
reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from headspan.errors import BrokenCheck
from headspan.ledger.claim import Claim
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, Trial

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
