"""Which heads do what: detectors of known kinds of heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION
from headspan.errors import ArgumentError
from headspan.result import Lens

if TYPE_CHECKING:
    from headspan.lenses.run import Budgeted
    from headspan.result import Result

LENS = Lens(
    name="detect",
    title="Which heads do what",
    summary="previous-token, duplicate-token, induction, identity and first-token heads, found by running the model on "
    "repeated random tokens",
    package=__name__,
    chapter="Behavior",
    order=61,
    needs=ATTENTION,
    runs=True,
)
WEIGHTS_ONLY = replace(LENS, runs=False, work="measurement:measure_weights")
"""The part of the lens that runs nothing."""


def detect(
    model: Any,
    *,
    text: str | Path | Sequence[str] | None = None,
    threshold: float = 0.4,
    length: int | None = None,
    batch: int = 4,
    seeds: int = 10,
    seed: int = 0,
    weights_only: bool = False,
    **opening: Unpack[Budgeted],
) -> Result:
    """Scores of every head as one of five kinds, on repeated random tokens and on text; and identity from the weights.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned; it needs `transformers` to run.
    text
        Text (one or several), or the path of a file, to score heads on besides random tokens; none by default.
    threshold
        A head is labeled where its score exceeds this, and the null's mean by three standard errors.
    length
        Tokens of a random segment, which is repeated once; by default 32, or what fits the context.
    batch, seeds, seed
        Segments per draw, number of draws (standard errors are over these), and the first draw's random seed.
    weights_only
        Only the identity score of the weights; runs nothing.
    **opening
        `stack`, `dtype`, `device`, `config`, `progress`, `time_limit`, `memory`.

    Returns
    -------
    Result
        For each of `previous_token`, `duplicate_token`, `induction`, `identity`, `first_token` [head, prompt]: the
        score in [0, 1], its value under uniform attention as `_null`, its standard error `_se`, and `_label`, whether
        the head is labeled so; `identity_weights` [head] in [-1, 1], 0 expected for random weights.

    >>> import headspan
    >>> headspan.detect("demo", seeds=2).top(1, metric="previous_token")["head"].item()
    'L0H3'
    """
    from headspan.lenses.run import run

    check_choices(threshold, seeds)
    if weights_only:
        return run(WEIGHTS_ONLY, [model], {}, opening)
    if isinstance(text, Path):
        from headspan.input_files import file_text

        text = file_text(text)
    options = {"threshold": threshold, "length": length, "batch": batch, "seeds": seeds, "seed": seed}
    return run(LENS, [model], {"text": text, **options}, opening)


def check_choices(threshold: float, seeds: int) -> None:
    """Refuse a threshold that no score can pass, or all do, and a number of draws without a standard error."""
    if not 0 < threshold < 1:
        raise ArgumentError(f"threshold is a share of attention between 0 and 1, not {threshold}")
    if seeds < 2:
        raise ArgumentError(f"seeds is at least 2, so that there is a standard error, not {seeds}")
