"""Whether geometry predicts behavior: null spaces, distances of heads, and messages between them, put to the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION
from headspan.errors import ArgumentError
from headspan.result import Lens

if TYPE_CHECKING:
    from headspan.lenses.run import Budgeted
    from headspan.result import Result

LENS = Lens(
    name="validate",
    title="Does geometry predict behavior?",
    summary="null spaces, distances of heads and messages between them, each held against what the running model does",
    package=__name__,
    chapter="Behavior",
    order=64,
    needs=ATTENTION,
    one_stream=True,
    runs=True,
    on_request="takes minutes",
)


def validate(
    model: Any,
    *,
    tokens: Any = None,
    buffers: str | None = None,
    count: int = 8,
    length: int = 48,
    strong: int = 5,
    random: int = 6,
    group: int = 8,
    permutations: int = 999,
    seed: int = 0,
    **opening: Unpack[Budgeted],
) -> Result:
    """Geometry held against the behavior of the running model.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned; it must be one that `transformers` runs.
    tokens
        Sequences of token ids of equal length to measure on, in place of `buffers`.
    buffers, count, length
        Kind (`sampled` from the model, or `repeated` random tokens), number and length of token buffers.
    strong, random, group
        Tested for cause are, per pairing, the blocks that hold the strongest pairs by each score, and random ones. A
        block is a group of sources of one layer with a group of targets of a later one; groups have at most `group`
        heads, which are compared with one another.
    permutations
        Of the Mantel test and of heads within their groups, and draws of the bootstrap; at least 99.
    seed
        Random seed of everything drawn.
    **opening
        `stack`, `fold` (of the weights whose scores are tested), `dtype`, `device`, `progress`, `time_limit`, `memory`.

    Returns
    -------
    Result
        Nodes `invariance` [head], `distance` [head, peer], `cause` [pair], `contrast` and `ranking` [row], and
        `untrained` [pair], the causes in the same model with weights as before training; each where it applies. The
        attribute `<node>_obstacle` says why another does not.

    >>> import headspan
    >>> options = {"count": 2, "length": 12, "strong": 1, "random": 1, "group": 3, "permutations": 99}
    >>> result = headspan.validate("demo", **options)
    >>> bool((result["invariance"].query_null < 1e-4).all())
    True
    """
    from headspan.lenses.run import run

    options = {"count": count, "strong": strong, "random": random, "group": group}
    for name, value in options.items():
        fewest = 2 if name == "group" else 1
        if value < fewest:
            raise ArgumentError(f"{name} = {value} is too few; it is at least {fewest}")
    if length < 4 or permutations < 99:
        raise ArgumentError(f"length = {length} is at least 4, permutations = {permutations} at least 99")
    if buffers not in (None, "sampled", "repeated"):
        raise ArgumentError(f"buffers = {buffers!r} is not known; it is sampled or repeated")
    options |= {"length": length, "permutations": permutations, "seed": seed}
    more = {"tokens": tokens, "buffers": buffers, "fold": opening.get("fold", "none")}
    return run(LENS, [model], {**options, **more}, opening)
