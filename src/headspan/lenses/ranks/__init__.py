"""How many dimensions each head really reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION
from headspan.result import Lens

if TYPE_CHECKING:
    from headspan.lenses.run import Opening
    from headspan.result import Result

LENS = Lens(
    name="ranks",
    title="Rank of every head",
    summary="how many dimensions each head really reads and writes",
    package=__name__,
    chapter="Wiring",
    order=10,
    needs=ATTENTION,
)


def ranks(
    model: Any, *, tolerance: float | None = None, memory: int | str = "4GB", **opening: Unpack[Opening]
) -> Result:
    """Numerical rank of every head and role.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned.
    tolerance
        Singular values up to this share of a head's largest count as zero; by default those up to the noise of the
        dtype that the weights were stored in, 2 u rms(W) (sqrt d_model + sqrt d_head) with u its unit roundoff.
    memory
        Budget for one block of layers.
    **opening
        `stack`, `fold`, `dtype`, `device`, `progress`, `time_limit`.

    Returns
    -------
    Result
        `rank_Q`, `rank_O` [head] and `rank_K`, `rank_V` [kv_head], in [0, d_head]; under the null (independent
        continuous random entries) every rank is d_head with probability one.

    >>> import headspan
    >>> headspan.ranks("demo")["rank_O"].max().item()
    16
    """
    from headspan.lenses.run import run

    return run(LENS, [model], {"tolerance": tolerance, "memory": memory}, opening)
