"""The vocabulary: names of axes, roles of weights, pairings of roles, and labels of heads.

Everything here is plain Python, so that the command line can use it without loading torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from headspan.errors import ArgumentError

Role = Literal["Q", "K", "V", "O"]
Fold = Literal["none", "layernorm"]
Positions = Literal["learned", "rotary", "alibi", "relative", "sinusoidal", "none"]

ROLES: tuple[Role, ...] = get_args(Role)
KV_ROLES: tuple[Role, ...] = ("K", "V")
ATTENTION = frozenset({"W_Q", "W_K", "W_V", "W_O"})
COMPOSING: tuple[str, ...] = ("OQ", "OK", "OV")
PAIRINGS: tuple[str, ...] = tuple(src + dst for src in ROLES for dst in ROLES)

LAYER, HEAD, KV_HEAD = "layer", "head", "kv_head"
SRC_LAYER, SRC_HEAD, DST_LAYER, DST_HEAD = "src_layer", "src_head", "dst_layer", "dst_head"
PAIR_DIMS = (SRC_LAYER, SRC_HEAD, DST_LAYER, DST_HEAD)


def parse_pairings(text: str | Iterable[str]) -> tuple[str, ...]:
    """Pairings from `"OQ,OK"`, `"all"` or a list of them, each a source role and a destination role."""
    names = text.replace(" ", "").split(",") if isinstance(text, str) else list(text)
    if names == ["all"]:
        return PAIRINGS
    unknown = [name for name in names if name.upper() not in PAIRINGS]
    if unknown or not names:
        raise ArgumentError(
            f"{unknown[0] if unknown else text!r} is not a pairing; write a source and a destination role of Q, K, V, "
            'O, such as OQ, or "all"'
        )
    return tuple(dict.fromkeys(name.upper() for name in names))


def head_axis(role: Role) -> str:
    """The axis a role's heads run along: K and V keep their own, shorter one in grouped models."""
    return KV_HEAD if role in KV_ROLES else HEAD


@dataclass(frozen=True, order=True)
class HeadLabel:
    """One head of one layer; prints as `L4H7`, or as `L4K3` for a kv head of a grouped model."""

    layer: int
    head: int
    kv: bool = False

    def __str__(self) -> str:
        return f"L{self.layer}{'K' if self.kv else 'H'}{self.head}"

    @classmethod
    def parse(cls, text: str | tuple[int, int]) -> HeadLabel:
        """Read `L4H7`, `L4K3`, `4.7` or `(4, 7)`."""
        if isinstance(text, tuple):
            return cls(*text)
        match = re.fullmatch(r"[Ll](\d{1,6})([HhKk])(\d{1,6})|(\d{1,6})\.(\d{1,6})", text.strip())
        if match is None:
            raise ArgumentError(f"{text!r} is not a head; write it like L4H7, 4.7, or L4K3 for a kv head")
        layer, kind, head, dotted_layer, dotted_head = match.groups()
        if kind is None:
            return cls(int(dotted_layer), int(dotted_head))
        return cls(int(layer), int(head), kv=kind in "Kk")


def check_seed(seed: object) -> None:
    """Refuse what is no random seed: whole numbers of 63 bits, which every generator takes."""
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise ArgumentError(f"seed needs to be a whole number in 0..{2**63 - 1}, found {seed!r:.40}")
