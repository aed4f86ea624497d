"""The variables of a ranks result."""

from __future__ import annotations

from headspan.dims import ROLES, head_axis
from headspan.schema import Schema, Table, Variable

NULL = "Independent continuous random entries: d_head with probability one."

SCHEMA = Schema(
    version=2,
    nodes={
        "": (
            *(
                Variable(
                    f"rank_{role}",
                    (head_axis(role),),
                    f"rank of W_{role}",
                    range="[0, d_head]",
                    null=NULL,
                    formula="rank ( W ) = | { i : σ_i > 2 u rms ( W ) ( √d + √p ) } |" if role == "Q" else "",
                    text="The number of singular values above the noise of the dtype that the weights were stored in "
                    "(u is its unit roundoff), or above a share of the largest where one was asked for; the provenance "
                    "says which. Random weights have full rank."
                    if role == "Q"
                    else "",
                    card=f"Rank of W_{role}",
                    of=f"full_rank_{role}",
                )
                for role in ROLES
            ),
            *(
                Variable(f"full_rank_{role}", (), f"largest possible rank of W_{role}", range="d_head")
                for role in ROLES
            ),
        )
    },
    tables=(
        Table("heads", "Rank of every head", like=("rank_Q", "rank_O"), also=("full_rank_Q", "full_rank_O")),
        Table("kv_heads", "Rank of every kv head", like=("rank_K", "rank_V"), also=("full_rank_K", "full_rank_V")),
    ),
)
