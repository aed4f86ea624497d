"""The claims ledger: what the five documents say, whether it is so, and the computation that shows it.

`trial` holds numbers against one another, `claim` is a row, `draws` its random numbers, `ledger` all rows, `examining`
runs them, `listing` prints them. Every other module holds the rows of a chapter or document, each with its check.
"""

from headspan.ledger.claim import Claim, ClaimsOf
from headspan.ledger.examining import Examination, examinations, examined
from headspan.ledger.ledger import chosen, ledger
from headspan.ledger.trial import Evidence, Trial

__all__ = ["Claim", "ClaimsOf", "Evidence", "Examination", "Trial", "chosen", "examinations", "examined", "ledger"]
