"""Which tokens live in what a head reads or writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION, ROLES, HeadLabel
from headspan.errors import ArgumentError
from headspan.result import Lens

if TYPE_CHECKING:
    from headspan.lenses.run import Opening
    from headspan.result import Result

LENS = Lens(
    name="tokens",
    title="Tokens in a head's subspace",
    summary="the tokens whose embeddings have most of their norm inside what a head reads or writes",
    package=__name__,
    chapter="Wiring",
    order=26,
    needs=ATTENTION,
    any_of=frozenset({"W_E", "W_U"}),
    on_request="needs the heads to look at",
    in_series=False,
)
VOCABULARIES = ("W_E", "W_U")


def tokens(
    model: Any,
    head: str,
    *,
    role: str = "Q",
    vocabulary: str | None = None,
    top: int = 20,
    **opening: Unpack[Opening],
) -> Result:
    """The tokens whose vectors lie most inside one head's subspace.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned.
    head
        A head such as "L4H7" (for K and V of a grouped model "L4K3", or the query head that reads it).
    role
        Q, K, V (read spaces) or O (the write space).
    vocabulary
        "W_E" or "W_U"; by default W_E for a read space and W_U for the write space.
    top
        How many tokens.
    **opening
        `stack`, `fold`, `dtype`, `device`, `progress`, `time_limit`.

    Returns
    -------
    Result
        `share` [token], in [0, 1]: the part of a token's squared norm inside the subspace; rank / d_model under the
        null.

    >>> import headspan
    >>> headspan.tokens("demo", "L1H6", top=3)["share"].sizes["token"]
    3
    """
    from headspan.lenses.run import run

    HeadLabel.parse(head)
    if role.upper() not in ROLES:
        raise ArgumentError(f"role={role!r} is unknown; roles are {', '.join(ROLES)}")
    if vocabulary is not None and vocabulary not in VOCABULARIES:
        raise ArgumentError(f"vocabulary={vocabulary!r} is unknown; it is one of {', '.join(VOCABULARIES)}")
    if top < 1:
        raise ArgumentError(f"top = {top} asks for no token; it is at least 1")
    chosen = vocabulary or ("W_U" if role.upper() == "O" else "W_E")
    return run(LENS, [model], {"head": head, "role": role.upper(), "vocabulary": chosen, "top": top}, opening)
