"""Which heads can talk to which: how much of what one head writes another reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION, COMPOSING, parse_pairings
from headspan.errors import ArgumentError
from headspan.lenses.affinity.schema import ALGORITHMS, COMPOSITION, KERNEL, METRICS, NULLS, REVERSE, chosen_metrics
from headspan.result import Lens, arguments

if TYPE_CHECKING:
    from headspan.lenses.run import Opening
    from headspan.result import Result

LENS = Lens(
    name="affinity",
    title="Which heads can talk to which",
    summary="how much of what one head writes another can read, compared with its null",
    package=__name__,
    chapter="Wiring",
    order=20,
    needs=ATTENTION,
    min_layers=2,
)


def affinity(
    model: Any,
    *,
    pairings: str | Sequence[str] | None = None,
    metrics: str | Sequence[str] = METRICS,
    null: str = "two-way",
    labels: str | None = None,
    robustness: bool = False,
    sensitivity: bool = False,
    algorithm: str = "auto",
    top: int = 20,
    confidence: float = 0.99,
    width: int | None = None,
    delta: int = 0,
    tolerance: float | None = None,
    seed: int = 0,
    draws: int = 1000,
    memory: int | str = "4GB",
    **opening: Unpack[Opening],
) -> Result:
    """Affinity of every pair of heads that can compose.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned.
    pairings
        Which of the 16 ordered pairs of roles: "OQ,OK,OV" by default, "all" for all. In cross-attention only pairs
        that live in one stream exist: OQ by default.
    metrics
        "projection_kernel" (pk), "composition_score" (cs) or both; the composition score exists for OQ, OK and OV.
    null
        Which null comes first, and gives `expected`, z, p and q: "two-way" (what the pair's heads and layers share in
        general), "reverse" (pairs in reverse order) or "haar" (random subspaces). A small model has no two-way null:
        reverse takes its place, and the attribute `null_reason` says why.
    labels
        Classes of heads, to ask whether affinity finds them: "ioi", "2601.10266", "detected" (by running the model), or
        a YAML file.
    robustness, sensitivity
        Also compare the scores with those of folded and centered weights, and the kernels with those of bases cut to
        their leading directions.
    algorithm
        "gram", "projector" or "sketch"; "exact", the cheaper of the first two; or "auto", which takes the sketch, the
        strongest pairs alone, where exact scores of all pairs would take hours.
    top
        How many of the strongest pairs of each pairing a sketch finds, and make the graph in which classes are counted.
    confidence, width
        Of a sketch: the probability that no pair of the top is missed, and the numbers kept of each direction to begin
        with.
    delta
        For rotary models, the offset from key to query at which W_Q W_K^T is taken; the kernel does not depend on it.
    tolerance
        Singular values up to this share of a head's largest count as zero; by default those up to the noise of the
        dtype that the weights were stored in.
    seed, draws
        Of the bootstrap over heads, the permutations and the sketch.
    memory
        Budget for weights, bases and scratch space together; what does not fit goes to a scratch file.
    **opening
        `stack`, `fold`, `dtype` (by default float64 up to d_model 2048; the attribute `float32_error` says what single
        precision cost), `device`, `progress`, `time_limit`.

    Returns
    -------
    Result
        A node per pairing with `projection_kernel` in [0, min(p, q)], pq/d_model for random subspaces, and
        `composition_score` in [0, 1], about 1/sqrt(d_model), over (src, dst), NaN where a pair does not compose; each
        with its value under every null, z, p and q; hubs at the root. Of a sketch, the verified pairs are in the child
        node `top` of each pairing.

    >>> import headspan
    >>> result = headspan.affinity("demo", pairings="OK")
    >>> round(float(result["OK"].projection_kernel.sel(src="L0H3", dst="L1H6")), 2)
    8.58
    """
    options = arguments(locals())
    from headspan.lenses.run import run

    chosen = options["metrics"] = chosen_metrics(metrics)
    wanted = check_choices(pairings, chosen, null, algorithm, labels)
    if top < 1 or not 0 < confidence < 1 or not (width is None or width >= 2) or draws < 1:
        raise ArgumentError(
            f"top={top}, confidence={confidence}, width={width}, draws={draws}: needed are top >= 1, "
            "0 < confidence < 1, 2 <= width <= d_model and draws >= 1"
        )
    if algorithm == "sketch":
        obstacle = sketch_obstacle(wanted, chosen, null, labels, robustness or sensitivity, delta)
        if obstacle is not None:
            raise ArgumentError(f"algorithm='sketch' (--sketch) finds pairs by the projection kernel: {obstacle}")
    return run(LENS, [model], options, opening)


def check_choices(
    pairings: str | Sequence[str] | None, metrics: Sequence[str], null: str, algorithm: str, labels: str | None
) -> tuple[str, ...]:
    """The pairings asked for; refuses what is unknown, and what contradicts itself."""
    wanted = COMPOSING if pairings is None else parse_pairings(pairings)
    if null not in NULLS:
        raise ArgumentError(f"null={null!r} is unknown; nulls are {', '.join(NULLS)}")
    if algorithm not in ALGORITHMS:
        raise ArgumentError(f"algorithm={algorithm!r} is unknown; algorithms are {', '.join(ALGORITHMS)}")
    composing = [pairing for pairing in wanted if pairing in COMPOSING]
    if KERNEL not in metrics and not composing:
        raise ArgumentError(f"metrics={COMPOSITION!r} exists for the pairings {', '.join(COMPOSING)}; ask for these")
    if labels is not None and (KERNEL not in metrics or not composing):
        raise ArgumentError(
            f"labels={labels!r} are looked for among the hubs, which need the metric {KERNEL} and at least one of the "
            f"pairings {', '.join(COMPOSING)}"
        )
    return wanted


def sketch_obstacle(
    wanted: Sequence[str], metrics: Sequence[str], null: str, labels: str | None, stability: bool, delta: int
) -> str | None:
    """What of a request a sketch cannot do, in a few words; None where it can do all."""
    obstacles = {
        f"it scores the pairings {', '.join(COMPOSING)} of self-attention": not set(wanted) <= set(COMPOSING),
        f"it goes without metrics={COMPOSITION!r}": KERNEL not in metrics,
        "it has no reverse null": null == REVERSE,
        "it goes without labels, which need all pairs": labels is not None,
        "it goes without robustness and sensitivity": stability,
        "it goes without delta": delta != 0,
    }
    return next((text for text, applies in obstacles.items() if applies), None)
