"""The variables of a mixing result."""

from __future__ import annotations

from headspan.schema import Schema, Table, Variable

SKIPS = ("attention alone", "with skips")
"""Whether a layer's output takes the place of the stream or is added to it."""
QUANTITIES = ("cosine", "residual", "effective_rank", "information")
DIMS = ("depth", "skip", "inverse_temperature")
RANDOM = "The same layers with Gaussian weights, every head's matrices with the rms of the learned ones."
TWIN = "The untrained twin: the same model with weights as its family draws them before training, on the same tokens."
WORDS = {
    "cosine": ("mean cosine of two tokens", "[-1 / (n - 1), 1]; 1 where all tokens point the same way"),
    "residual": ("share of the tokens that is not their mean", "[0, 1]; 0 where all tokens are equal"),
    "effective_rank": ("effective rank of the tokens", "[1, min(n, d_model)]; 1 where all are multiples of one"),
    "information": ("mutual information of neighboring tokens, leading components", "nats, at least 0 up to its error"),
}
FORMULAS = {
    "cosine": "cos = mean_( i ≠ j ) x_i^⊤ x_j / ( ‖ x_i ‖ ‖ x_j ‖ )",
    "residual": "‖ X - 1 m^⊤ ‖_F / ‖ X ‖_F",
    "effective_rank": "exp ( - ∑ p_i log p_i ) , p_i = σ_i^2 / ∑ σ^2",
}
REFERENCES = {"effective_rank": "Roy and Vetterli (2007)", "residual": "Dong, Cordonnier and Loukas (2021)"}


def _variables(dims: tuple[str, ...], null: str, derived: tuple[str, ...], formulas: bool) -> tuple[Variable, ...]:
    return tuple(
        Variable(
            name,
            dims,
            WORDS[name][0],
            range=WORDS[name][1],
            null=null,
            formula=FORMULAS.get(name, "") if formulas else "",
            reference=REFERENCES.get(name, "") if formulas else "",
            derived=derived,
        )
        for name in QUANTITIES
    )


SCHEMA = Schema(
    version=1,
    nodes={
        "": (
            *_variables(DIMS, RANDOM, ("null", "null_sd"), formulas=True),
            Variable("cosine_se", DIMS, "standard error of the mean cosine, over sequences", range="at least 0"),
        ),
        "run": _variables(("depth",), TWIN, ("null",), formulas=False),
    },
    tables=(
        Table("depths", "How alike tokens are, depth by depth", like=("cosine",)),
        Table("run", "The same in the whole running model", like=("cosine",), nodes="run"),
    ),
)
