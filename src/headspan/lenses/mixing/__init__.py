"""Does attention mix tokens into uniformity? Tokens followed through learned attention layers, beside random ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION
from headspan.result import Lens, arguments

if TYPE_CHECKING:
    from headspan.lenses.run import Budgeted
    from headspan.result import Result

LENS = Lens(
    name="mixing",
    title="Does attention mix tokens?",
    summary="how alike tokens become from layer to layer, with and without skips, compared with random weights",
    package=__name__,
    chapter="Behavior",
    order=64,
    needs=ATTENTION,
    one_stream=True,
    without_running=ATTENTION,
    in_series=False,
    report_options={"sequences": 4},
)


def mixing(
    model: Any,
    *,
    text: str | None = None,
    sequences: int = 8,
    length: int = 64,
    inverse_temperatures: str | Sequence[float] = (0.1, 1.0, 2.0),
    biases: bool = False,
    draws: int = 3,
    seed: int = 0,
    **opening: Unpack[Budgeted],
) -> Result:
    """Follow tokens through the attention layers and measure at every depth how alike they are.

    Attention alone, with the model's own norms, positions and masks; MLPs are left out. Where the model can be run, the
    stream of the whole model is measured too, beside that of its untrained twin.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned. Without a token table, tokens are random vectors.
    text
        Windows of this text are the sequences, for a model with a tokenizer; random tokens otherwise.
    sequences, length
        How many sequences, of how many tokens; at least 2 and 4.
    inverse_temperatures
        Factors on the logits, as numbers or as "0.1,1,2"; 1 is the model as it is.
    biases
        Keep the biases of attention and norms. They add the same vector to every token, which makes tokens alike
        without mixing them, so they are left out by default.
    draws
        How many times random weights are drawn, at least 2.
    seed
        Random seed of tokens and weights.
    **opening
        `stack`, `device`, `progress`, `time_limit`, `memory`. Weights are taken as stored.

    Returns
    -------
    Result
        `cosine` in [-1, 1], `residual` in [0, 1], `effective_rank` in [1, min(n, d)] and `information` in nats
        [depth, skip, inverse_temperature], each with `_null` and `_null_sd`: the same with random weights of equal
        size, head by head. A node `run` [depth] for the whole running model, `_null` its untrained twin.

    >>> import headspan
    >>> result = headspan.mixing("demo", sequences=4, length=16, draws=2)
    >>> result["cosine"].sizes["depth"]
    3
    """
    options = arguments(locals())
    from headspan.lenses.mixing.settings import checked_temperatures
    from headspan.lenses.run import run

    options["inverse_temperatures"] = checked_temperatures(sequences, length, inverse_temperatures, draws)
    return run(LENS, [model], options, opening)
