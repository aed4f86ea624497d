"""Is the stream as good as Gaussian? Logits and attention entropy predicted from moments, beside measured ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from headspan.errors import ArgumentError
from headspan.result import Lens

if TYPE_CHECKING:
    from headspan.lenses.run import Budgeted
    from headspan.result import Result

FEWEST = 4
LENS = Lens(
    name="gaussian",
    title="Is it Gaussian?",
    summary="logits and attention of every head, predicted from means and covariances alone and measured",
    package=__name__,
    chapter="Behavior",
    order=62,
    needs=frozenset({"W_Q", "W_K"}),
    one_stream=True,
    without_running=frozenset({"W_E"}),
)


def gaussian(
    model: Any,
    *,
    text: str | None = None,
    sequences: int = 64,
    length: int = 64,
    seed: int = 0,
    **opening: Unpack[Budgeted],
) -> Result:
    """Predicted and measured logits and attention entropies of every head.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned. Where it cannot be run, layer 0 is read from its tables.
    text
        Windows of this text are the sequences; random tokens otherwise.
    sequences, length
        How many sequences, of how many tokens; at least 4 of each.
    seed
        Random seed of tokens, of the choice of windows, and of Gaussian draws.
    **opening
        `stack`, `device`, `progress`, `time_limit`, `memory`. Weights are taken as stored.

    Returns
    -------
    Result
        `logit_mean`, `logit_sd`, `logit_excess_kurtosis` [head, pair] predicted and `..._measured`; `entropy` [head] in
        nats, predicted and measured, beside `entropy_uniform` [layer], the most it can be; `logit_sd_r2`, `entropy_r2`
        and others in (-inf, 1], 0 for the same guess for all heads; `information` [layer, distance] in nats.

    >>> import headspan
    >>> result = headspan.gaussian("demo", sequences=8, length=16)
    >>> result["entropy"].sizes["head"]
    16
    """
    from headspan.lenses.run import run

    if sequences < FEWEST or length < FEWEST:
        raise ArgumentError(f"sequences = {sequences} of length = {length} are too few; both are at least {FEWEST}")
    return run(LENS, [model], {"text": text, "sequences": sequences, "length": length, "seed": seed}, opening)
