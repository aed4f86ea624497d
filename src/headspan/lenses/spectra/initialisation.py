"""The standard deviation a matrix's entries had before training, as far as it is stated."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headspan.errors import ShapeError
from headspan.heads import Heads


@dataclass(frozen=True)
class Initialisation:
    """One standard deviation for all matrices, or Xavier's sqrt(2 / (inputs + outputs)) for each."""

    name: str
    sd: float | None

    def of(self, rows: int, columns: int) -> float:
        """For a matrix of that shape as it is stored, all heads together."""
        return math.sqrt(2 / (rows + columns)) if self.sd is None else self.sd


XAVIER = Initialisation("xavier: sqrt(2 / (rows + columns))", None)


def initialisation(heads: Heads, asked: str | float | None) -> Initialisation:
    """`asked` as "xavier", "config" or a number; by default the config's `initializer_range` where it has one."""
    if asked == "xavier":
        return XAVIER
    if asked is None or asked == "config":
        stated = _initializer_range(heads)
        if stated is None and asked == "config":
            raise ShapeError('the config has no initializer_range; use init="xavier", or a number such as 0.02')
        return XAVIER if stated is None else Initialisation(f"config: initializer_range {stated:g}", stated)
    try:
        sd = float(asked)
    except ValueError:
        sd = math.nan
    if not (math.isfinite(sd) and sd > 0):
        raise ShapeError(f'init is "xavier", "config" or a standard deviation above 0, not {asked!r}')
    return Initialisation(f"given: {sd:g}", sd)


def _initializer_range(heads: Heads) -> float | None:
    """Of the stack's own config, where a model has several, or of the model's."""
    config = heads.checkpoint.config
    nested = config.fields.get(f"{heads.stack.name}_config")
    for value in (
        nested.get("initializer_range") if isinstance(nested, dict) else None,
        config.get("initializer_range"),
    ):
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
            return float(value)
    return None
