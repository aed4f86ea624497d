"""How far every head moved between two checkpoints of one shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION
from headspan.errors import ArgumentError
from headspan.result import Lens

if TYPE_CHECKING:
    from headspan.lenses.run import Budgeted
    from headspan.result import Result

FEWEST_DRAWS = 3
NOISES = ("gaussian", "rounding")
LENS = Lens(
    name="drift",
    title="What moved between two checkpoints",
    summary="how far the subspaces of every head moved, against a random change of the same size",
    package=__name__,
    chapter="Two checkpoints",
    order=200,
    needs=ATTENTION,
    subjects=2,
)


def drift(
    before: Any,
    after: Any,
    *,
    leading: int | None = None,
    tolerance: float | None = None,
    draws: int = 16,
    seed: int = 0,
    noise: str = "gaussian",
    **opening: Unpack[Budgeted],
) -> Result:
    """How far every head's subspaces moved from one checkpoint to another, against a random change of the same size.

    Parameters
    ----------
    before, after
        Two checkpoints of one family, stack, shape and fold state, such as two steps or a base and a fine-tuned model:
        anything `headspan.open` takes, or what it returned.
    leading
        Follow the span of this many leading singular vectors of each head and role. By default the whole span; where
        heads are as wide as the stream, whole spans are all of it and cannot move, and a quarter of them is followed.
    tolerance
        Singular values up to this share of a head's largest count as zero; by default those up to the noise of the
        dtype that the weights were stored in.
    draws
        Random changes per head and role, 3 at least.
    seed
        Random seed of the draws. They do not depend on which other layers were asked for.
    noise
        The random change: "gaussian", of the same Frobenius norm, or "rounding", every entry's change with a random
        sign, which keeps the steps of a quantized checkpoint.
    **opening
        `stack`, `fold`, `dtype`, `device`, `progress`, `time_limit`, `memory`.

    Returns
    -------
    Result
        A node per role (Q, K, V, O), over `head` or, for K and V, `kv_head`: `angles [..., angle]` in radians,
        `grassmann` in [0, sqrt(r) pi/2], `chordal` in [0, sqrt(r)], `projection_kernel` in [0, r] and `spectrum_ks` in
        [0, 1], each with its mean and standard deviation under a random change of the same size; `grassmann_z`, `_p`
        and `_q`; `relative_change`, `outside_share`, `growth`, singular values and ranks of both. NaN where undefined,
        0 for equal weights.

    >>> import headspan
    >>> bool(headspan.drift("demo", "demo")["Q"].unchanged.all())
    True
    """
    from headspan.lenses.run import run

    if draws < FEWEST_DRAWS:
        raise ArgumentError(f"draws={draws}: needed are at least {FEWEST_DRAWS}")
    if noise not in NOISES:
        raise ArgumentError(f"noise={noise!r} is unknown; random changes are {' and '.join(NOISES)}")
    options = {"leading": leading, "tolerance": tolerance, "draws": draws, "seed": seed, "noise": noise}
    return run(LENS, [before, after], options, opening)
