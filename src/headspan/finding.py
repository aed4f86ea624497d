"""The record of one thing learned about a model. A record only: rules that make findings live in `findings/`."""

from __future__ import annotations

from dataclasses import dataclass

from headspan.errors import ShapeError


@dataclass(frozen=True)
class Finding:
    """One sentence about a model, with the number it rests on and what chance would give.

    `chance` and `p_value` are None where the quantity has none; `weight` ranks findings, 0 (a remark) to 1 (striking).
    """

    lens: str
    statement: str
    value: float
    chance: float | None = None
    p_value: float | None = None
    evidence: str = ""
    reference: str = ""
    weight: float = 0.0
    figure: str = ""
    """Name of the lens's figure that shows it; by default the lens's first."""

    def __post_init__(self) -> None:
        if not self.statement:
            raise ShapeError("a finding needs a statement")
        if not 0.0 <= self.weight <= 1.0:
            raise ShapeError(f"a finding's weight lies in 0..1, not {self.weight}")
        if self.p_value is not None and not 0.0 <= self.p_value <= 1.0:
            raise ShapeError(f"a p-value lies in 0..1, not {self.p_value}")
