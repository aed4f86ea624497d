"""The variables of an attention result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from headspan.schema import Schema, Table, Variable

UNIFORM = "Uniform attention over the positions in reach."
MOVED_STATES = "States moved along the sequence in a circle, forward and reversed: 0 expected."
MOVED = "The same shot boundaries, all moved along the prompt by 1, 2, ... tokens."
ISOTROPIC = "Isotropic random vectors: 0 expected."
SHARE = "[0, 1]"
MAP, SHOT_MAP = ("layer", "query", "key"), ("layer", "query_shot", "key_shot")
NULL = ("null",)
TESTED: dict[str, Any] = {"derived": ("null", "p"), "optional": True}
GUESS = "A uniform guess: -log of the vocabulary's size."


def _head(name: str, words: str, values: str = SHARE, null: str = UNIFORM, **more: Any) -> Variable:
    """A statistic of heads, with its value under the null beside it."""
    return Variable(name, ("head",), words, values, null, derived=more.pop("derived", NULL), **more)


def _layer(name: str, words: str, values: str = SHARE, null: str = "", **more: Any) -> Variable:
    return Variable(name, ("layer",), words, values, null, **more)


MAPS = (
    Variable("pattern", ("head", "query", "key"), "attention", SHARE, UNIFORM, card="Attention on the example prompt"),
    Variable("mean_map", MAP, "attention, mean over heads", SHARE, UNIFORM),
    Variable("write_map", MAP, "attention, heads weighted by the norm of what they write", SHARE, UNIFORM),
    Variable("left_out", ("layer", "query"), "attention to what is not shown", SHARE),
    Variable("state_cosine", MAP, "cosine of states entering the layer", "[-1, 1]", ISOTROPIC, optional=True),
    Variable("embedding_cosine", ("query", "key"), "cosine of embeddings", "[-1, 1]", ISOTROPIC, derived=NULL),
    _head("write_share", "share of the norm that a layer's heads write", null="All heads write alike: 1 / heads."),
)
HEADS = (
    _head("entropy", "entropy of attention, nats", "[0, log n]"),
    _head(
        "relative_entropy",
        "entropy / entropy of uniform attention",
        null="Uniform attention: 1.",
        formula="r = frac{- ∑_j A_{i j} log A_{i j}}{log n_i}",
        text="0 where one key takes all attention, 1 where all n keys in reach take the same.",
        card="Relative entropy of attention",
    ),
    _head("effective_positions", "effective number of positions", "[1, n]"),
    _head("self_mass", "attention to itself", card="Attention to itself"),
    _head("previous_mass", "attention to the position before", card="Attention to the position before"),
    _head("first_mass", "attention to the first position", card="Attention to the first position"),
    _head(
        "sink_mass",
        "attention to the position that receives most",
        reference="Xiao et al. (2023), Efficient streaming language models with attention sinks",
    ),
    _head("sink_position", "position that receives most attention", "0, 1, ...", "", derived=()),
    _head("map_rank", "numerical rank of the map", "[1, n]"),
    *(
        _head(
            name,
            f"rank correlation of attention with the cosine of {words}, beyond position",
            "[-1, 1]",
            MOVED_STATES,
            **TESTED,
        )
        for name, words in (
            ("embedding_correlation", "embeddings"),
            ("state_correlation", "states entering the layer"),
        )
    ),
)
LAYERS = (
    _layer("mean_cosine", "mean cosine between states of positions", "[-1, 1]", ISOTROPIC, derived=NULL),
    _layer("residual", "norm of states without their mean / norm of states"),
    _layer(
        "effective_rank",
        "effective rank of states",
        "[1, n]",
        "States of independent normal entries, same shape.",
        reference="Roy and Vetterli (2007), The effective rank",
        derived=NULL,
    ),
    _layer("mean_map_rank", "numerical rank of the mean map", "[1, n]", f"{UNIFORM} As `map_rank_null`."),
    _layer("mean_map_relative_entropy", "relative entropy of the mean map", null="Uniform attention: 1."),
    _layer("mean_relative_entropy", "relative entropy, mean over heads", null="Uniform attention: 1."),
)
SHOTS = tuple(
    replace(each, optional=True)
    for each in (
        Variable("shot_map", SHOT_MAP, "attention between shots, mean over heads", SHARE),
        Variable("shot_write_map", SHOT_MAP, "attention between shots, heads weighted by what they write", SHARE),
        _head("within", "attention within the own shot", null=MOVED, derived=("null", "null_sd", "z", "p")),
        _head("across", "attention to other shots", null="", derived=()),
        _head("own_word", "attention from clues to their own word"),
        _head("other_word", "attention from clues to each earlier word", null="", derived=()),
        Variable("target_word", ("target",), "word asked for", "text"),
        Variable("written_clue", ("target",), "clue that the model writes", "text"),
        Variable("clue_after", ("target", "shots"), "clue that the model writes after so many shots", "text"),
        Variable("given_clue", ("target",), "clue in the file", "text"),
        Variable("log_likelihood", ("shots",), "log-likelihood of held-out clues, nats per token", "at most 0", GUESS),
        Variable("log_likelihood_se", ("shots",), "standard error over words", "nats, at least 0"),
        Variable("log_likelihood_words", ("shots",), "number of clues scored", "0, 1, ..."),
    )
)
ALL = (*MAPS, *HEADS, *LAYERS, *SHOTS)
SUMMARIZED = (
    *("write_share", "entropy", "relative_entropy", "effective_positions"),
    *("self_mass", "previous_mass", "first_mass", "sink_mass", "within"),
)
"""Statistics of heads whose mean and standard deviation over the prompts of a batch are told."""


def _batch() -> Iterator[Variable]:
    """The statistics of heads and layers once more, by prompt."""
    for one in ALL:
        if one.dims in (("head",), ("layer",)):
            yield replace(one, dims=("prompt", *one.dims), optional=True, card="", formula="", text="")
        if one.name in SUMMARIZED:
            for end, words in (("mean", "mean over prompts"), ("sd", "standard deviation over prompts")):
                yield Variable(f"{one.name}_{end}", ("head",), f"{one.long_name}, {words}", one.range, optional=True)
    yield Variable("n_tokens", ("prompt",), "tokens of the prompt", "at least 1")
    yield Variable("prompt_text", ("prompt",), "beginning of the prompt", "text")
    yield Variable("loss", ("prompt",), "mean loss of the prompt's tokens", "nats per token", optional=True)


TESTS = {"within": "within", "embedding": "embedding_correlation", "state": "state_correlation"}
SCHEMA = Schema(
    version=2,
    nodes={"": ALL, "batch": tuple(_batch())},
    tables=(
        Table("heads", "Attention of every head", like=("write_share",)),
        Table("layers", "States and mean maps by layer", like=("mean_map_rank",)),
        Table("clues", "Clues of the words asked for", like=("written_clue",)),
        Table(
            "prompts",
            "Prompts of the batch",
            like=("n_tokens",),
            nodes="batch",
            without=tuple(f"{one.name}_null" for one in ALL if "null" in one.derived),
        ),
        Table(
            "batch", "Attention of every head, over the prompts of the batch", like=("write_share_mean",), nodes="batch"
        ),
        Table("likelihood", "Held-out clues by number of shots", like=("log_likelihood_words",)),
    ),
    metrics=("write_share", "self_mass", "previous_mass", "first_mass", "sink_mass", "relative_entropy", "within"),
    arrays=("query_text", "mean_map", "write_map", "left_out", "shot_map"),
    renamed={
        **{f"{one.name}_chance": f"{one.name}_null" for one in ALL if "null" in one.derived},
        **{f"{old}_p_value": f"{new}_p" for old, new in TESTS.items()},
        "within_sd": "within_null_sd",
        "word": "target_word",
        "written": "written_clue",
        "given": "given_clue",
        "standard_error": "log_likelihood_se",
        "words": "log_likelihood_words",
    },
)
