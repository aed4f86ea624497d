"""The record of one thing learned about a model. Rules that make findings live in the folders of the lenses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headspan.errors import ArgumentError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Finding:
    """One sentence about a model, with the number it rests on and what is expected under the null.

    `expected`, `p` and `q` are None where the quantity has none; `weight` ranks findings, 0 (a remark) to 1 (striking).
    """

    lens: str
    statement: str
    value: float
    expected: float | None = None
    p: float | None = None
    q: float | None = None
    evidence: str = ""
    reference: str = ""
    weight: float = 0.0
    figure: str = ""
    """Name of the lens's figure that shows it; by default the lens's first."""

    def __post_init__(self) -> None:
        if not self.statement:
            raise ArgumentError("a finding needs a statement")
        if not 0.0 <= self.weight <= 1.0:
            raise ArgumentError(f"a finding's weight lies in 0..1, not {self.weight}")
        for name in ("p", "q"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 1.0:
                raise ArgumentError(f"{name} of a finding lies in 0..1, not {value}")


def significance(name: str, value: float) -> str:
    """A p- or q-value in a sentence: `p = 0.003`, or a bound where a float ends."""
    if value != value:
        return f"{name} undefined"
    return f"{name} < 1e-300" if value < 1e-300 else f"{name} = {value:.2g}"


def percent(share: float | np.floating[Any], digits: int = 0, *, signed: bool = False) -> str:
    """A share in a sentence or a table: `5.0 %`."""
    return f"{100 * share:{'+' if signed else ''}.{digits}f} %"


def rank_evidence(rule: float | str) -> str:
    """How ranks were decided, as a sentence, from a result's attribute `tolerance`."""
    if isinstance(rule, str):
        return f"Singular values up to the {rule}, in which the weights are stored, count as zero."
    return f"Singular values up to {rule:.1e} of the largest count as zero."
