"""Chapters 2, 4 and 6 of the thesis and document 000 stand in the ledger whole, each row with its status."""

from __future__ import annotations

import pytest

from headspan.ledger import all_claims

STATUSES = {
    "wrong": """
        2.1a 2.1b 2.1c 2.1d 2.1e 2.1f 2.2b 2.2c 2.2d 2.2e 2.2f 2.2j 2.3a 2.4a 2.4b 2.5a 2.5b 2.5c 2.5d 2.5e 4.1b
        4.2a 4.2.2c 4.3a 4.3d 4.3.2b 6.2 6.2.4b 6.24-6.29 6.29b 6.29c 6.33-6.34 6.34b 6.36 6.43-6.47 6.45 6.42/6.48
        6.48b 6.49 6.3.3c 6.4a S0.3 S0.7
    """,
    "holds": """
        2.1g 2.2a 2.2h 2.2i 2.2k 2.3b 2.4c 2.5i 4.1a 4.2b 4.2.2a 4.2.2b 4.2.2d 4.3b 4.3c 4.3.2a 4.3.2c 6.3/B.1 6.3*
        6.2.4a 6.10 6.11 6.13-6.16 6.17-6.23 6.2.5d 6.30-6.32 6.35 6.37 6.38 6.39-6.41 S0.1 S0.4 S0.8
    """,
    "approximate": """
        2.2g 2.5f 6.3.3b S0.2 S0.5 S0.6
    """,
    "asymptotic": """
        2.5g 2.5h 4.3.2d 6.12 6.4b
    """,
    "observational": """
        4.2.3
    """,
}


@pytest.mark.parametrize("status", STATUSES)
def test_every_row_of_these_chapters_is_there_with_its_status(status: str) -> None:
    found = {claim.id: claim.status for claim in all_claims()}
    assert {name: found.get(name) for name in STATUSES[status].split()} == dict.fromkeys(
        STATUSES[status].split(), status
    )


def test_these_chapters_have_so_many_rows() -> None:
    assert len({name for names in STATUSES.values() for name in names.split()}) == 88
