"""Heads as subspaces: query space against key space, head against head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from headspan.errors import ArgumentError
from headspan.lenses.similarity.schema import DISTANCES, SPACES
from headspan.result import Lens, arguments

if TYPE_CHECKING:
    from headspan.lenses.run import Opening
    from headspan.result import Result

LENS = Lens(
    name="similarity",
    title="Heads as subspaces",
    summary="how close query and key space of each head are, and the attention spaces of different heads",
    package=__name__,
    chapter="Head similarity",
    order=30,
    needs=frozenset({"W_Q", "W_K"}),
    one_stream=True,
    series_options={"maps": False},
    report_options={"distance": "chordal"},
)


def similarity(
    model: Any,
    *,
    space: str = "sum",
    distance: str = "grassmann",
    across_layers: bool | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    angle_tolerance: float | None = None,
    qk_rank: int | None = None,
    head: str | tuple[int, int] | None = None,
    samples: int = 100,
    maps: bool = True,
    memory: int | str = "4GB",
    **opening: Unpack[Opening],
) -> Result:
    """Principal angles of every head's query and key space, and distances between the attention spaces of heads.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned; only W_Q and W_K are read.
    space
        What stands for a head when heads are compared: "sum" (R_Q + R_K), "intersection", or "qk" (the leading
        singular vectors of W_Q W_K^T on both sides).
    distance
        "grassmann", "chordal", "projection", "fubini-study", "binet-cauchy", "spectral" or "procrustes".
    across_layers
        Compare heads of different layers too. By default up to 400 heads; the attribute `across_layers` says.
    seed
        Random seed of the null's draws, of maps and of the check of null spaces.
    tolerance
        Singular values up to this share of a head's largest count as zero; by default those up to the noise of the
        dtype that the weights were stored in.
    angle_tolerance, qk_rank
        For "intersection", the largest angle in radians that counts as common (default: rounding); for "qk", how many
        singular vectors of each side (default d_head / 4).
    head, samples
        One head whose principal angles are counted by themselves and whose four spaces are sampled for a map (by
        default only a map, of the first head that has both spaces); and how many directions of each space.
    maps
        Whether to make maps of heads and of sampled directions.
    memory
        Budget for one block of layers and its scratch space.
    **opening
        `stack`, `fold`, `dtype`, `device`, `progress`, `time_limit`.

    Returns
    -------
    Result
        Per head: `angles_RQ_RK` and three more (radians), `grassmann`, `projection_kernel` in [0, d_head] with its
        null, z, p and q, `own_key_place`, ranks. Per pair: `layer_distance` [head, peer], `distance` [src, dst], each
        with its null and z. Per layer: `diversity`. Null: independent uniformly random subspaces of the same
        dimensions. NaN where undefined.

    >>> import headspan
    >>> found = headspan.similarity("demo", maps=False)
    >>> round(float(found["projection_kernel"].sel(head="L0H3")), 2)
    4.96
    >>> found["distance"].sizes["src"]
    16
    """
    options = arguments(locals())
    from headspan.lenses.run import run

    for name, chosen, known in (("space", space, SPACES), ("distance", distance, DISTANCES)):
        if chosen not in known:
            raise ArgumentError(f"{name}={chosen!r} is unknown; it is one of {', '.join(known)}")
    if samples < 1:
        raise ArgumentError(f"samples={samples} is out of range; it is at least 1")
    return run(LENS, [model], options, opening)
