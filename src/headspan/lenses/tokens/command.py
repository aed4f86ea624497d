"""`headspan tokens`: which tokens live in what a head reads or writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headspan.command import Command, Option, Rows

if TYPE_CHECKING:
    from headspan.result import Result

COMMAND = Command(
    help="List the tokens whose embeddings have most of their norm inside a head's subspace.",
    options={
        "role": Option("Q, K or V (what the head reads) or O (what it writes)."),
        "vocabulary": Option(
            "W_E or W_U; by default W_E for Q, K, V and W_U for O.", names=("--vocabulary", "--table")
        ),
        "top": Option("How many tokens.", int),
    },
    arguments={"head": Option("A head such as L4H7.", metavar="HEAD")},
)


def show(result: Result) -> Iterator[Rows]:
    """The tokens, the largest share first."""
    made = result.attrs
    rows = result.table().rename(columns={"share_null": "expected"})
    yield Rows.of_records(f"Tokens inside W_{made['role']} of {made['head']}", rows.to_dict("records"))
