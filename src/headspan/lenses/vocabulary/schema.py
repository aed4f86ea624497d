"""The variables of a vocabulary result."""

from __future__ import annotations

from headspan.schema import Schema, Table, Variable

RANDOM = "Random directions of the stream, all equally likely, read through the same table."
ROTATED = (
    "One factor of the circuit turned by a random rotation of the stream, which keeps all singular values; mean 0."
)
EXCHANGED = "A pair's score by the head and by the tables alone are exchanged at random; mean 0."
PERMUTED = "The right words of a relation are permuted; mean 0, variance 1 / (pairs - 1)."
TESTED = ("null", "null_sd", "z", "p", "q")
ELHAGE = "Elhage et al. (2021), A mathematical framework for transformer circuits"
MAPS = "Elhelo and Geva (2024), Inferring functionality of attention heads from their parameters"
DAR = "Dar et al. (2023), Analyzing transformers in embedding space"


def _concentration(dims: tuple[str, ...]) -> tuple[Variable, ...]:
    """How few tokens hold a direction's scores."""
    return (
        Variable(
            "top_mass",
            dims,
            "share of the squared token scores in the ten largest",
            range="[0, 1]",
            null=RANDOM,
            formula="m = frac{∑_{t ∈ top 10} x_t^2}{∑_t x_t^2}",
            text="x_t is the score of token t along a singular direction u: (e_t - mean e) · u. A direction reads as "
            "tokens if m exceeds what random directions give (q < 0.05).",
            reference=DAR,
            derived=TESTED,
        ),
        Variable("largest_z", dims, "largest |token score| over their rms", "at least 1", RANDOM, derived=TESTED),
        Variable("kurtosis", dims, "excess kurtosis of token scores", "at least -2", RANDOM, derived=TESTED),
    )


def _tokens(dims: tuple[str, ...], card: str = "") -> tuple[Variable, ...]:
    ends = (*dims, "end", "place")
    return (
        Variable("tokens_high", dims, "tokens with the highest scores", "text", card=card),
        Variable("tokens_low", dims, "tokens with the lowest scores", "text"),
        Variable("token", ends, "token id", "-1 where undefined"),
        Variable("token_z", ends, "token score over the rms of all", "any number"),
    )


def _directions(dims: tuple[str, ...], values: tuple[str, ...], card: str = "") -> tuple[Variable, ...]:
    return (
        *_concentration(dims),
        *_tokens(dims, card),
        Variable("singular_value", values, "singular value", "at least 0"),
        Variable("energy", values, "share of the squared singular values", "[0, 1]"),
    )


def _positivity(name: str, words: str, formula: str, text: str, card: str) -> tuple[Variable, ...]:
    values = ("head", f"{name}_eigenvalue")
    return (
        Variable(
            name,
            ("head",),
            f"{words} score",
            range="[-1, 1]",
            null=ROTATED,
            formula=formula,
            text=text,
            reference=ELHAGE,
            derived=TESTED,
            optional=True,
            card=card,
        ),
        Variable(
            f"{name}_ginibre_sd",
            (),
            f"{words} score, standard deviation for independent normal entries",
            "3 / (2 d_head)",
            optional=True,
        ),
        Variable(
            f"{name}_eigenvalue_real", values, f"real part of the {words} eigenvalues", "any number", optional=True
        ),
        Variable(
            f"{name}_eigenvalue_imag", values, f"imaginary part of the {words} eigenvalues", "any number", optional=True
        ),
    )


COPYING = (
    *_positivity(
        "copying",
        "copying",
        "c = frac{∑ Re λ_i}{∑ | λ_i |}",
        "λ are the eigenvalues of W_E W_V W_O W_U over tokens: 1 where a head raises the logit of the token it reads, "
        "-1 where it lowers it.",
        "Copying score",
    ),
    *_positivity(
        "matching",
        "matching",
        "c = frac{∑ Re λ_i}{∑ | λ_i |}",
        "λ are the eigenvalues of W_E W_Q W_K^T W_E^T over tokens: 1 where a head attends to tokens equal to its own, "
        "-1 where it avoids them.",
        "Matching score",
    ),
)
RELATIONS = (
    Variable(
        "relation_score",
        ("relation", "head"),
        "relation score: a head's OV circuit maps left words to their partners",
        range="any number, at most sqrt(pairs - 1)",
        null=PERMUTED,
        formula="s = frac{⟨ S_{i i} ⟩ - ⟨ S_{i j} ⟩}{sd ( S )}",
        text="S_ij is the logit that the head adds to right word j when it attends to left word i.",
        reference=MAPS,
        derived=TESTED,
    ),
    Variable(
        "beyond",
        ("relation", "head"),
        "relation score beyond the tables: how far the score exceeds that of the tables without a head",
        range="any number",
        null=EXCHANGED,
        text="Pair by pair, S~_ii over the spread of S~ less the same for T_ij = e(a_i) w(b_j), the product of the "
        "tables without a head; S~ is S less its row and column means.",
        derived=TESTED,
    ),
    Variable(
        "hits",
        ("relation", "head"),
        "share of left words whose partner scores highest",
        "[0, 1]",
        "1 / pairs",
        derived=("null",),
    ),
    Variable("tables_z", ("relation",), "z of the relation score of the token tables without a head", "any number"),
    Variable("tables_hits", ("relation",), "hits of the token tables without a head", "[0, 1]"),
    Variable("pairs", ("relation",), "pairs whose words are single tokens", "0, 1, ...", of="listed_pairs"),
    Variable("listed_pairs", ("relation",), "pairs in the list", "1, 2, ..."),
)
PROJECTION = Variable(
    "share",
    ("token",),
    "share of a token's squared norm inside the head's subspace",
    range="[0, 1]",
    null="a random direction: rank / d_model",
    formula="s = frac{‖ U^⊤ e ‖^2}{‖ e ‖^2}",
    text="U is an orthonormal basis of what the head reads (against W_E) or writes (against W_U), e a token's vector "
    "less the mean over tokens.",
    derived=("null",),
)
HEAD, MLP = ("head", "direction", "side"), ("layer", "direction", "side")
NEURON = ("neuron", "side")
SCHEMA = Schema(
    version=1,
    nodes={
        "OV": _directions(HEAD, HEAD[:2], "Tokens it reads and writes, by direction"),
        "QK": _directions(HEAD, HEAD[:2], "Tokens of its queries and keys, by direction"),
        "MLP": _directions(MLP, MLP),
        "W_U": _directions(HEAD[1:], HEAD[1:2]),
        "neurons": (*_concentration(NEURON), *_tokens(NEURON), Variable("norm", NEURON, "length", "at least 0")),
        "copying": COPYING,
        "relations": RELATIONS,
        "projection": (PROJECTION,),
    },
    tables=(
        Table(
            "directions",
            "Leading directions in tokens",
            like=("top_mass",),
            nodes="[OQMW]*",
            key="matrix",
            also=("singular_value", "energy"),
            most=2000,
        ),
        Table("copying", "Copying and matching by head", like=("copying", "matching"), nodes="copying"),
        Table(
            "relations",
            "Relations by head",
            like=("relation_score",),
            nodes="relations",
            also=("pairs", "tables_z", "tables_hits"),
            most=2000,
        ),
        Table("neurons", "Neurons in tokens", like=("top_mass",), nodes="neurons"),
        Table("projection", "Tokens inside a head's subspace", like=("share",), nodes="projection"),
    ),
    metrics=("top_mass", "largest_z", "kurtosis"),
)
