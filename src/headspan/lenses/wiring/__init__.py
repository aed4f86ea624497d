"""The whole wiring: what every part of a transformer can write to every other, heads, MLPs, tables and logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION
from headspan.errors import ArgumentError
from headspan.lenses.wiring.schema import CENTERINGS, NULLS
from headspan.result import Lens, arguments

if TYPE_CHECKING:
    from headspan.lenses.run import Opening
    from headspan.result import Result

LENS = Lens(
    name="wiring",
    title="The whole wiring",
    summary="what tables, heads and MLPs can write to heads, MLPs and logits, compared with their nulls",
    package=__name__,
    chapter="Wiring",
    order=25,
    needs=ATTENTION,
    in_series=False,
)


def wiring(
    model: Any,
    *,
    src: str | Sequence[str] | None = None,
    dst: str | Sequence[str] | None = None,
    neurons: str | None = None,
    null: str = "peers",
    centering: str = "stored",
    top: int = 20,
    tolerance: float | None = None,
    memory: int | str = "4GB",
    **opening: Unpack[Opening],
) -> Result:
    """The graph of a transformer: token and position table, every head's Q, K, V and O, every MLP, the logits.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned.
    src, dst
        Which edges: from any of "W_E", "W_pos", "heads" (their O), "mlp", or single ones such as "L4H11" and "L3MLP";
        to any of "heads" (their Q, K and V), "Q", "K", "V", "mlp", "logits", or single ones. All by default.
    neurons
        A head such as "L4H11": in place of all this, the share of every neuron's input weight inside what the head
        writes, and of its output weight inside what the head reads.
    null
        "peers": heads are compared with the heads of their layer, pairs of heads by affinity's own nulls; where there
        are too few, rotation takes its place, and `null_reason` says why. "rotation": a random rotation that keeps both
        spectra, which anisotropy alone exceeds.
    centering
        Of the tables and the logits: "stored", or "centered", without their mean row, which all tokens share.
    top
        How many edges of each kind an exported graph holds beside those that stand out.
    tolerance
        Singular values up to this share of a head's largest count as zero; by default those up to the noise of the
        dtype that the weights were stored in.
    memory
        Budget for weights, bases and scratch space together; what does not fit goes to a scratch file.
    **opening
        `stack`, `fold`, `dtype`, `device`, `progress`, `time_limit`. As stored by default: the gain of a norm stands
        between a table and its reader unless `fold="layernorm"`, and W_U is read through the final norm only then.

    Returns
    -------
    Result
        A node per kind of edge ("W_E to Q", "MLP to K", "O to logits", ...) with `share` in [0, 1] over (src, dst), NaN
        where nothing composes, its value under each null, z, p, q and `tier`; in "parts" every end of an
        edge with its kind and layer. Expected of a random rotation is p/d_model for a head of p dimensions.

    >>> import headspan
    >>> result = headspan.wiring("demo", src="W_E", dst="heads")
    >>> round(float(result["W_E to V"].share.sel(src="W_E", dst="L0H0")), 2)
    0.39
    """
    options = arguments(locals())
    from headspan.lenses.run import run
    from headspan.lenses.wiring.parts import parse_choice

    if null not in NULLS[:2]:
        raise ArgumentError(f"null={null!r} is unknown; nulls are {', '.join(NULLS[:2])}")
    if centering not in CENTERINGS:
        raise ArgumentError(f"centering={centering!r} is unknown; it is {' or '.join(CENTERINGS)}")
    if top < 1:
        raise ArgumentError(f"top = {top} asks for no edge; it is at least 1")
    if neurons is not None and (src is not None or dst is not None):
        raise ArgumentError("neurons asks for the neurons of one head, so that src and dst have no place beside it")
    parse_choice(src, "src")
    parse_choice(dst, "dst")
    return run(LENS, [model], options, opening)
