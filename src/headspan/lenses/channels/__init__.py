"""Channels between heads: rank-one paths from what one head reads, through what it writes, to what another does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION, COMPOSING, HeadLabel, parse_pairings
from headspan.errors import ArgumentError
from headspan.lenses.channels.schema import NULLS
from headspan.result import Lens, arguments

if TYPE_CHECKING:
    from headspan.lenses.run import Opening
    from headspan.result import Result

ALGORITHMS = ("auto", "exact", "candidates")
LENS = Lens(
    name="channels",
    title="Channels between heads",
    summary="rank-one paths from what one head reads, through what it writes, to what another reads, matches or writes",
    package=__name__,
    chapter="Wiring",
    order=25,
    needs=ATTENTION,
    min_layers=2,
    in_series=False,
)


def channels(
    model: Any,
    src: str | None = None,
    dst: str | None = None,
    *,
    pairings: str | Sequence[str] | None = None,
    null: str = "two-way",
    algorithm: str = "auto",
    top: int = 20,
    used: str | Sequence[str] | None = None,
    vocabulary: bool = True,
    delta: int = 0,
    tolerance: float | None = None,
    draws: int = 1000,
    seed: int = 0,
    memory: int | str = "4GB",
    **opening: Unpack[Opening],
) -> Result:
    """Channels between heads: the singular value decomposition of what leads from one head through another.

    A source's W_V W_O times a destination's W_QK (OQ), W_QK^T (OK) or W_V W_O (OV) is a sum of rank-one channels. The
    norms are folded in where the model allows it, unless `fold` says otherwise.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned.
    src, dst
        Two heads such as "L4H11" and "L5H1", the source in the earlier layer: everything about this pair, its affinity
        scores included. Without them: the leading channels of all pairs that compose.
    pairings
        OQ, OK, OV; all three by default. Of a pair, scores of all 16 pairings of roles.
    null
        What z, p and q of all pairs are shown for: "two-way" (what the heads and layers have in general) or "haar" (a
        random rotation that keeps both spectra). A small model has no two-way null, and a pair has haar alone.
    algorithm
        "exact" decomposes all pairs, "candidates" those that affinity finds strongest; "auto" takes the latter where
        all pairs would take hours.
    top
        How many channels of each pairing are kept with directions and tokens.
    used
        Of a pair: run the model, remove the source's channels from what these heads read, and compare with random
        directions of equal read energy and with the untrained model. One or several heads of one layer.
    vocabulary
        Whether to read the directions in the vocabulary.
    delta
        For rotary models, the offset from key to query at which W_Q W_K^T is taken.
    tolerance
        Of the ranks of a pair's affinity scores, as for `headspan.affinity`.
    draws, seed
        Random rotations that a pair is compared with; random seed.
    memory
        Budget for weights and tables.
    **opening
        `stack`, `fold`, `dtype`, `device`, `progress`, `time_limit`.

    Returns
    -------
    Result
        Nodes OQ, OK, OV: `strength`, `coupling` in [0, 1] with its nulls, `share`, `participation`, `carrying` over
        (src, dst). Nodes top/OQ, ...: channels with `direction [channel, side, feature]`, `sign` and `tokens`. Of a
        pair also `pair/OQ`, ...: scores, angles and spectrum; `use` and `activity` where `used` is given.

    >>> import headspan
    >>> result = headspan.channels("demo", pairings="OK")
    >>> sorted(result.top(6, metric="strength")["dst"])
    ['L1H0', 'L1H1', 'L1H3', 'L1H4', 'L1H5', 'L1H6']
    """
    options = arguments(locals())
    from headspan.lenses.run import run

    options |= {"fold": opening.get("fold") or "auto", "used": _heads(used)}
    options["src"], options["dst"] = _pair(src, dst)
    wanted = COMPOSING if pairings is None else parse_pairings(pairings)
    if src is None and not set(wanted) <= set(COMPOSING):
        other = next(pairing for pairing in wanted if pairing not in COMPOSING)
        raise ArgumentError(f"{other} has no channels; pairings with channels are {', '.join(COMPOSING)}")
    if null not in NULLS or algorithm not in ALGORITHMS:
        raise ArgumentError(
            f"null={null!r}, algorithm={algorithm!r}: nulls are {', '.join(NULLS)}, algorithms {', '.join(ALGORITHMS)}"
        )
    if top < 1 or draws < 50:
        raise ArgumentError(f"top={top}, draws={draws}: needed are top >= 1 and draws >= 50")
    if used is not None and src is None:
        raise ArgumentError("used= (--used) needs a source and a destination: name the pair, such as L0H3 L1H6")
    return run(LENS, [model], options, opening)


def _pair(src: str | None, dst: str | None) -> tuple[HeadLabel | None, HeadLabel | None]:
    """Two query heads in order, or none."""
    if (src is None) != (dst is None):
        raise ArgumentError("a pair needs a source and a destination, such as L4H11 L5H1; name both or neither")
    if src is None or dst is None:
        return None, None
    labels = HeadLabel.parse(src), HeadLabel.parse(dst)
    for label in labels:
        if label.kv:
            raise ArgumentError(f"{label} is a kv head; name one of the query heads that read it")
    if labels[0].layer >= labels[1].layer:
        raise ArgumentError(
            f"{labels[0]} and {labels[1]} do not compose: the source must be in an earlier layer than the destination"
        )
    return labels


def _heads(used: str | Sequence[str] | None) -> tuple[str, ...]:
    """Heads from text that separates them by commas, or from a sequence."""
    if used is None:
        return ()
    parts = used.split(",") if isinstance(used, str) else used
    return tuple(str(HeadLabel.parse(part)) for part in parts)
