"""What heads and MLPs read and write, in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION
from headspan.lenses.vocabulary.choices import Chosen, Projection
from headspan.result import Lens

if TYPE_CHECKING:
    from pathlib import Path

    from headspan.lenses.run import Opening
    from headspan.result import Result

LENS = Lens(
    name="vocabulary",
    title="Vocabulary",
    summary="tokens along the leading directions of every head and MLP, copying heads, and relations between words",
    package=__name__,
    chapter="Vocabulary",
    order=60,
    needs=ATTENTION | {"W_E"},
    one_stream=True,
    fold="layernorm",
    in_series=False,
)


def vocabulary(
    model: Any,
    *,
    head: str | None = None,
    matrices: Sequence[str] | str | None = None,
    neurons: Sequence[str] | str | None = None,
    leading: int = 8,
    count: int = 10,
    relations: str | Path | None = None,
    projection: str | None = None,
    table: str | None = None,
    all_tokens: bool = False,
    tokenizer: Any = None,
    delta: int = 0,
    draws: int = 500,
    seed: int = 0,
    memory: int | str = "4GB",
    **opening: Unpack[Opening],
) -> Result:
    """The leading directions of every head and MLP as tokens, with copying scores and relations between words.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned. Norms are folded in by default where the family allows;
        heads that are given keep their fold state.
    head
        One head such as "L4H7", or several with commas; all by default. q-values then count these heads alone.
    matrices
        Of "OV,QK,MLP,W_U"; all that the checkpoint has by default.
    neurons
        Neurons of MLPs such as "L3N1024,L0N5": tokens that activate them and tokens they write.
    leading
        How many singular directions of each matrix.
    count
        Tokens at each end of a direction.
    relations
        A CSV file with the columns relation, left, right (words, or ids such as #17); lists of headspan's own by
        default.
    projection
        Q, K, V or O: list instead the tokens whose vectors have most of their norm inside this space of `head`.
    table
        "W_E" or "W_U" for a projection; by default W_E for what is read and W_U for what is written.
    all_tokens
        Also show special, unused and byte tokens.
    tokenizer
        A `transformers` tokenizer, for a model that has none beside its weights.
    delta
        For rotary models: positions from key to query at which W_QK is taken.
    draws, seed
        Random directions and permutations of the nulls, and their random seed.
    memory
        Budget for one block of layers and its scratch space.
    **opening
        `stack`, `fold`, `dtype`, `device`, `progress`, `time_limit`.

    Returns
    -------
    Result
        `OV` and `QK` [head, direction, side], `MLP` [layer, direction, side], `W_U`, `neurons`: tokens at both ends,
        and `top_mass`, `largest_z`, `kurtosis` with `_null`, `_null_sd`, `_z`, `_p` and `_q` under random directions of
        the stream. `copying` [head]: positivity of the eigenvalues of the OV and QK circuits over tokens, in [-1, 1], 0
        under random rotations. `relations` [relation, head]: whether a head maps words to their partners.

    >>> import headspan
    >>> result = headspan.vocabulary("demo", matrices="OV,QK")
    >>> float(result["copying"].copying.sel(head="L1H6")) > 0.5
    True
    """
    from headspan.lenses.run import run

    options: dict[str, Any] = {"memory": memory}
    if projection is not None or table is not None:
        options["projection"] = Projection.of(head, projection, table, count)
    else:
        options["chosen"] = Chosen.of(head, matrices, neurons, leading, count, draws)
        options |= {"relations": None if relations is None else str(relations), "delta": delta, "seed": seed}
    return run(LENS, [model], {**options, "all_tokens": all_tokens, "tokenizer": tokenizer}, opening)
