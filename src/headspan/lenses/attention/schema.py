"""The variables of an attention result."""

from __future__ import annotations

from headspan.schema import Schema, Table, Variable

HEAD, LAYER, MAP = ("head",), ("layer",), ("layer", "query", "key")
UNIFORM = "Uniform attention over the positions in reach."
DEALT = "States dealt to positions at random: 0 expected."
MOVED = "The same shot boundaries, all moved along the prompt by 1, 2, ... tokens."
SHARE = "[0, 1]"
NULL, TESTED = ("null",), ("null", "p")

MAPS = (
    Variable("pattern", ("head", "query", "key"), "attention", SHARE, UNIFORM),
    Variable("mean_map", MAP, "attention, mean over heads", SHARE, UNIFORM),
    Variable(
        "write_map",
        MAP,
        "attention, heads weighted by what they write",
        SHARE,
        UNIFORM,
        text="Head h counts at query i by the norm of A (x W_V) W_O over the sum of these norms.",
    ),
    Variable("left_out", ("layer", "query"), "attention to what is not shown", SHARE),
    Variable(
        "write_share",
        HEAD,
        "share of the norm that a layer's heads write",
        SHARE,
        "All heads of a layer write alike: 1 / heads.",
        derived=NULL,
    ),
    Variable(
        "embedding_cosine",
        ("query", "key"),
        "cosine of embeddings",
        "[-1, 1]",
        "Isotropic random vectors: 0 expected.",
        derived=NULL,
    ),
)
STATISTICS = (
    Variable("entropy", HEAD, "entropy of attention, nats", "[0, log n]", UNIFORM, derived=NULL),
    Variable(
        "relative_entropy",
        HEAD,
        "entropy / entropy of uniform attention",
        SHARE,
        "Uniform attention: 1.",
        formula="r = frac{- ∑_j A_{i j} log A_{i j}}{log n_i}",
        text="0 where one key takes all attention, 1 where all n keys in reach take the same.",
        derived=NULL,
        card="Relative entropy of attention",
    ),
    Variable("effective_positions", HEAD, "effective number of positions", "[1, n]", UNIFORM, derived=NULL),
    Variable("self_mass", HEAD, "attention to itself", SHARE, UNIFORM, derived=NULL, card="Attention to itself"),
    Variable(
        "previous_mass",
        HEAD,
        "attention to the position before",
        SHARE,
        UNIFORM,
        derived=NULL,
        card="Attention to the position before",
    ),
    Variable(
        "first_mass",
        HEAD,
        "attention to the first position",
        SHARE,
        UNIFORM,
        derived=NULL,
        card="Attention to the first position",
    ),
    Variable(
        "sink_mass",
        HEAD,
        "attention to the position that receives most",
        SHARE,
        UNIFORM,
        reference="Xiao et al. (2023), Efficient streaming language models with attention sinks",
        derived=NULL,
    ),
    Variable("sink_position", HEAD, "position that receives most attention", "0, 1, ..."),
    Variable("map_rank", HEAD, "numerical rank of the map", "[1, n]", UNIFORM, derived=NULL),
    *(
        Variable(
            f"{kind}_correlation",
            HEAD,
            f"rank correlation of attention with the cosine of {words}",
            "[-1, 1]",
            DEALT,
            derived=TESTED,
            optional=True,
        )
        for kind, words in (("embedding", "embeddings"), ("state", "states entering the layer"))
    ),
)
LAYERS = (
    Variable(
        "mean_cosine",
        LAYER,
        "mean cosine between states of different positions",
        "[-1, 1]",
        "Isotropic random states: 0 expected.",
        derived=NULL,
    ),
    Variable("residual", LAYER, "norm of states without their mean / norm of states", SHARE),
    Variable(
        "effective_rank",
        LAYER,
        "effective rank of states",
        "[1, n]",
        "Independent normal entries, same shape.",
        reference="Roy and Vetterli (2007), The effective rank",
        derived=NULL,
    ),
    Variable("mean_map_rank", LAYER, "numerical rank of the mean map", "[1, n]", f"{UNIFORM} As `map_rank_null`."),
    Variable("mean_map_relative_entropy", LAYER, "relative entropy of the mean map", SHARE, "Uniform attention: 1."),
    Variable("mean_relative_entropy", LAYER, "relative entropy, mean over heads", SHARE, "Uniform attention: 1."),
)
SHOT_MAP = ("layer", "query_shot", "key_shot")
SHOTS = (
    Variable("shot_map", SHOT_MAP, "attention between shots, mean over heads", SHARE, optional=True),
    Variable(
        "shot_write_map", SHOT_MAP, "attention between shots, heads weighted by what they write", SHARE, optional=True
    ),
    Variable(
        "within",
        HEAD,
        "attention within the own shot",
        SHARE,
        MOVED,
        derived=("null", "null_sd", "z", "p"),
        optional=True,
    ),
    Variable("across", HEAD, "attention to other shots", SHARE, optional=True),
    Variable("own_word", HEAD, "attention from clues to their own word", SHARE, UNIFORM, derived=NULL, optional=True),
    Variable("other_word", HEAD, "attention from clues to each earlier word", SHARE, optional=True),
    Variable("target_word", ("target",), "word asked for", optional=True),
    Variable("written_clue", ("target",), "clue that the model writes", optional=True),
    Variable("given_clue", ("target",), "clue in the file", optional=True),
    Variable(
        "log_likelihood",
        ("shots",),
        "log-likelihood of held-out clues per token, nats",
        "at most 0",
        "A uniform guess: -log of the vocabulary's size.",
        optional=True,
    ),
    Variable("log_likelihood_se", ("shots",), "standard error over words", "nats, at least 0", optional=True),
    Variable("log_likelihood_words", ("shots",), "number of clues scored", "0, 1, ...", optional=True),
)

TESTS = {"within": "within", "embedding": "embedding_correlation", "state": "state_correlation"}
SCHEMA = Schema(
    version=2,
    nodes={"": (*MAPS, *STATISTICS, *LAYERS, *SHOTS)},
    tables=(
        Table("heads", "Attention of every head", like=("write_share",)),
        Table("layers", "States and mean maps by layer", like=("mean_map_rank",)),
        Table("clues", "Clues of the words asked for", like=("written_clue",)),
        Table("likelihood", "Held-out clues by number of shots", like=("log_likelihood_words",)),
    ),
    metrics=("write_share", "self_mass", "previous_mass", "first_mass", "sink_mass", "relative_entropy", "within"),
    arrays=("query_text", "mean_map", "write_map", "left_out", "shot_map"),
    renamed={
        **{
            f"{one.name}_chance": f"{one.name}_null"
            for one in (*MAPS, *STATISTICS, *LAYERS, *SHOTS)
            if "null" in one.derived
        },
        **{f"{old}_p_value": f"{new}_p" for old, new in TESTS.items()},
        "within_sd": "within_null_sd",
        "word": "target_word",
        "written": "written_clue",
        "given": "given_clue",
        "standard_error": "log_likelihood_se",
        "words": "log_likelihood_words",
    },
)
