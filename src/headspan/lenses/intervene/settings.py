"""Which changes to look at: by default the spectra of all queries and keys scaled, and random weights beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headspan.dims import Role
from headspan.errors import ShapeError
from headspan.runtime import RunnableModel
from headspan.runtime.interventions import (
    Intervention,
    Reinitialized,
    ScaledLogits,
    WithoutSubspace,
    head_space,
)
from headspan.runtime.interventions.head_parameters import Label

UNMODIFIED = "unmodified"
DEFAULT_ALPHAS = (0.25, 0.5, 1 / math.sqrt(2), math.sqrt(2), 2.0, 4.0)


@dataclass(frozen=True)
class Setting:
    """Interventions made together, under one name."""

    name: str
    interventions: tuple[Intervention, ...]
    alpha: float = float("nan")
    """Where all that is done is a scaling of all heads, by how much; 1 for the unmodified model."""


def setting(*interventions: Intervention) -> Setting:
    """Interventions made together, named by what they do."""
    only = interventions[0] if len(interventions) == 1 else None
    whole = isinstance(only, ScaledLogits) and only.heads is None
    alpha = only.alpha if isinstance(only, ScaledLogits) and whole else float("nan")
    return Setting(" + ".join(each.name for each in interventions), interventions, alpha)


def default_settings(seed: int = 0) -> tuple[Setting, ...]:
    """Alphas around 1, random attention, random weights throughout."""
    random = (Reinitialized(seed, attention_only=True), Reinitialized(seed))
    return (*(setting(ScaledLogits(alpha)) for alpha in DEFAULT_ALPHAS), *map(setting, random))


def alpha_grid(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` alphas from low to high, evenly spaced in their logarithm."""
    if not (0 < low <= high < math.inf) or count < 2:
        raise ShapeError(f"a grid of alphas needs 0 < low <= high and at least 2 steps, found {low}:{high}:{count}")
    step = math.log(high / low) / (count - 1)
    return tuple(low * math.exp(step * place) for place in range(count))


def parsed_grid(text: str) -> tuple[float, ...]:
    """Alphas from `low:high:count`."""
    parts = text.split(":")
    try:
        low, high, count = float(parts[0]), float(parts[1]), int(parts[2])
    except (ValueError, IndexError):
        raise ShapeError(f"{text!r} is not a grid of alphas; write it like 0.25:4:9") from None
    if len(parts) > 3:
        raise ShapeError(f"{text!r} is not a grid of alphas; write it like 0.25:4:9")
    return alpha_grid(low, high, count)


def parsed_removal(model: RunnableModel, text: str) -> WithoutSubspace:
    """A removal from `L1H0.K-L0H3.O`: what L1H0 reads through K, without the space that L0H3 writes into."""
    whose, dash, what = text.partition("-")
    if not dash:
        raise ShapeError(_removal_words(text))
    (head, role), (other, space) = _part(whose, text), _part(what, text)
    return WithoutSubspace(head, role, head_space(model, other, space), f"{other}.{space}")


def _part(text: str, whole: str) -> tuple[Label, Role]:
    head, dot, role = text.strip().rpartition(".")
    roles: dict[str, Role] = {"Q": "Q", "K": "K", "V": "V", "O": "O"}
    if not dot or role.upper() not in roles:
        raise ShapeError(_removal_words(whole))
    return head, roles[role.upper()]


def _removal_words(text: str) -> str:
    return (
        f"{text!r} names no subspace of a head; write it like L1H0.K-L0H3.O: from what L1H0's K reads, what L0H3 writes"
    )


def checked_settings(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """The settings, with names that differ."""
    if not settings:
        raise ShapeError("no intervention was asked for; name at least one")
    names = [each.name for each in settings]
    again = next((name for name in names if names.count(name) > 1), None)
    if again is not None:
        raise ShapeError(f"the intervention {again!r} was asked for twice")
    return tuple(settings)
