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
        "Heads dealt anew (Mantel test): 0.",
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
        "Heads dealt anew (Mantel test): 0.",
        derived=("p",),
    ),
)
CAUSE = (
    *(Variable(name, ("pair",), words, "at least 0") for name, words in SCORES.items()),
    Variable("drawn", ("pair",), "whether the pair is among the random ones", "true or false"),
    Variable("removed_share", ("pair",), "share of the message's energy that the target reads", "[0, 1]"),
    Variable(
        "pattern_change",
        ("pair",),
        "change of the target's pattern without the message",
        "[0, log 2] nats",
        "pattern_control: equal energy removed along random directions of the source's write space.",
    ),
    Variable("pattern_control", ("pair",), "the same for the control", "[0, log 2] nats"),
    Variable("pattern_excess", ("pair",), "change of the pattern beyond the control", "nats"),
    Variable("loss_change", ("pair",), "rise of the mean token loss without the message", "nats"),
    Variable("loss_control", ("pair",), "the same for the control", "nats"),
    Variable("loss_size", ("pair",), "size of the change of the loss", NATS),
    Variable("loss_excess", ("pair",), "size of the change of the loss beyond the control", "nats"),
)
RANKING = (
    Variable("spearman", ("row",), "rank correlation of score and outcome over pairs", "[-1, 1]", "Unrelated: 0."),
    Variable("low", ("row",), "lower end of its 95 % interval", "[-1, 1]"),
    Variable("high", ("row",), "upper end of its 95 % interval", "[-1, 1]"),
    Variable("pairs", ("row",), "number of pairs", "at least 0"),
)

SCHEMA = Schema(
    version=2,
    nodes={"invariance": INVARIANCE, "distance": DISTANCE, "cause": CAUSE, "ranking": RANKING},
    tables=(
        Table("pairs", "Every pair tested for cause", like=("projection_kernel",), nodes="cause"),
        Table("rankings", "How scores rank effects", like=("spearman", "pairs"), nodes="ranking"),
        Table("heads", "Changes of scores by null and read spaces", like=("query_null",), nodes="invariance"),
        Table("layers", "Distance against behavior by layer", like=("spearman",), nodes="distance"),
    ),
)
