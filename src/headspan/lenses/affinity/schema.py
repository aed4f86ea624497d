"""The variables of an affinity result: one node per pairing, and the hubs at the root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headspan.errors import ArgumentError
from headspan.schema import Schema, Table, Variable

KERNEL, COMPOSITION = "projection_kernel", "composition_score"
METRICS = (KERNEL, COMPOSITION)
ALIASES = {"pk": KERNEL, "cs": COMPOSITION}
BOTH = "both"
TWO_WAY, REVERSE, HAAR = NULLS = ("two-way", "reverse", "haar")
SIGNIFICANT, STRONG = 0.05, 0.10
"""A pair stands out if its q is below the first; it is strong if its mirror FDR is at most the second."""
ALGORITHMS = ("auto", "exact", "gram", "projector", "sketch")
PAIRING, TOP, HEADS = "[QKVO][QKVO]", "[QKVO][QKVO]/top", "[QKVO][QKVO]/heads"

PAPER = "arXiv 2601.10266"
LONG_NAMES = {KERNEL: "projection kernel", COMPOSITION: "composition score"}
FROM_THE_MODEL = (
    "two-way: what the two heads and the two layers share in general, fitted to the logarithm of all pairs of "
    "different layers; the standard deviation is that of the logarithm. reverse: pairs of the same model in reverse "
    "order, equally many layers apart. "
)
NULL_TEXTS = {
    KERNEL: FROM_THE_MODEL + "haar: independent random subspaces of the same dimensions p and q, mean pq/d_model.",
    COMPOSITION: FROM_THE_MODEL + "haar: a random rotation that keeps both spectra, about 1/sqrt(d_model).",
}
RANGES = {KERNEL: "[0, min(p, q)] dimensions", COMPOSITION: "[0, 1]"}
FORMULAS = {KERNEL: "PK = ‖ U^⊤ V ‖_F^2 = ∑_i cos^2 θ_i", COMPOSITION: "CS = frac{‖ M N ‖_F}{‖ M ‖_F ‖ N ‖_F}"}
TEXTS = {
    KERNEL: "U and V are orthonormal bases of what the source writes and the destination reads; the value is the "
    "number of dimensions they share. Expected under the haar null is pq/d, with variance 2pq(d − p)(d − q) / "
    "(d²(d − 1)(d + 2)). The two-way null expects of a pair what its heads and layers share in general: a robust fit "
    "m + r_i + c_j + b of the logarithm over all pairs of different layers; z is the residual over its robust spread. "
    "The reverse null compares with the same model's pairs whose source comes after the destination, equally many "
    "layers apart. q-values are those of Benjamini and Hochberg (1995) within a pairing, of the two-way null over both "
    "orders. A pair stands out if q < 0.05, and is strong if at most a tenth of the pairs as far out could be false "
    "even if the null's upper tail were as heavy as its lower one (mirror FDR).",
    COMPOSITION: "M is the source's W_V W_O; N is the destination's W_Q W_Kᵀ for OQ, its transpose for OK, W_V W_O for "
    "OV. About one over the root of d under a random rotation.",
}
REFERENCES = {KERNEL: PAPER, COMPOSITION: "Elhage et al. (2021), A mathematical framework for transformer circuits"}
DERIVED = ("null", "null_sd", "z", "p", "q")


def _score(name: str, dims: tuple[str, ...], optional: bool) -> Variable:
    return Variable(
        name,
        dims,
        LONG_NAMES[name],
        range=RANGES[name],
        null=NULL_TEXTS[name],
        formula=FORMULAS[name],
        text=TEXTS[name],
        reference=REFERENCES[name],
        derived=DERIVED,
        optional=optional,
    )


def _of_metric(name: str) -> Iterator[Variable]:
    """A score of every pair, the same in reverse order, and the numbers that sum it up."""
    words, unit = LONG_NAMES[name], RANGES[name]
    yield _score(name, ("src", "dst"), optional=True)
    yield Variable(f"{name}_reverse", ("src", "dst"), f"{words} of pairs in reverse order", range=unit, optional=True)
    yield Variable(
        f"{name}_mirror_fdr",
        ("src", "dst"),
        f"bound on false discoveries among pairs with a {words} at least as far above the two-way null",
        range="(0, 1]",
        null="any law symmetric about the fit: keeping what is at most 0.1 makes at most a tenth of it false",
        optional=True,
    )
    yield _count(f"{name}_", words)
    numbers = {
        "n_pairs": (f"number of pairs with a {words}", "at least 0", "", ()),
        "n_significant_reverse": ("pairs in reverse order with q < 0.05 too (two-way)", "at least 0", "", ()),
        "n_strong": ("pairs with q < 0.05 whose mirror FDR is at most 0.1", "at least 0", "", ()),
        "scale": ("standard deviation of its logarithm among unrelated pairs (two-way)", "at least 0", "", ()),
        "mean": (f"mean {words}", unit, "haar, heads of full rank", ("null",)),
        "mean_low": (f"mean {words}, lower end of the 95 % interval (heads resampled)", unit, "", ()),
        "mean_high": (f"mean {words}, upper end of the 95 % interval (heads resampled)", unit, "", ()),
        "sd": (f"standard deviation of the {words} over pairs", unit, "haar, heads of full rank", ("null",)),
        "kl": (f"divergence of the {words} from its law under the null", "at least 0", "haar: 0", ()),
        "direction": (
            f"mean {words} of composing pairs less that of pairs in reverse order",
            unit,
            "permuting the order of the layers: 0; p is at least 2 / L!, above 0.05 for L = 4 layers or fewer",
            ("p",),
        ),
        "direction_ks": (
            "Kolmogorov-Smirnov distance of composing pairs from pairs in reverse order",
            "[0, 1]",
            "",
            (),
        ),
    }
    for what, (long_name, span, null, derived) in numbers.items():
        yield Variable(f"{name}_{what}", (), long_name, range=span, null=null, derived=derived, optional=True)


def _count(prefix: str, words: str) -> Variable:
    return Variable(
        f"{prefix}n_significant", ("null",), f"pairs whose {words} has q < 0.05", "at least 0", optional=True
    )


def _ranks(side: str, words: str) -> Variable:
    return Variable(f"{side}_rank", (side,), f"dimension of the subspace of the {words}", "[0, d_head]", optional=True)


PAIR_VARIABLES = (
    Variable("n_pairs", (), "number of composing pairs", range="at least 0"),
    _count("", "leading score"),
    Variable(
        "n_significant_reverse",
        (),
        "pairs in reverse order that stand out by the leading score (two-way)",
        "at least 0",
        optional=True,
    ),
    Variable("scale", (), "two-way scale of the leading score's logarithm", "at least 0", optional=True),
    *(variable for name in METRICS for variable in _of_metric(name)),
    Variable(
        "normalized_kernel",
        ("src", "dst"),
        "projection kernel over the root of pq",
        range="[0, 1]",
        null="independent random subspaces: sqrt(pq)/d_model",
        optional=True,
    ),
    _ranks("src", "source"),
    _ranks("dst", "destination"),
    Variable("verified", (), "pairs of a sketch that were computed exactly", "at least 0", optional=True),
    Variable("certified", (), "leading pairs that a sketch vouches for", "[0, top]", optional=True),
    Variable("threshold", (), "estimate that a candidate pair has to reach", "dimensions", optional=True),
)
TOP_VARIABLES = (
    _score(KERNEL, ("pair",), optional=False),
    Variable("estimate", ("pair",), "kernel estimated by the sketch", "dimensions"),
    Variable("standard_error", ("pair",), "standard error of the estimate (an upper bound)", "dimensions"),
)
HEAD_VARIABLES = (
    _ranks("src", "source"),
    _ranks("dst", "destination"),
    Variable("outgoing", ("src",), "mean estimated kernel with the heads it can write to", "dimensions"),
    Variable("incoming", ("dst",), "mean estimated kernel with the heads it can read from", "dimensions"),
)
HUB_VARIABLES = (
    Variable(
        "hub_score",
        ("head",),
        "hub score: geometric mean of inlet and outlet",
        range="at least 0 dimensions",
        null="haar: 0 up to sampling error",
        formula="h = sqrt{a b} , a = ⟨ ( PK_{in} − c )^+ ⟩ , b = ⟨ ( PK_{out} − c )^+ ⟩",
        text="Inlet and outlet are the mean excess, over its value c expected under the haar null, of the kernel with "
        "the heads that a head can read from and write to. They are averaged over OQ, OK and OV; 0 under the null.",
        reference=PAPER,
        optional=True,
    ),
    Variable(
        "hub_rank",
        ("head",),
        "rank among the hubs, 1 the strongest",
        range="at least 1",
        card="Hub rank",
        of="n_ranked",
        optional=True,
    ),
    Variable(
        "inlet",
        ("head",),
        "mean kernel with earlier heads above the null",
        "dimensions",
        card="Inlet, above the null",
        optional=True,
    ),
    Variable(
        "outlet",
        ("head",),
        "mean kernel with later heads above the null",
        "dimensions",
        card="Outlet, above the null",
        optional=True,
    ),
    Variable("n_ranked", (), "heads with layers before and after them", "at least 0", optional=True),
)
AGREEMENT = (
    ("spearman", "rank correlation of the scores", "[-1, 1]"),
    ("top_overlap", "strongest pairs that stay among the strongest", "[0, top]"),
)

SCHEMA = Schema(
    version=2,
    nodes={
        "": HUB_VARIABLES,
        TOP: TOP_VARIABLES,
        HEADS: HEAD_VARIABLES,
        PAIRING: PAIR_VARIABLES,
        "classes": (
            Variable("nodes", ("metric",), "heads in the graph of the strongest pairs", "at least 0"),
            Variable("in_class", ("metric",), "of these, heads in a class", "at least 0"),
            Variable("out_of_class", ("metric",), "of these, heads in no class", "at least 0"),
        ),
        "detection": (
            Variable(
                "average_precision",
                ("test",),
                "average precision",
                "[0, 1]",
                null="a score without information: the base rate",
            ),
            Variable("low", ("test",), "lower end of its 95 % interval (heads resampled)", "[0, 1]"),
            Variable("high", ("test",), "upper end of its 95 % interval (heads resampled)", "[0, 1]"),
            Variable("pr_auc", ("test",), "trapezoidal area under the precision-recall curve", "[0, 1]"),
            Variable("base_rate", ("test",), "share of positives", "[0, 1]"),
            Variable("positives", ("test",), "number of positives", "at least 1"),
        ),
        "class_hubs": (
            Variable("rank", ("member",), "rank among all hubs", "[1, n_heads]", null="random members: the middle"),
            Variable("n_heads", ("member",), "number of heads", "at least 1"),
            Variable("score", ("member",), "hub score", "at least 0 dimensions"),
        ),
        "robustness": (
            *(Variable(name, ("pairing", "metric", "change"), text, span) for name, text, span in AGREEMENT),
            Variable("left_out", ("change",), "why a change is left out; empty where it is not", "text"),
        ),
        "sensitivity": (
            *(Variable(name, ("pairing", "directions"), text, span) for name, text, span in AGREEMENT),
            Variable(
                "largest_change", ("pairing", "directions"), "largest change of a kernel, full bases", "at least 0"
            ),
        ),
    },
    tables=(
        Table(
            "pairs",
            "Pairs of heads",
            like=METRICS,
            nodes=f"{PAIRING}*",
            key="pairing",
            without=tuple(f"{name}_reverse" for name in METRICS),
        ),
        Table("hubs", "Hubs", like=("hub_score", "inlet", "outlet")),
        Table("classes", "Classes in the graph of the strongest pairs", like=("nodes",), nodes="classes"),
        Table("detection", "Does affinity find the classes?", like=("average_precision",), nodes="detection"),
        Table("class_hubs", "Where the classes stand among the hubs", like=("rank",), nodes="class_hubs"),
        Table("robustness", "Agreement with folded weights", like=("spearman", "top_overlap"), nodes="robustness"),
        Table("left_out", "Changes that the model does not admit", like=("left_out",), nodes="robustness"),
        Table("sensitivity", "Kernels with other bases", like=("spearman", "top_overlap"), nodes="sensitivity"),
    ),
    metrics=METRICS,
    aliases=ALIASES,
    renamed={"anticausal_kernel": f"{KERNEL}_reverse", "anticausal_score": f"{COMPOSITION}_reverse"},
)


def chosen_metrics(metrics: str | Sequence[str]) -> tuple[str, ...]:
    """Scores by name or alias, separated by commas in a text; `both` is both."""
    names = metrics.replace(" ", "").split(",") if isinstance(metrics, str) else list(metrics)
    found = {ALIASES.get(name, name) for name in names if name != BOTH} | (set(METRICS) if BOTH in names else set())
    unknown = sorted(found - set(METRICS))
    if unknown or not found:
        given = unknown[0] if unknown else metrics
        known = f"{', '.join(METRICS)} (or {', '.join(ALIASES)}, {BOTH})"
        raise ArgumentError(f"metrics={given!r} is unknown; metrics are {known}")
    return tuple(name for name in METRICS if name in found)
