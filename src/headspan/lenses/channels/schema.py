"""The variables of a channels result: tables of all pairs, the strongest channels, one pair's scores, and their use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headspan.dims import COMPOSING
from headspan.schema import Schema, Table, Variable

if TYPE_CHECKING:
    import xarray as xr

    from headspan.result import Result

KERNEL, COMPOSITION = "projection_kernel", "composition_score"
SCORES = (KERNEL, COMPOSITION)
TWO_WAY, HAAR = NULLS = ("two-way", "haar")
PAIRS, TOP, ONE = "O[QKV]", "top/O[QKV]", "pair/[QKVO][QKVO]"
ELHAGE = "Elhage et al. (2021), A mathematical framework for transformer circuits"
ROTATION = (
    "haar: a random rotation between what the source writes and what the destination reads, which keeps both spectra; "
    "about (1/sqrt(p) + 1/sqrt(q)) / sqrt(d_model) for flat ones."
)
NULL = (
    "two-way: what the two heads and the two layers have in general, fitted to the logarithm of all pairs of different "
    f"layers; the standard deviation is that of the logarithm. {ROTATION}"
)
DERIVED = ("null", "null_sd", "z", "p", "q")


NOTHING, WHOLE, LEADING, REST, RANDOM_SENT, RANDOM_READ, SHARED, RANDOM_SHARED = REMOVED = (
    "nothing",
    "whole message",
    "leading channels",
    "rest of the message",
    "random directions of the message",
    "random directions that are read",
    "leading shared directions",
    "random shared directions",
)
"""What is taken from the destinations' input, in the node `use`."""


def _coupling(dims: tuple[str, ...]) -> Variable:
    return Variable(
        "coupling",
        dims,
        "strength over the norms of both circuits",
        "[0, 1]",
        NULL,
        formula="κ_k = frac{σ_k(M N)}{‖ M ‖_F ‖ N ‖_F}",
        text="M is the source's W_V W_O; N is the destination's W_Q W_Kᵀ for OQ, its transpose for OK, W_V W_O for OV. "
        "The singular value decomposition of M N is that of a core of d_head columns. A random rotation changes "
        "neither norm, so that strength and coupling have the same z, p and q. Under the haar null mean, spread and "
        "skewness of the largest singular value follow from both spectra; under the two-way null the logarithm is "
        "compared with a robust fit over all pairs of different layers. q is that of Benjamini and Hochberg (1995) "
        "within a pairing and null.",
        reference=ELHAGE,
        derived=DERIVED,
    )


def _numbers(dims: tuple[str, ...]) -> tuple[Variable, ...]:
    return (
        Variable("strength", dims, "singular value of the channel", "at least 0"),
        _coupling(dims),
        Variable("share", dims, "share of the pair's energy that the channel carries", "[0, 1]"),
    )


def _spread(dims: tuple[str, ...]) -> tuple[Variable, ...]:
    return (
        Variable("participation", dims, "participation ratio of the channels", "[1, d_head]"),
        Variable("carrying", dims, "channels that carry 90 % of the energy", "[1, d_head]"),
    )


GRID = (
    *_numbers(("src", "dst")),
    *_spread(("src", "dst")),
    Variable("n_pairs", (), "pairs that compose", "at least 0"),
    Variable("n_significant", ("null",), "pairs whose leading channel has q < 0.05", "at least 0"),
)
CHANNEL = (
    *_numbers(("channel",)),
    *_spread(("channel",)),
    Variable(
        "stream_cosine",
        ("channel",),
        "cosine of what is sent and what is received",
        "[0, 1]",
        "Random directions: about 1/sqrt(d_model).",
    ),
    Variable(
        "alignment",
        ("channel",),
        "cosine of the source's and the target's direction",
        "[-1, 1]",
        "Random directions: 0, standard deviation 1/sqrt(d_model).",
        derived=("p",),
    ),
    Variable(
        "sign", ("channel",), "whether the channel excites or inhibits like by like", "excites, inhibits or neutral"
    ),
    Variable(
        "direction",
        ("channel", "side", "feature"),
        "directions of the channel in the stream, length 1",
        "[-1, 1]",
    ),
    Variable("tokens", ("channel", "side"), "tokens at both ends of each direction", "text", optional=True),
    Variable(
        "token_concentration",
        ("channel", "side"),
        "largest score of a token over the rms score of all",
        "at least 1",
        "Random directions of the stream, read through the same table.",
        derived=("null", "null_sd", "p"),
        optional=True,
    ),
)


def _of_score(name: str, words: str, span: str, null: str) -> tuple[Variable, ...]:
    optional = name == COMPOSITION
    reverse = "reverse: pairs of the same model in reverse order, equally many layers apart."
    return (
        Variable(name, (), words, span, f"{null} {reverse}", derived=DERIVED, optional=optional),
        Variable(
            f"{name}_rank", (), f"rank by {words} among all pairs", "[1, n_pairs]", "the middle", optional=optional
        ),
        Variable(f"{name}_n_pairs", (), f"pairs with a {words}", "at least 1", optional=optional),
    )


PAIR = (
    *_of_score(
        KERNEL,
        "projection kernel",
        "[0, min(p, q)] dimensions",
        "haar: independent random subspaces of the same dimensions, mean pq/d_model.",
    ),
    *_of_score(
        COMPOSITION,
        "composition score",
        "[0, 1]",
        "haar: a random rotation that keeps both spectra, about 1/sqrt(d_model).",
    ),
    Variable(
        "angle", ("number",), "principal angle in degrees, ascending", "[0, 90]", reference="Björck and Golub (1973)"
    ),
    Variable("grassmann_distance", (), "root of the summed squared principal angles (radians)", "at least 0"),
    Variable(
        "singular_value",
        ("place",),
        "singular values of the composed matrix",
        "at least 0",
        ROTATION,
        derived=("null", "null_sd", "p"),
        optional=True,
    ),
)
USE = (
    Variable("pairing", ("row",), "through which pairing", "text"),
    Variable("removed", ("row",), "what is taken from the destinations' input", "text"),
    Variable("channels", ("row",), "how many channels", "[0, d_head]"),
    Variable("draw", ("row",), "number of the random draw; -1 where nothing is random", "at least -1"),
    Variable("untrained", ("row",), "whether it is the untrained twin", "0 or 1"),
    Variable("read_energy", ("row",), "read energy over that of the whole message", "at least 0"),
    Variable("pattern_change", ("row",), "divergence of the destinations' patterns (nats)", "[0, log 2]", "0"),
    Variable("loss", ("row",), "mean loss of the tokens that repeat (nats)", "at least 0"),
    Variable("copied", ("row",), "share of repeated tokens that are predicted", "[0, 1]", "1 over the vocabulary"),
)
ACTIVITY = (
    Variable("activity", ("channel",), "share of the message's read energy that the channel carries", "[0, 1]"),
    Variable("activity_untrained", ("channel",), "the same in the untrained twin", "[0, 1]"),
)

SCHEMA = Schema(
    version=1,
    nodes={PAIRS: GRID, TOP: CHANNEL, ONE: PAIR, "use": USE, "activity": ACTIVITY},
    tables=(
        Table(
            "channels",
            "The strongest channels",
            like=("strength",),
            nodes=TOP,
            key="pairing",
        ),
        Table("pairs", "The leading channel of every pair", like=("strength",), nodes=PAIRS, key="pairing", most=2000),
        Table(
            "pairings",
            "Scores of the pair in every pairing",
            like=SCORES,
            nodes=ONE,
            key="pairing",
            also=tuple(f"{name}_{part}" for name in SCORES for part in ("rank", "n_pairs")),
        ),
        Table("angles", "Principal angles", like=("angle",), nodes=ONE, key="pairing"),
        Table("spectrum", "Singular values of the pair", like=("singular_value",), nodes=ONE, key="pairing"),
        Table("tokens", "Tokens along the directions of the channels", like=("tokens",), nodes=TOP, key="pairing"),
        Table("use", "What happens when channels are removed", like=("loss",), nodes="use"),
        Table("activity", "How much of the message each channel carries", like=("activity",), nodes="activity"),
    ),
    metrics=("coupling", "strength"),
    aliases={"pk": KERNEL, "cs": COMPOSITION},
)


def top_nodes(result: Result) -> dict[str, xr.Dataset]:
    """The listed channels of every pairing that a result has."""
    there = [name for name in COMPOSING if "top" in result and name in result["top"].children]
    return {name: result.dataset(f"top/{name}") for name in there}
