"""The variables of one pair of heads: a node per pairing."""

from __future__ import annotations

from headspan.schema import Schema, Table, Variable

KERNEL, COMPOSITION = "projection_kernel", "composition_score"
METRICS = (KERNEL, COMPOSITION)
REVERSE = "reverse: pairs of the same model in reverse order, equally many layers apart."


def _of_metric(name: str, words: str, span: str, null: str) -> tuple[Variable, ...]:
    optional = name == COMPOSITION
    return (
        Variable(
            name, (), words, span, f"{null} {REVERSE}", derived=("null", "null_sd", "z", "p", "q"), optional=optional
        ),
        Variable(
            f"{name}_rank", (), f"rank by {words} among all pairs", "[1, n_pairs]", "the middle", optional=optional
        ),
        Variable(f"{name}_n_pairs", (), f"pairs with a {words}", "at least 1", optional=optional),
    )


SCHEMA = Schema(
    version=2,
    nodes={
        "[QKVO][QKVO]": (
            *_of_metric(
                KERNEL,
                "projection kernel",
                "[0, min(p, q)] dimensions",
                "haar: independent random subspaces of the same dimensions, mean pq/d_model.",
            ),
            *_of_metric(
                COMPOSITION,
                "composition score",
                "[0, 1]",
                "haar: a random rotation that keeps both spectra, about 1/sqrt(d_model).",
            ),
            Variable(
                "angle",
                ("number",),
                "principal angle in degrees, ascending",
                "[0, 90]",
                reference="Björck and Golub (1973)",
            ),
            Variable("grassmann_distance", (), "root of the summed squared principal angles (radians)", "at least 0"),
        )
    },
    tables=(
        Table(
            "pairings",
            "Scores of the pair in every pairing",
            like=METRICS,
            nodes="[QKVO][QKVO]",
            key="pairing",
            also=tuple(f"{name}_{part}" for name in METRICS for part in ("rank", "n_pairs")),
        ),
        Table("angles", "Principal angles", like=("angle",), nodes="[QKVO][QKVO]", key="pairing"),
    ),
    metrics=METRICS,
    aliases={"pk": KERNEL, "cs": COMPOSITION},
)
