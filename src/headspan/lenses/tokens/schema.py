"""The variables of a tokens result."""

from __future__ import annotations

from headspan.schema import Schema, Table, Variable

SCHEMA = Schema(
    version=2,
    nodes={
        "": (
            Variable(
                "share",
                ("token",),
                "share of a token's squared norm inside the head's subspace",
                range="[0, 1]",
                null="a random direction: rank / d_model",
                formula="s = frac{‖ U^⊤ e ‖^2}{‖ e ‖^2}",
                text="U is an orthonormal basis of what the head reads (against W_E) or writes (against W_U), e a "
                "token's vector less the mean over tokens.",
                derived=("null",),
            ),
        )
    },
    tables=(Table("tokens", "Tokens inside a head's subspace", like=("share",)),),
    metrics=("share",),
)
