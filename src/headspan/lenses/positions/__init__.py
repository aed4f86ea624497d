"""Positions and tokens: two tables, and the matrices that read and write the same stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION
from headspan.errors import ArgumentError
from headspan.lenses.positions.schema import CENTERINGS
from headspan.result import Lens

if TYPE_CHECKING:
    from headspan.lenses.run import Opening
    from headspan.result import Result

LENS = Lens(
    name="positions",
    title="Positions and tokens",
    summary="how the position and token tables overlap, and which of them every layer reads and writes",
    package=__name__,
    chapter="Positions and tokens",
    order=40,
    needs=ATTENTION,
    any_of=frozenset({"W_E", "W_pos"}),
    one_stream=True,
)


def positions(
    model: Any,
    *,
    k: int | None = None,
    centering: str = "stored",
    full: bool = False,
    layer: int | None = None,
    smooth: float = 0.0,
    samples: int = 512,
    tolerance: float | None = None,
    seed: int = 0,
    memory: int | str = "4GB",
    **opening: Unpack[Opening],
) -> Result:
    """Spectra of the position and token tables, their overlap, and the alignment of every layer's matrices with them.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned; it needs a token table, a position table, or both.
    k
        Leading directions that stand for a table. By default 30, or d_model / 8 or a table's rank where that is less;
        a k of your own must not exceed the rank of any table.
    centering
        Which form of the tables layers are compared with: "stored", or "centered" for rows less their mean row.
    full
        Keep squared overlaps entry by entry too: float32, d_model^2 per layer, matrix and table, 340 MB for GPT-2.
    layer, smooth
        For figures: the layer whose matrices are drawn against the tables (the first by default), and the standard
        deviation, in directions, of a Gaussian blur of the drawn overlaps; the numbers stay as they are.
    samples
        Queries and keys drawn for the logits of layer 0.
    tolerance
        Singular values up to this share of a matrix's largest count as zero; by default those up to the noise of the
        dtype that the weights were stored in.
    seed
        Random seed of the null's draws and of samples.
    memory
        Budget for one block of layers and for scratch space. A table is read whole beside it.
    **opening
        `stack`, `fold`, `dtype`, `device`, `progress`, `time_limit`.

    Returns
    -------
    Result
        Variables over `table` (P, E), `centering`, `layer`, `matrix` and `head`: spectra and effective ranks beside
        those of random tables; `alignment` in [0, 1], k/d under the null (a random rotation of the stream), and
        `energy_alignment`, 1/d under the null. NaN where undefined; the attribute `left_out` says what is missing.

    >>> import headspan
    >>> found = headspan.positions("demo")
    >>> round(float(found["alignment"].sel(layer=0, matrix="Q", table="E")), 3)
    0.706
    """
    from headspan.lenses.run import run

    if centering not in CENTERINGS:
        raise ArgumentError(f"centering={centering!r} is unknown; it is one of {', '.join(CENTERINGS)}")
    if samples < 2:
        raise ArgumentError(f"samples={samples} is out of range; it is at least 2")
    if not 0 <= smooth < float("inf"):
        raise ArgumentError(f"smooth={smooth} is out of range; it is at least 0")
    options = {"k": k, "centering": centering, "full": full, "samples": samples, "tolerance": tolerance}
    options |= {"layer": layer, "smooth": smooth, "seed": seed, "memory": memory}
    return run(LENS, [model], options, opening)
