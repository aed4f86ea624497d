"""The variables of a validate result."""

from __future__ import annotations

from headspan.schema import Schema, Table, Variable

ROUNDING = "Algebra: 0 up to rounding."
NATS = "nats, at least 0"
SCORES = {"projection_kernel": "projection kernel of the pair", "composition_score": "composition score of the pair"}

INVARIANCE = (
    Variable("query_null", ("head",), "change of scores by a vector in the null space of W_Q", "at least 0", ROUNDING),
    Variable("query_read", ("head",), "change of scores by a vector in the read space of W_Q", "at least 0"),
    Variable("key_null", ("head",), "change of scores by a vector in the null space of W_K", "at least 0", ROUNDING),
    Variable("key_read", ("head",), "change of scores by a vector in the read space of W_K", "at least 0"),
    Variable("key_common", ("head",), "change of scores by one vector added to all keys", "at least 0"),
    Variable(
        "key_common_softmax",
        ("head",),
        "largest change of attention by one vector added to all keys",
        "[0, 1]",
        "Algebra: 0 up to rounding, unless positions turn keys or a norm follows.",
    ),
)
DISTANCE = (
    Variable("space_distance", ("head", "peer"), "Grassmann distance of attention spaces", "radians, at least 0"),
    Variable(
        "pattern_divergence",
        ("head", "peer"),
        "Jensen-Shannon divergence of attention patterns",
        "[0, log 2] nats",
        formula="J = H ( frac{P + Q}{2} ) − frac{H ( P ) + H ( Q )}{2}",
        text="Between attention patterns of two heads, or before and after a message is removed.",
        reference="Lin (1991)",
    ),
    Variable(
        "spearman",
        ("layer",),
        "rank correlation of distance and divergence, heads of a layer",
        "[-1, 1]",
        "Heads permuted (Mantel test): 0.",
        derived=("p",),
        reference="Mantel (1967)",
    ),
    Variable("spearman_low", ("layer",), "lower end of its 95 % interval", "[-1, 1]"),
    Variable("spearman_high", ("layer",), "upper end of its 95 % interval", "[-1, 1]"),
    Variable(
        "mean_spearman",
        (),
        "rank correlation of distance and divergence, mean over layers",
        "[-1, 1]",
        "Heads permuted (Mantel test): 0.",
        derived=("p",),
    ),
)
CAUSE = (
    *(Variable(name, ("pair",), words, "at least 0") for name, words in SCORES.items()),
    Variable("drawn", ("pair",), "whether the pair is in a random block", "true or false"),
    Variable("block", ("pair",), "number of the block that the pair was tested in", "at least 0"),
    Variable("read_share", ("pair",), "share of the message's energy that the target reads", "[0, 1]"),
    Variable(
        "scale",
        ("pair",),
        "factor of the message at equal read energy; 1 for the one the target reads most",
        "at least 1",
    ),
    Variable(
        "pattern_change",
        ("pair",),
        "change of the target's pattern without the message, at equal read energy",
        "[0, log 2] nats",
        "pattern_expected: what source and target give with others.",
    ),
    Variable("pattern_expected", ("pair",), "the same, expected from source and target", NATS),
    Variable(
        "loss_change", ("pair",), "change of the mean token loss without the message, at equal read energy", "nats"
    ),
    Variable("loss_size", ("pair",), "size of the change of the loss", NATS, "loss_expected."),
    Variable("loss_expected", ("pair",), "the same, expected from source and target", NATS),
)
PERMUTED = "Heads of a layer permuted: {}; the untrained twin beside it."
NULL_RANGE = (
    ("null_low", "2.5 % quantile under the null"),
    ("null_high", "97.5 % quantile under the null"),
)
CONTRAST = (
    Variable(
        "ratio",
        ("row",),
        "effect over what source and target lead to expect, at equal read energy",
        "above 0",
        PERMUTED.format("1"),
        derived=("p", "q"),
    ),
    *(Variable(name, ("row",), words, "above 0") for name, words in NULL_RANGE),
    Variable("pairs", ("row",), "number of pairs", "at least 0"),
    Variable(
        "ratio_untrained",
        ("row",),
        "the same ratio in the untrained twin",
        "above 0",
        PERMUTED.format("1"),
        derived=("p",),
    ),
)
RANKING = (
    Variable(
        "spearman",
        ("row",),
        "rank correlation of score and effect at equal read energy, source and target effects removed",
        "[-1, 1]",
        PERMUTED.format("0"),
        derived=("p", "q"),
    ),
    *(Variable(name, ("row",), words, "[-1, 1]") for name, words in NULL_RANGE),
    Variable("blocks", ("row",), "number of blocks", "at least 0"),
    Variable(
        "spearman_untrained",
        ("row",),
        "the same correlation in the untrained twin",
        "[-1, 1]",
        PERMUTED.format("0"),
        derived=("p",),
    ),
)

SCHEMA = Schema(
    version=3,
    nodes={
        "invariance": INVARIANCE,
        "distance": DISTANCE,
        "cause": CAUSE,
        "contrast": CONTRAST,
        "ranking": RANKING,
        "untrained": CAUSE,
    },
    tables=(
        Table("pairs", "Every pair tested for cause", like=("projection_kernel",), nodes="cause"),
        Table("contrasts", "Effects of strong and weak pairs", like=("ratio", "pairs"), nodes="contrast"),
        Table("rankings", "How scores rank effects", like=("spearman", "blocks"), nodes="ranking"),
        Table(
            "untrained", "The same pairs' test in the untrained twin", like=("projection_kernel",), nodes="untrained"
        ),
        Table("heads", "Changes of scores by null and read spaces", like=("query_null",), nodes="invariance"),
        Table("layers", "Distance against behavior by layer", like=("spearman",), nodes="distance"),
    ),
)
