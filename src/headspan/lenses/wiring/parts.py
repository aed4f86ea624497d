"""The parts of a transformer as nodes of a graph: their kinds, their labels, and how they are asked for.

A kind of part writes the stream (W_E, W_pos, O, MLP) or reads it (Q, K, V, MLP, logits). An edge's kind, its relation,
is written "MLP to Q". Heads are labeled as everywhere (`L4H11`, `L5K0`), the MLP of layer 3 is `L3MLP`, its neuron
`L3N1024`; tables and logits are their own label.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headspan.checkpoint.families.order import Part, can_compose
from headspan.dims import KV_ROLES, HeadLabel, Role
from headspan.errors import ArgumentError
from headspan.heads import Heads
from headspan.labels import head_labels

WRITERS: tuple[Part, ...] = ("W_E", "W_pos", "O", "MLP")
READERS: tuple[Part, ...] = ("Q", "K", "V", "MLP", "logits")
READ_ROLES: tuple[Role, ...] = ("Q", "K", "V")
WORDS: dict[str, dict[str, tuple[Part, ...]]] = {
    "src": {"w_e": ("W_E",), "w_pos": ("W_pos",), "heads": ("O",), "o": ("O",), "mlp": ("MLP",)},
    "dst": {
        "heads": ("Q", "K", "V"),
        "q": ("Q",),
        "k": ("K",),
        "v": ("V",),
        "mlp": ("MLP",),
        "logits": ("logits",),
        "w_u": ("logits",),
    },
}
"""What can be asked for on either side, and which kinds of parts it means."""
ENCODER = "encoder"
"""The stack whose output cross-attention reads, and the prefix of its parts beside those of the decoder."""
SPOKEN = {"src": "W_E, W_pos, heads, mlp", "dst": "heads, Q, K, V, mlp, logits"}


@dataclass(frozen=True)
class Choice:
    """What was asked for on one side: kinds, and labels of single parts; no label means all of a kind."""

    kinds: tuple[Part, ...]
    heads: tuple[HeadLabel, ...] = ()
    mlps: tuple[int, ...] = ()

    def check_parts(self, heads: Heads) -> None:
        """Refuse single heads and MLPs that a model does not have."""
        for label in self.heads:
            count = heads.n_kv_heads if label.kv else heads.n_heads
            if label.layer not in heads.layers or label.head >= count:
                first, last = (
                    HeadLabel(*end, kv=label.kv) for end in ((heads.layers[0], 0), (heads.layers[-1], count - 1))
                )
                raise ArgumentError(f"{label} does not exist: this model has {first} to {last}")
        for layer in self.mlps:
            if layer not in heads.layers:
                raise ArgumentError(
                    f"L{layer}MLP does not exist: this model has layers {heads.layers[0]} to {heads.layers[-1]}"
                )

    def keeps(self, part: Part, label: str) -> bool:
        """Whether a part of one of these kinds was asked for."""
        if part == "MLP":
            return not self.mlps or label in {f"L{layer}MLP" for layer in self.mlps}
        return part in ("W_E", "W_pos", "logits") or not self.heads or label in set(map(str, self.heads))


def parse_choice(text: str | Sequence[str] | None, side: str) -> Choice:
    """`"W_E"`, `"heads,mlp"`, `"L4H11"`, `"L3MLP"` or a list of them; everything where nothing was asked for."""
    if text is None:
        return Choice(WRITERS if side == "src" else READERS)
    names = text.replace(" ", "").split(",") if isinstance(text, str) else list(text)
    kinds: list[Part] = []
    heads: list[HeadLabel] = []
    mlps: list[int] = []
    for name in names:
        single = re.fullmatch(r"[Ll](\d{1,6})(?:[Mm][Ll][Pp])", name)
        if name.lower() in WORDS[side]:
            kinds += WORDS[side][name.lower()]
        elif single is not None:
            kinds, mlps = [*kinds, "MLP"], [*mlps, int(single[1])]
        elif re.fullmatch(r"[Ll]\d+[HhKk]\d+|\d+\.\d+", name):
            kinds, heads = [*kinds, *WORDS[side]["heads"]], [*heads, HeadLabel.parse(name)]
        else:
            raise ArgumentError(
                f"{side}={name!r} is no part of a wiring; write {SPOKEN[side]}, a head such as L4H11, or an MLP such "
                "as L3MLP"
            )
    chosen = tuple(dict.fromkeys(kinds))
    if not chosen:
        raise ArgumentError(f"{side}={text!r} asks for nothing; write {SPOKEN[side]}")
    return Choice(chosen, tuple(heads), tuple(mlps))


@dataclass(frozen=True)
class Axis:
    """All parts of one kind, in order: labels, and layers and numbers where they have any."""

    part: Part
    labels: np.ndarray
    layers: np.ndarray | None = None
    numbers: np.ndarray | None = None
    name: str = ""
    """Of neurons: the weights they are seen through, gate, up, in or out."""
    stack: str = ""
    """Where it is another stack than the one whose wiring this is."""

    def at(self, place: int) -> int:
        """The layer of a part; 0 for tables and logits, whose place does not depend on it."""
        return 0 if self.layers is None else int(self.layers[place])

    @property
    def is_heads(self) -> bool:
        return self.part in ("Q", "K", "V", "O")

    @property
    def is_neurons(self) -> bool:
        return bool(self.name)


def axis(heads: Heads, part: Part) -> Axis:
    """The parts of one kind of a model; kv heads are labeled as such where they are fewer than the heads."""
    layers = np.asarray(heads.layers)
    if part == "MLP":
        return Axis(part, np.array([f"L{layer}MLP" for layer in layers], dtype=object), layers)
    if part in ("Q", "K", "V", "O"):
        count = heads.shape(part)[1]
        layer, number = np.repeat(layers, count), np.tile(np.arange(count), len(layers))
        kv = part in KV_ROLES and heads.n_kv_heads < heads.n_heads
        return Axis(part, head_labels(layer, number, kv), layer, number)
    return Axis(part, np.array([part], dtype=object))


def available(heads: Heads, choice: Choice) -> tuple[Part, ...]:
    """The kinds of a choice that this checkpoint holds."""
    needs = {"W_E": "W_E", "W_pos": "W_pos", "MLP": "MLP", "logits": "W_U"}
    there = heads.reader.stored.parts
    return tuple(part for part in choice.kinds if needs.get(part, "W_Q") in there)


def composing(heads: Heads, src: Axis, dst: Axis) -> np.ndarray:
    """Which pairs compose, [src, dst]: what the order of the stack's parts says."""
    stack = heads.stack
    layers = [sorted({one.at(place) for place in range(len(one.labels))}) for one in (src, dst)]
    table = {(a, b): can_compose(stack, src.part, a, dst.part, b) for a in layers[0] for b in layers[1]}
    rows = [[table[src.at(i), dst.at(j)] for j in range(len(dst.labels))] for i in range(len(src.labels))]
    return np.array(rows, dtype=bool).reshape(len(src.labels), len(dst.labels))


def relation_name(src: str, dst: str) -> str:
    """`MLP to Q`."""
    return f"{src} to {dst}"


def part_id(part: str, label: str, side: str) -> str:
    """The name of a node in a graph: `L4H11.O`, `L5K0.V`, `L3MLP.in`, `W_E`, `encoder.L2H1.O`."""
    part = part.removeprefix(f"{ENCODER} ")
    if part == "MLP" and label.endswith("MLP"):
        return f"{label}.{'out' if side == 'src' else 'in'}"
    return f"{label}.{part}" if part in ("Q", "K", "V", "O") else label
