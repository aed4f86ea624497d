"""Everything about one pair of heads: every score, angle, null and rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION, HeadLabel, parse_pairings
from headspan.errors import ArgumentError
from headspan.result import Lens

if TYPE_CHECKING:
    from headspan.lenses.run import Opening
    from headspan.result import Result

LENS = Lens(
    name="pair",
    title="One pair of heads",
    summary="every score, angle, null and rank of one pair of heads",
    package=__name__,
    chapter="Wiring",
    order=25,
    needs=ATTENTION,
    min_layers=2,
    on_request="needs the heads to look at",
    in_series=False,
)


def pair(
    model: Any,
    src: str,
    dst: str,
    *,
    pairings: str | Sequence[str] = "all",
    delta: int = 0,
    tolerance: float | None = None,
    memory: int | str = "4GB",
    **opening: Unpack[Opening],
) -> Result:
    """One pair of heads against all pairs of its model.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned.
    src, dst
        Heads such as "L4H11" and "L5H1", the source in the earlier layer; through K and V of a grouped model, the kv
        head that the head reads is meant.
    pairings
        Which pairings, all 16 by default.
    delta, tolerance, memory
        As for `headspan.affinity`.
    **opening
        `stack`, `fold`, `dtype`, `device`, `progress`, `time_limit`.

    Returns
    -------
    Result
        A node per pairing: `projection_kernel` and `composition_score` with what is expected under each null, their
        rank among all pairs (the middle for a random pair), and the principal angles in [0, 90] degrees.

    >>> import headspan
    >>> result = headspan.pair("demo", "L0H3", "L1H6", pairings="OK")
    >>> int(result["OK"].projection_kernel_rank)
    1
    """
    from headspan.lenses.run import run

    parse_pairings(pairings)
    source, destination = _query_head(src), _query_head(dst)
    if source.layer >= destination.layer:
        raise ArgumentError(
            f"{source} and {destination} do not compose: the source must be in an earlier layer than the destination"
        )
    options = {"src": source, "dst": destination, "pairings": pairings, "delta": delta}
    options |= {"tolerance": tolerance, "memory": memory}
    return run(LENS, [model], options, opening)


def _query_head(text: str) -> HeadLabel:
    label = HeadLabel.parse(text)
    if label.kv:
        raise ArgumentError(f"{label} is a kv head; name one of the query heads that read it")
    return label
