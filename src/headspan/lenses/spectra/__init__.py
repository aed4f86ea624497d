"""The spectrum of every weight matrix against random matrices of its shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION
from headspan.lenses.spectra.kinds import checked_init, checked_matrices
from headspan.result import Lens

if TYPE_CHECKING:
    from headspan.lenses.run import Opening
    from headspan.result import Result

LENS = Lens(
    name="spectra",
    title="Spectra of the weights",
    summary="singular values of every weight matrix against random matrices, and whether queries match keys like them",
    package=__name__,
    chapter="Spectra",
    order=50,
    needs=ATTENTION,
)


def spectra(
    model: Any,
    *,
    matrices: Sequence[str] | str | None = None,
    delta: int = 0,
    init: str | float | None = None,
    power_law: bool = False,
    tolerance: float | None = None,
    seed: int = 0,
    memory: int | str = "4GB",
    **opening: Unpack[Opening],
) -> Result:
    """Singular values of every weight matrix, numbers that summarize them, and the null of each.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned. MLP, tables and unembedding are used where they are there.
    matrices
        Which kinds, such as "W_Q,W_QK"; everything the checkpoint has by default.
    delta
        For rotary models: positions from key to query at which W_QK is taken.
    init
        The initialization to compare with: "xavier", "config" (its `initializer_range`) or a standard deviation. By
        default the config's where it states one, else Xavier; the attribute `init` says which.
    power_law
        Also fit a power law to the tail of each whole matrix's squared singular values; needs the package `powerlaw`.
    tolerance
        Singular values up to this share of the largest count as zero. By default ranks count those above the noise of
        the dtype that the weights were stored in, and values are set to zero that rounding in float64 has left.
    seed
        Random seed of the draws of random matrices.
    memory
        Budget for one block of layers and its scratch space.
    **opening
        `stack`, `fold`, `dtype`, `device`, `progress`, `time_limit`.

    Returns
    -------
    Result
        One node per kind of matrix: `singular_value [..., rank]`, `stable_rank`, `effective_rank`, `entropy`, `ks`,
        `spikes`, `energy_ratio` and more, each with `_null`, `_null_sd` and `_z` under random matrices of the same
        shape. With W_QK also `alignment` [head] and `layer` [layer]: the trace of W_QK, which is 0 on average under
        both of its nulls. NaN where undefined.

    >>> import headspan
    >>> result = headspan.spectra("demo", matrices="W_Q,W_QK")
    >>> bool(result["alignment"].trace_z.sel(head="L1H3", null="factors") > 5)
    True
    """
    from headspan.lenses.run import run

    options = {
        "matrices": checked_matrices(matrices),
        "delta": delta,
        "init": checked_init(init),
        "power_law": power_law,
    }
    return run(LENS, [model], {**options, "tolerance": tolerance, "seed": seed, "memory": memory}, opening)
