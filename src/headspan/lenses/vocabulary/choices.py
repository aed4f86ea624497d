"""What was asked for: which matrices, heads and neurons, how many directions and tokens; or a projection."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headspan.dims import ROLES, HeadLabel, Role
from headspan.errors import ArgumentError

MATRICES = ("OV", "QK", "MLP", "W_U")
TABLES = ("W_E", "W_U")
LEAST_DRAWS = 50
MOST = 10_000
"""Tokens, directions or draws that are computed at most."""


@dataclass(frozen=True, order=True)
class Neuron:
    """One neuron of one layer's MLP; prints as `L3N1024`."""

    layer: int
    index: int

    def __str__(self) -> str:
        return f"L{self.layer}N{self.index}"

    @classmethod
    def parse(cls, text: str) -> Neuron:
        match = re.fullmatch(r"[Ll](\d{1,6})[Nn](\d{1,7})", text.strip())
        if match is None:
            raise ArgumentError(f"{text!r:.40} is not a neuron; write it like L3N1024")
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True)
class Chosen:
    """A checked choice; None stands for everything."""

    heads: tuple[HeadLabel, ...] | None
    matrices: tuple[str, ...] | None
    neurons: tuple[Neuron, ...]
    leading: int
    count: int
    draws: int

    @classmethod
    def of(
        cls,
        head: str | None,
        matrices: Sequence[str] | str | None,
        neurons: Sequence[str] | str | None,
        leading: int,
        count: int,
        draws: int,
    ) -> Chosen:
        _check(leading, "leading", "directions", 1)
        _check(count, "count", "tokens", 1)
        _check(draws, "draws", "random directions", LEAST_DRAWS)
        heads = None if head is None else tuple(dict.fromkeys(HeadLabel.parse(one) for one in head.split(",")))
        kv = next((one for one in heads or () if one.kv), None)
        if kv is not None:
            raise ArgumentError(f"head={kv}: directions belong to query heads; write it like L{kv.layer}H0")
        names = tuple(dict.fromkeys(Neuron.parse(one) for one in _listed(neurons)))
        return cls(heads, _checked_matrices(matrices), names, leading, count, draws)


@dataclass(frozen=True)
class Projection:
    """One head's read or write space, and the table whose tokens are projected into it."""

    head: HeadLabel
    role: Role
    table: str
    count: int

    @classmethod
    def of(cls, head: str | None, role: str | None, table: str | None, count: int) -> Projection:
        if role is None:
            raise ArgumentError("table goes with projection: also say Q, K, V or O")
        known = next((each for each in ROLES if each == role.upper()), None)
        if known is None:
            raise ArgumentError(f"projection={role!r:.40} is unknown; roles are {', '.join(ROLES)}")
        if table is not None and table not in TABLES:
            raise ArgumentError(f"table={table!r:.40} is unknown; it is one of {', '.join(TABLES)}")
        if head is None:
            raise ArgumentError("a projection needs the head to look at; name it with --head (head=...)")
        _check(count, "count", "tokens", 1, most=10_000_000)
        return cls(HeadLabel.parse(head), known, table or ("W_U" if known == "O" else "W_E"), count)


def _listed(names: Sequence[str] | str | None) -> list[str]:
    return [] if names is None else names.split(",") if isinstance(names, str) else list(names)


def _checked_matrices(asked: Sequence[str] | str | None) -> tuple[str, ...] | None:
    if asked is None:
        return None
    by_name = {name.upper(): name for name in MATRICES} | {"W_OV": "OV", "W_QK": "QK"}
    names = [name.strip() for name in _listed(asked)]
    unknown = next((name for name in names if name.upper() not in by_name), None)
    if unknown is not None or not names:
        raise ArgumentError(f"matrices: {unknown if names else asked!r} is unknown; they are {', '.join(MATRICES)}")
    wanted = {by_name[name.upper()] for name in names}
    return tuple(name for name in MATRICES if name in wanted)


def _check(number: int, name: str, what: str, least: int, most: int = MOST) -> None:
    if not least <= number <= most:
        raise ArgumentError(f"{name} = {number} is out of range; {what} are {least} to {most:,}")
