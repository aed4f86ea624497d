"""Two checkpoints of one shape, compared: what moved, which edges changed, what became of the spectra."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION
from headspan.errors import ArgumentError
from headspan.result import Lens

if TYPE_CHECKING:
    from headspan.lenses.run import Opening
    from headspan.result import Result

NULLS = {"two-way": "two-way", "reverse": "reverse", "haar": "haar", "anticausal": "reverse"}
"""Nulls under which a pair is an edge, by their names; the last is the older name of the reverse-order null."""
LENS = Lens(
    name="compare",
    title="Two checkpoints",
    summary="how far every head moved, which edges were gained and lost, and what became of the spectra",
    package=__name__,
    chapter="Two checkpoints",
    order=210,
    needs=ATTENTION,
    subjects=2,
    in_series=False,
)


def compare(
    before: Any,
    after: Any,
    *,
    leading: int | None = None,
    tolerance: float | None = None,
    draws: int = 16,
    seed: int = 0,
    level: float = 0.05,
    null: str = "two-way",
    memory: int | str = "4GB",
    **opening: Unpack[Opening],
) -> Result:
    """Everything that differs between two checkpoints.

    Parameters
    ----------
    before, after
        Two checkpoints of one family, stack, shape and fold state: anything `headspan.open` takes, or what it returned.
    leading, tolerance, draws, seed
        As for `headspan.drift`; `draws` and `seed` also for the null of edges.
    level, null
        A pair is an edge if its q-value under this null ("two-way", "reverse" or "haar", as for `headspan.affinity`) is
        below `level`. In a small model reverse takes the place of two-way; the attribute `edge_null` says so.
    memory
        Budget for one block of layers.
    **opening
        `stack`, `fold`, `dtype`, `device`, `progress`, `time_limit`.

    Returns
    -------
    Result
        `drift/<role>` as `headspan.drift` gives it. `wiring/<pairing>`: the projection kernel of every pair before and
        after, and its `change`, with mean, z, p and q under random changes of all heads. `spectra/<kind>`: singular
        values before and after and their distance `ks` in [0, 1]. A part that the model has nothing for is left out,
        and the attribute `<part>_left_out` says why.

    >>> import headspan
    >>> result = headspan.compare("demo", "demo", draws=3)
    >>> result.findings[0].statement
    'All 64 head matrices are the same in both checkpoints, bit for bit: nothing moved.'
    """
    from headspan.lenses.run import run

    if not 0 < level < 1:
        raise ArgumentError(f"level={level}: needed is a q-value between 0 and 1")
    if null not in NULLS:
        raise ArgumentError(f"null={null!r} is unknown; nulls are two-way, reverse and haar")
    options = {"leading": leading, "tolerance": tolerance, "draws": draws, "seed": seed}
    return run(LENS, [before, after], {**options, "level": level, "null": NULLS[null], "memory": memory}, opening)
