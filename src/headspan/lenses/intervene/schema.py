"""The variables of an intervene result."""

from __future__ import annotations

from headspan.schema import Schema, Table, Variable

UNMODIFIED = "unmodified"
"""The setting that changes nothing, the first of every result."""
NATS = "nats, at least 0"
UNIFORM = "Uniform attention over the positions in reach."
SAME = "No change: 0."
MEASURES = (
    Variable("entropy", (), "entropy of attention, nats", NATS, UNIFORM),
    Variable("relative_entropy", (), "entropy / entropy of uniform attention", "[0, 1]", "Uniform attention: 1."),
    Variable("kl", (), "KL divergence from the unmodified pattern", NATS, SAME),
    Variable("jsd", (), "Jensen-Shannon divergence from the unmodified pattern", "[0, log 2] nats", SAME),
    Variable("self_mass", (), "attention to itself", "[0, 1]", UNIFORM),
    Variable("argmax_mass", (), "attention to the largest entry of a row", "[0, 1]", UNIFORM),
)
AVERAGED = "averaged_relative_entropy"
WITH_NULL = ("self_mass", "argmax_mass")


def _over(prefix: str, dims: tuple[str, ...], suffix: str) -> tuple[Variable, ...]:
    """The measures over some axes."""
    return tuple(
        Variable(
            prefix + one.name,
            dims,
            one.long_name + suffix,
            one.range,
            one.null,
            derived=("null",) if not prefix and one.name in WITH_NULL else (),
        )
        for one in MEASURES
    )


SCHEMA = Schema(
    version=2,
    nodes={
        "": (
            *_over("", ("head", "setting"), ""),
            *_over("layer_", ("setting", "layer"), ", mean over heads"),
            *_over("mean_", ("setting",), ", mean over layers and heads"),
            Variable(
                AVERAGED,
                ("setting", "layer"),
                "relative entropy of the heads' mean pattern",
                "[0, 1]",
                "Uniform attention: 1.",
            ),
            Variable(
                f"mean_{AVERAGED}",
                ("setting",),
                "relative entropy of the heads' mean pattern, mean over layers",
                "[0, 1]",
            ),
            Variable(
                "alpha",
                ("setting",),
                "factor of the singular values of W_Q and W_K",
                "above 0; NaN for other changes",
                formula="W_Q ↦ α W_Q , W_K ↦ α W_K",
                text="Singular values of queries and keys are multiplied by alpha, so logits by its square.",
            ),
            Variable(
                "mean_map",
                ("setting", "layer", "query", "key"),
                "attention between words, mean over heads",
                "[0, 1]",
                UNIFORM,
                optional=True,
            ),
            Variable("perplexity", ("setting",), "perplexity of the prompt", "at least 1; NaN for an encoder"),
            Variable("continuation", ("setting",), "what the model writes after the prompt", "text"),
            Variable("notes", ("setting",), "what could not be changed plainly", "text"),
        )
    },
    tables=(
        Table("heads", "Attention of every head under every setting", like=("entropy", "argmax_mass")),
        Table("layers", "Means over heads", like=(f"layer_{MEASURES[-1].name}",)),
        Table("settings", "Means over layers and heads, perplexity and continuation", like=("continuation",)),
    ),
    metrics=("jsd", "kl", "entropy", "relative_entropy", "self_mass", "argmax_mass"),
    renamed={f"{name}_chance": f"{name}_null" for name in WITH_NULL},
)
