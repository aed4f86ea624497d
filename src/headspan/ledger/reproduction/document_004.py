"""Document 004, subspaces while a small transformer learns to copy: its figures, from the runs of the lab.

Exhibits are added here like those of the other documents: a function under `@EXHIBITS.add(...)`.
"""

from __future__ import annotations

from headspan.ledger.reproduction.exhibit import Exhibits

EXHIBITS = Exhibits("004")
