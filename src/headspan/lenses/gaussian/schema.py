"""The variables of a gaussian result."""

from __future__ import annotations

from headspan.schema import Schema, Table, Variable

PAIRS = ("self", "neighbor", "unrelated")
"""Kinds of pairs of a query and a key: a token with itself, with the one before it, with one of another sequence."""
ISSERLIS = "Isserlis (1918)"
GUESS = "The same guess for every head: 0."

MOMENTS = {
    "mean": "mean of a head's logits",
    "sd": "standard deviation of a head's logits",
    "excess_kurtosis": "excess kurtosis of a head's logits",
}
AGREEMENT = {
    "r2": ("R² of the prediction of {}", "(-inf, 1]", GUESS),
    "slope": ("slope of measured on predicted {}", "any number; 1 if calibrated", ""),
    "ratio": ("geometric mean of measured over predicted {}", "above 0; 1 if sizes agree", ""),
}
COMPARED = {"logit_sd": ("spread of logits", ("pair",)), "entropy": ("entropy of attention", ())}


def _moments() -> list[Variable]:
    found = []
    for name, words in MOMENTS.items():
        spread = name == "sd"
        found.append(
            Variable(
                f"logit_{name}",
                ("head", "pair"),
                f"{words}, predicted from moments",
                range="at least 0" if spread else "any number",
                formula="Var ( q^⊤ k ) = tr ( Σ_q Σ_k ) + μ_q^⊤ Σ_k μ_q + μ_k^⊤ Σ_q μ_k" if spread else "",
                text="What means and covariances alone predict for independent queries and keys." if spread else "",
                reference=ISSERLIS,
            )
        )
        found.append(Variable(f"logit_{name}_measured", ("head", "pair"), f"{words}, measured", range="any number"))
    return found


def _agreement() -> list[Variable]:
    return [
        Variable(f"{what}_{name}{end}", dims, f"{words.format(of)}, {over}", range=span, null=null)
        for name, (words, span, null) in AGREEMENT.items()
        for what, (of, more) in COMPARED.items()
        for end, dims, over in (("", ("layer", *more), "heads of a layer"), ("_all", more, "all heads"))
    ]


SCHEMA = Schema(
    version=2,
    nodes={
        "": (
            Variable(
                "entropy",
                ("head",),
                "entropy of attention predicted from moments",
                range="[0, log n] nats",
                card="Entropy predicted as Gaussian",
            ),
            Variable(
                "entropy_measured",
                ("head",),
                "entropy of attention measured",
                range="[0, log n] nats",
                card="Entropy measured",
            ),
            Variable("entropy_uniform", ("layer",), "entropy of uniform attention", range="log n nats"),
            *_moments(),
            *_agreement(),
            Variable(
                "information",
                ("layer", "distance"),
                "mutual information of tokens so far apart, leading components",
                range="nats, at least 0 up to its error",
                null="Tokens of different sequences, as far apart: what their positions alone give.",
                derived=("null",),
            ),
        )
    },
    tables=(
        Table("heads", "Entropy of attention, predicted and measured", like=("entropy",)),
        Table("logits", "Logits of every head, predicted and measured", like=("logit_sd",)),
        Table("layers", "Agreement by layer", like=("entropy_r2",)),
        Table("information", "Mutual information by distance", like=("information",)),
    ),
    renamed={"information_chance": "information_null"},
)
