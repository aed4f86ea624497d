"""The variables of a detect result."""

from __future__ import annotations

from headspan.schema import Schema, Table, Variable

REPEATED, TEXT = "repeated random tokens", "text"
"""Kinds of prompts."""
DETECTORS = {
    "previous_token": "Voita et al. (2019), Analyzing multi-head self-attention",
    "duplicate_token": "Wang et al. (2023), Interpretability in the wild",
    "induction": "Olsson et al. (2022), In-context learning and induction heads",
    "identity": "",
    "first_token": "Xiao et al. (2023), Efficient streaming language models with attention sinks",
}
"""Kinds of heads, and who described them."""
ON_CARD = {
    "previous_token": "Previous-token score",
    "duplicate_token": "Duplicate-token score",
    "induction": "Induction score",
}
DIMS = ("head", "prompt")
SCORED = {"formula": "s = ⟨ A_{i , τ ( i )} ⟩_i"} | {
    "text": "Mean attention from each position i to the position τ(i) that this kind of head attends to."
}


def _detector(name: str, reference: str) -> tuple[Variable, ...]:
    words = name.replace("_", " ")
    score = Variable(
        name,
        DIMS,
        f"{words} score",
        range="[0, 1]",
        null="Uniform attention over the positions in reach.",
        reference=reference,
        derived=("null",),
        optional=True,
        card=ON_CARD.get(name, ""),
        **(SCORED if name == "induction" else {}),
    )
    error = Variable(f"{name}_se", DIMS, f"{words} score, standard error", range="at least 0", optional=True)
    label = Variable(f"{name}_label", DIMS, f"labeled as {words} head", range="true or false", optional=True)
    return score, error, label


IDENTITY = Variable(
    "identity_weights",
    ("head",),
    "identity score of the weights",
    range="[-1, 1]",
    null="Independent random W_V and W_O: mean 0, standard deviation 1 / sqrt(d_model d_head).",
    formula="s = frac{tr ( W_V W_O )}{sqrt{d_h} ‖ W_V W_O ‖_F}",
    text="1 where a head copies every direction it reads, -1 where it removes what it reads.",
    derived=("null", "null_sd", "z"),
    card="Identity from the weights",
)
SCHEMA = Schema(
    version=2,
    nodes={"": (*(one for name in DETECTORS for one in _detector(name, DETECTORS[name])), IDENTITY)},
    tables=(
        Table(
            "heads",
            "Detector scores of every head",
            like=(*DETECTORS, "identity_weights"),
            also=tuple(one.name for one in IDENTITY.family()),
        ),
    ),
    metrics=("induction", "previous_token", "duplicate_token", "identity", "first_token", "identity_weights"),
    renamed={
        "score": "{detector}",
        "standard_error": "{detector}_se",
        "chance": "{detector}_null",
        "label": "{detector}_label",
        "identity_weights_chance": "identity_weights_null",
        "identity_weights_sd": "identity_weights_null_sd",
    },
)
