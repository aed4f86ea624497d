"""The claims ledger: what the five documents say, whether it is so, and the computation that shows it.

The texts of all claims are in `texts/*.yaml`; modules `document_*` and `chapter_*` (of the thesis, document 003) hold
their checks. `claim` ties the two together, `trial` holds numbers against one another and draws random ones, `models`
and `running` measure trained models, `examination` runs checks to verdicts, `figures` draws them.
"""

from headspan.ledger.claim import Claim, all_claims, check, select_claims
from headspan.ledger.examination import Examination, examine, examine_all
from headspan.ledger.trial import Evidence, Trial, evidence

__all__ = [
    "Claim",
    "Evidence",
    "Examination",
    "Trial",
    "all_claims",
    "check",
    "evidence",
    "examine",
    "examine_all",
    "select_claims",
]
