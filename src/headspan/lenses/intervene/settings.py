"""Which changes to look at: by default the spectra of all queries and keys scaled, and random weights beside them.

`Changes` holds what a call asks for; what can be checked without the model is checked there. `Changes.settings` makes
the interventions, which need the model's weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headspan.dims import ROLES, Role
from headspan.errors import ArgumentError
from headspan.runtime import Prompt, RunnableModel
from headspan.runtime.interventions import (
    AblatedHeads,
    HeadSpectra,
    Intervention,
    Reinitialized,
    ScaledLogits,
    SwappedHeads,
    WithoutSubspace,
    head_space,
    mean_values,
)
from headspan.runtime.interventions.channels import parsed_channel

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


def map_settings(seed: int = 0) -> tuple[Setting, ...]:
    """What maps are looked at under: random weights, spectra doubled and halved."""
    return tuple(setting(one) for one in (Reinitialized(seed), ScaledLogits(2.0), ScaledLogits(0.5)))


@dataclass
class Changes:
    """What a call of `headspan.intervene` asks for, by its arguments; one of a kind may be given as such."""

    scale_qk: Any = None
    alphas: Any = None
    rank_qk: Any = None
    flatten_qk: bool = False
    rotate_qk: bool = False
    randomize: bool = False
    randomize_attention: bool = False
    ablate_head: Any = None
    mean: bool = False
    ablate_subspace: Any = None
    channel: Any = None
    swap: Any = None
    heads: Any = None
    together: bool = False

    def __post_init__(self) -> None:
        """Every argument as a tuple; what cannot be read is refused."""
        grid = parsed_grid(self.alphas) if isinstance(self.alphas, str) else _several(self.alphas)
        self.scale_qk = (*_several(self.scale_qk), *grid)
        self.rank_qk, self.ablate_head = _several(self.rank_qk), _several(self.ablate_head)
        self.ablate_subspace = tuple(map(parsed_removal, _several(self.ablate_subspace)))
        self.channel = tuple(map(parsed_channel, _several(self.channel)))
        self.heads = None if self.heads is None else _listed(self.heads)
        pair = () if self.swap is None else _listed(self.swap)
        if self.swap is not None and len(pair) != 2:
            raise ArgumentError(f"swap={self.swap!r} are not two heads; write them like L0H1,L1H2")
        self.swap = pair

    def settings(self, model: RunnableModel, prompt: Prompt, seed: int) -> tuple[Setting, ...]:
        """One setting for each change, or one for all together; none where none was asked for."""
        made = [*self._of_spectra(model, seed), *self._of_heads(model, prompt)]
        if not made:
            return ()
        return (setting(*made),) if self.together else tuple(setting(each) for each in made)

    def _of_spectra(self, model: RunnableModel, seed: int) -> list[Intervention]:
        """Changes of spectra and random weights; matrices are decomposed once for all of them."""
        made: list[Intervention] = [ScaledLogits(alpha, self.heads) for alpha in self.scale_qk]
        if self.rank_qk or self.flatten_qk or self.rotate_qk:
            spectra = HeadSpectra.of(model, ("Q", "K"), self.heads)
            made += [spectra.truncated(rank) for rank in self.rank_qk]
            made += [spectra.flattened()] if self.flatten_qk else []
            made += [spectra.with_random_bases(seed)] if self.rotate_qk else []
        made += [Reinitialized(seed, attention_only=True)] if self.randomize_attention else []
        return made + ([Reinitialized(seed)] if self.randomize else [])

    def _of_heads(self, model: RunnableModel, prompt: Prompt) -> list[Intervention]:
        made: list[Intervention] = []
        if self.ablate_head:
            means = mean_values(model, prompt.tokens) if self.mean else None
            made.append(AblatedHeads(self.ablate_head, means))
        made += [removal.of(model) for removal in self.ablate_subspace]
        made += self.channel
        return made + ([SwappedHeads(*self.swap)] if self.swap else [])


def _several(value: Any) -> tuple[Any, ...]:
    """None, one or several as a tuple."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str | int | float) else tuple(value)


def _listed(value: str | Sequence[str]) -> tuple[str, ...]:
    """Heads from text that separates them by commas, or from a sequence."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(value)


def alpha_grid(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` alphas from low to high, evenly spaced in their logarithm."""
    if not (0 < low <= high < math.inf) or count < 2:
        raise ArgumentError(f"a grid of alphas needs 0 < low <= high and at least 2 steps, found {low}:{high}:{count}")
    step = math.log(high / low) / (count - 1)
    return tuple(low * math.exp(step * place) for place in range(count))


def parsed_grid(text: str) -> tuple[float, ...]:
    """Alphas from `low:high:count`."""
    parts = text.split(":")
    try:
        low, high, count = float(parts[0]), float(parts[1]), int(parts[2])
    except (ValueError, IndexError):
        raise ArgumentError(f"{text!r} is not a grid of alphas; write it like 0.25:4:9") from None
    if len(parts) > 3:
        raise ArgumentError(f"{text!r} is not a grid of alphas; write it like 0.25:4:9")
    return alpha_grid(low, high, count)


@dataclass(frozen=True)
class Removal:
    """What one head reads (or writes) through a role, without the space that another head reads or writes."""

    head: str
    role: Role
    other: str
    space: Role

    def of(self, model: RunnableModel) -> WithoutSubspace:
        """The intervention in a model."""
        return WithoutSubspace(
            self.head, self.role, head_space(model, self.other, self.space), f"{self.other}.{self.space}"
        )


def parsed_removal(text: str) -> Removal:
    """A removal from `L1H0.K-L0H3.O`: what L1H0 reads through K, without the space that L0H3 writes into."""
    whose, dash, what = text.partition("-")
    parts = [part.strip().rpartition(".") for part in (whose, what)]
    roles = [next((role for role in ROLES if role == name.upper()), None) for _, _, name in parts]
    (head, other), (role, space) = (parts[0][0], parts[1][0]), roles
    if not dash or not head or not other or role is None or space is None:
        raise ArgumentError(
            f"{text!r} names no subspace of a head; write it like L1H0.K-L0H3.O: from what L1H0's K reads, what L0H3 "
            "writes"
        )
    return Removal(head, role, other, space)


def checked_settings(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """The settings, with names that differ."""
    if not settings:
        raise ArgumentError("no intervention was asked for; name at least one")
    names = [each.name for each in settings]
    again = next((name for name in names if names.count(name) > 1), None)
    if again is not None:
        raise ArgumentError(f"the intervention {again!r} was asked for twice")
    return tuple(settings)
