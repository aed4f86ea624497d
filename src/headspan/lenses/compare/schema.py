"""The variables of a comparison: `drift/<role>`, `wiring/<pairing>` and `spectra/<kind of matrix>`."""

from __future__ import annotations

from collections.abc import Iterator

from headspan.dims import PAIRINGS
from headspan.lenses.catalog import lens
from headspan.schema import Schema, Table, Variable

DRIFT = lens("drift").schema
NULL = "A Gaussian change of the same norm to every head; mean over draws."
PAIR = ("src", "dst")
COUNTS = {
    "n_kept": "edges before and after",
    "n_gained": "edges only after",
    "n_lost": "edges only before",
    "n_beyond_null": "edges gained or lost whose change is significant",
    "n_changed": "pairs whose change is significant",
}
SUMMARIES = {
    "stable_rank": ("stable rank", "[1, k]"),
    "effective_rank": ("effective rank", "[1, k]"),
    "spikes": ("singular values beyond the largest of a random matrix", "0 to k"),
    "energy": ("squared norm", "at least 0"),
}
NULLED = tuple(name for name in SUMMARIES if name != "energy")
PER_HEAD = "_head"
"""Ending of kinds of matrices whose spectra are in the drift."""


EDGE_NULL = "The null that the attribute `null` names, as in affinity."


def _wiring() -> Iterator[Variable]:
    for name in ("before", "after"):
        yield Variable(f"kernel_{name}", PAIR, f"projection kernel {name}", "[0, d_head]", EDGE_NULL, derived=("q",))
        yield Variable(f"edge_{name}", PAIR, f"whether the pair is an edge {name}", "true or false")
    yield Variable(
        "change",
        PAIR,
        "change of the projection kernel",
        "[-d_head, d_head]",
        NULL,
        derived=("null", "null_sd", "z", "p", "q"),
    )
    yield from (Variable(name, (), f"number of {words}", "at least 0") for name, words in COUNTS.items())


def _spectra(axes: tuple[str, ...]) -> Iterator[Variable]:
    yield Variable("ks", axes, "Kolmogorov-Smirnov distance of the singular values before and after", "[0, 1]")
    for name in ("before", "after"):
        yield Variable(f"singular_value_{name}", (*axes, "rank"), f"singular value {name}", "at least 0")
        for summary, (words, values) in SUMMARIES.items():
            yield Variable(f"{summary}_{name}", axes, f"{words} {name}", values)
    for summary in NULLED:
        words, values = SUMMARIES[summary]
        yield Variable(f"{summary}_null", (), f"{words} expected of a random matrix of this shape", values)


def _spectra_nodes() -> Iterator[tuple[str, tuple[Variable, ...]]]:
    for kind, variables in lens("spectra").schema.nodes.items():
        axes = next((variable.dims for variable in variables if variable.name == "energy"), None)
        if axes is not None and not kind.endswith(PER_HEAD):
            yield f"spectra/{kind}", tuple(_spectra(axes))


SCHEMA = Schema(
    version=2,
    nodes={
        **{f"drift/{role}": variables for role, variables in DRIFT.nodes.items()},
        **{f"wiring/{pairing}": tuple(_wiring()) for pairing in PAIRINGS},
        **dict(_spectra_nodes()),
    },
    tables=(
        Table("heads", "How far every head moved", ("grassmann", "rank_before"), nodes="drift/[QKVO]", key="role"),
        Table("pairings", "Edges kept, gained and lost", tuple(COUNTS), nodes="wiring/*", key="pairing"),
        Table("edges", "Pairs, largest change first", ("change",), "wiring/*", "pairing", by="change", most=150),
        Table(
            "matrices",
            "Spectra before and after",
            ("ks",),
            nodes="spectra/*",
            key="matrix",
            also=tuple(f"{name}_null" for name in NULLED),
        ),
    ),
    metrics=DRIFT.metrics,
    two_sided=True,
)
