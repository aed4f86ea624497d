"""The variables of a comparison, node by node: drift, wiring, channels, change, tokens, spectra, behavior."""

from __future__ import annotations

from collections.abc import Iterator

from headspan.dims import COMPOSING, PAIRINGS
from headspan.lenses.catalog import lens
from headspan.schema import Schema, Table, Variable

DRIFT = lens("drift").schema
NULL = "The random change of every head that the attribute `change_null` names; mean over draws."
ROTATION = "A random rotation of the change, which keeps its spectrum: r / d, with the rank r of the space."
SHUTTLEWORTH = "Shuttleworth et al. (2024), LoRA vs full fine-tuning: an illusion of equivalence"
TESTED = ("null", "null_sd", "z", "p", "q")
CHANGED = ("W_Q", "W_K", "W_V", "W_O", "W_gate", "W_in", "W_out")
"""Kinds of whole matrices whose changes are looked at, in the order of tables and figures."""
SHARES = {
    "read_share": "share of the change of the reader's weights inside what the writer writes",
    "write_share": "share of the change of the writer's weights inside what the reader reads",
}
PAIR = ("src", "dst")
TWO_WAY, HAAR = "two-way", "haar"
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
        derived=TESTED,
    )
    for name, words in SHARES.items():
        yield Variable(name, PAIR, words, "[0, 1]", ROTATION, derived=TESTED, optional=True)
        yield Variable(f"{name}_mean", (), f"{words}, mean of pairs that compose", "[0, 1]", ROTATION, optional=True)
        yield Variable(f"{name}_reverse", (), f"{words}, mean of pairs in reverse order", "[0, 1]", optional=True)
        order = f"{words}: p-value of the two means being equal, by permuting layers"
        yield Variable(f"{name}_order_p", (), order, "[0, 1]", optional=True)
    yield from (Variable(name, (), f"number of {words}", "at least 0") for name, words in COUNTS.items())


def _channels() -> Iterator[Variable]:
    coupling = "The null that the attribute `channel_null` names, as in channels."
    for name in ("before", "after"):
        yield Variable(
            f"coupling_{name}", PAIR, f"coupling of the leading channel {name}", "[0, 1]", coupling, derived=("q",)
        )
        yield Variable(f"channel_{name}", PAIR, f"whether the leading channel stands out {name}", "true or false")
    yield Variable(
        "gain",
        PAIR,
        "coupling of the leading channel after, less that of the same directions before",
        "[-1, 2]",
        NULL,
        formula="u'ᵀ (M'N' / (|M'| |N'|) - MN / (|M| |N|)) v'",
        text="M N is the composed matrix of a pair, u' and v' the outer directions of its leading channel after.",
        derived=TESTED,
    )
    yield Variable(
        "loss",
        PAIR,
        "coupling of the leading channel before, less that of the same directions after",
        "[-1, 2]",
        NULL,
        derived=TESTED,
    )
    yield Variable("gained", PAIR, "whether the leading channel after is new", "true or false")
    yield Variable("lost", PAIR, "whether the leading channel before is gone", "true or false")
    for name in ("before", "after"):
        yield Variable(f"n_{name}", (), f"number of leading channels that stand out {name}", "at least 0")
    yield Variable("n_gained", (), "number of channels gained", "at least 0", "0")
    yield Variable("n_lost", (), "number of channels lost", "at least 0", "0")


def _change() -> Iterator[Variable]:
    axis, pair = ("layer",), ("layer", "direction")
    yield Variable("relative_change", axis, "relative change of the matrix", "at least 0")
    rank = "participation ratio of the change's spectrum"
    yield Variable("change_rank", axis, rank, "[1, k]", "A random change of the same size.", derived=("null",))
    yield Variable(
        "similarity",
        pair,
        "similarity of a leading direction after to the nearest direction before",
        "[0, 1]",
        "The matrix with a random change of the same size; drawn where a direction is below the threshold.",
        formula="max_i |⟨u'_j, u_i⟩|",
        text="Directions are left singular vectors of the matrix with the stream first. An intruder dimension is one "
        "whose similarity is below the threshold and significantly lower than after a random change.",
        reference=SHUTTLEWORTH,
        derived=TESTED,
    )
    yield Variable("direction_share", pair, "share of the squared norm after along a leading direction", "[0, 1]")
    new = "number of leading directions below the threshold"
    yield Variable("n_new", axis, new, "0 to 10", "A random change of the same size.", derived=("null",))
    yield Variable("n_intruders", axis, f"{new}, significantly so", "0 to 10")


def _tokens() -> Iterator[Variable]:
    pair, null = ("layer", "direction"), "Random directions of the stream through the same table."
    yield Variable("share", pair, "share of the change's energy along one of its directions", "[0, 1]")
    mass = "share of the squared token scores that the ten largest hold"
    yield Variable("top_mass", pair, mass, "[0, 1]", null, derived=("null", "null_sd", "p", "q"))
    yield Variable("highest", pair, "tokens with the highest scores along the direction", range="text")
    yield Variable("lowest", pair, "tokens with the lowest scores along the direction", range="text")


def _behavior() -> Iterator[Variable]:
    nats, null = "at least 0, nats per token", "A random change of the same size on every parameter that changed."
    logs = f"{null} On logarithms."
    words = "Jensen-Shannon divergence of attention before and after"
    yield Variable(
        "divergence", ("head",), words, "[0, log 2] nats", logs, derived=TESTED, card="Attention moved (nats)"
    )
    states = "relative change of final states"
    yield Variable("state_change", (), states, "at least 0", logs, derived=TESTED[:-1])
    for name in ("before", "after"):
        yield Variable(f"loss_{name}", (), f"loss {name}", nats, optional=True)
    yield Variable("loss_change", (), "change of the loss", "nats per token", null, derived=TESTED[:-1], optional=True)
    for name, end in (("low", "lower"), ("high", "upper")):
        yield Variable(
            f"loss_change_{name}",
            (),
            f"change of the loss, {end} end of its 95 % interval",
            "nats per token",
            optional=True,
        )


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
        **{f"channels/{pairing}": tuple(_channels()) for pairing in COMPOSING},
        **{f"change/{kind}": tuple(_change()) for kind in CHANGED},
        **{f"tokens/{kind}": tuple(_tokens()) for kind in CHANGED},
        **dict(_spectra_nodes()),
        "behavior": tuple(_behavior()),
    },
    tables=(
        Table("heads", "How far every head moved", ("grassmann", "rank_before"), nodes="drift/[QKVO]", key="role"),
        Table("pairings", "Edges kept, gained and lost", tuple(COUNTS), nodes="wiring/*", key="pairing"),
        Table("edges", "Pairs, largest change first", ("change",), "wiring/*", "pairing", by="change", most=150),
        Table("channel_changes", "Channels before and after", ("coupling_after",), "channels/*", "pairing", most=150),
        Table("changes", "The change of every matrix", ("relative_change",), nodes="change/*", key="matrix"),
        Table(
            "directions",
            "Leading directions after, against all before",
            ("similarity",),
            nodes="change/*",
            key="matrix",
            most=400,
        ),
        Table("tokens", "Tokens along the change", ("top_mass",), nodes="tokens/*", key="matrix"),
        Table("attention", "How far attention moved", ("divergence",), nodes="behavior"),
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
