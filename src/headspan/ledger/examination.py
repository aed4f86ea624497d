"""An examination: a claim with the verdict of its check.

- pass: the trials hold. Of a wrong claim both halves are shown: the printed form fails and the corrected one holds.
- fail: a trial does not hold, or the check broke.
- differs: an observation is not there on a model that stands in for the one it was made on.
- kept numbers: numbers of earlier runs that headspan keeps are as the claim says; nothing was measured.
- baseline: only what random or synthetic weights give was tried, not the model the claim is about.
- skipped: no model that the check needs was given.

The ledger as a page: one table per document, with the numbers each verdict rests on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from time import perf_counter
from typing import TYPE_CHECKING, Any

from headspan.demo import demo_folder
from headspan.errors import BrokenCheck
from headspan.ledger.claim import DEMO, DOCUMENTS, STATUSES, VERDICTS, Claim, Verdict
from headspan.ledger.trial import Draws, Evidence, Trial

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint


NAMED = {"pass": "passed", "fail": "failed", "differs": "differ", "baseline": "baseline only"}
"""Verdicts as a summary counts them."""


@dataclass(frozen=True)
class Examination:
    """A claim with its verdict; `reason` says why it was skipped or what broke, `on` what it was tried on."""

    claim: Claim
    verdict: Verdict
    evidence: Evidence | None = None
    reason: str = ""
    seconds: float = 0.0
    on: str = ""

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
            "needs": claim.needs,
            "tried_on": self.on,
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


def verdict_on(claim: Claim, evidence: Evidence, model: str = "") -> Verdict:
    """What the trials come to, by the claim's status and the model they were made on.

    "Not reproduced" is said of a stand-in: on the model that the claim is about, the claim is tried as it stands.
    """
    stand_in = model not in ("", *claim.models[:1])
    if claim.status == "wrong" or (claim.status == "not reproduced" and (stand_in or not model)):
        if not evidence.printed:
            raise BrokenCheck(f"claim {claim.id} is called {claim.status}, but its check does not try the printed form")
        holds = evidence.truth_holds and not evidence.printed_holds
    elif evidence.printed:
        raise BrokenCheck(f"claim {claim.id} is said to hold, so its printed form needs no trials of its own")
    else:
        holds = evidence.truth_holds
    if not holds:
        return "differs" if stand_in and claim.status == "observational" else "fail"
    return "pass" if model else claim.at_best


def examine(claim: Claim, seed: int = 0, models: Mapping[str, Checkpoint] | None = None) -> Examination:
    """Check one claim. The seed and the claim's id fix its random numbers."""
    at_hand = {**(models or {}), **({DEMO: _demo()} if DEMO in claim.models else {})}
    given = {name: at_hand[name] for name in claim.models if name in at_hand}
    obstacles = {name: claim.obstacle(checkpoint) for name, checkpoint in given.items()}
    model = next((name for name, obstacle in obstacles.items() if obstacle is None), "")
    unfit = "; ".join(f"{name} was given, but {obstacle}" for name, obstacle in obstacles.items() if obstacle)
    if claim.needs and not model and not claim.otherwise:
        asked = " or ".join(f"--model {name}=PATH" for name in claim.models)
        return Examination(claim, "skipped", reason=unfit or f"needs the model {claim.needs}: {asked}")
    on = model or (f"{claim.otherwise} ({unfit})" if unfit else claim.otherwise)
    begun, evidence = perf_counter(), None
    try:
        evidence = claim.check(Draws(seed, claim.id), *([given[model]] if model else []))
        verdict, reason = verdict_on(claim, evidence, model), ""
    except Exception as problem:  # noqa: BLE001 - a check that breaks is a verdict, not the end of the run
        verdict, reason = "fail", f"{type(problem).__name__}: {problem}"
    return Examination(claim, verdict, evidence, reason, perf_counter() - begun, on)


@cache
def _demo() -> Checkpoint:
    from headspan.checkpoint import open_checkpoint

    return open_checkpoint(str(demo_folder()))


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
**observational** (about a trained model) or was **not reproduced**. In the evidence, `measured = expected ± slack` is a
trial that came out, `≠` one that did not. Random numbers are seeded; verdicts do not depend on the seed. Logarithms are
natural.

A check **passes** only if it tried the claim. Where a claim is about a model that was not given, the verdict says what
was tried instead: **baseline**, only what random or synthetic weights give; **kept numbers**, numbers of our own
training runs that are stored with headspan, compared and not measured again (`--model lab=RUN/model` measures yours);
or the claim is **skipped**. `[gpt2]` in front of the evidence is the model that was used. Where a claim was tried on a
model that stands in for its own and came out otherwise, it **differs**. Models are given as `--model gpt2=PATH`,
likewise `minilm`, `mistral`, `stories` and `lab`.

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


def check_text(examination: Examination) -> str:
    """The verdict, what it was tried on in brackets, and the numbers or the reason."""
    evidence, on = examination.evidence, f"[{examination.on}] " if examination.on else ""
    return f"{examination.verdict}: {on}{examination.reason if evidence is None else evidence_text(evidence)}"


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
        "tried on": examination.on,
        "evidence": examination.reason if evidence is None else evidence_text(evidence),
    }
    return {name: text for name, text in found.items() if text}


def table_rows(examinations: Sequence[Examination]) -> Iterator[tuple[str, str, str]]:
    """The three cells of each claim's row."""
    for examination in examinations:
        claim = examination.claim
        right = f" **Right:** {claim.correction}" if claim.correction else ""
        within = f" *Tolerance: {claim.tolerance}.*" if claim.tolerance else ""
        yield f"{claim.id} {claim.status}", f"{claim.statement}{right}{within}", check_text(examination)


def summary(examinations: Sequence[Examination]) -> str:
    """How many claims of each status, and how many came to each verdict."""
    statuses = Counter[str](examination.claim.status for examination in examinations)
    verdicts = Counter[str](examination.verdict for examination in examinations)
    always = ("pass", "fail", "skipped")
    shown = [verdict for verdict in VERDICTS if verdicts[verdict] or verdict in always]
    parts = ", ".join(f"{statuses[status]} {status}" for status in STATUSES if statuses[status])
    counts = ", ".join(f"{verdicts[verdict]} {NAMED.get(verdict, verdict)}" for verdict in shown)
    return f"{len(examinations)} claims: {parts}. Checks: {counts}."


def models_used(examinations: Sequence[Examination]) -> list[str]:
    """Names of the models that claims were tried on, in the order of the ledger."""
    return list(dict.fromkeys(one.on for one in examinations if one.on in one.claim.models))


def markdown(examinations: Sequence[Examination]) -> str:
    """The whole ledger as a page of Markdown."""
    used = ", ".join(models_used(examinations)) or "none"
    lines = [INTRODUCTION, f"{summary(examinations)} Models used: {used}.", ""]
    for document, group in groupby(examinations, key=lambda examination: examination.claim.document):
        lines += [f"## {document}: {DOCUMENTS[document]}", ""]
        lines += [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
        lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in table_rows(list(group))]
        lines.append("")
    return "\n".join(lines)
