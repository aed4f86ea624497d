"""The matrices of a model, by kind: which there are, their shape and axes, and the scale of their entries at the start.

W_Q W_K W_V W_O                     whole, all heads of a layer side by side            [layer]
W_Q_head W_K_head W_V_head W_O_head one head each; K and V along kv heads               [layer, head or kv_head]
W_QK W_OV                           W_Q W_K^T and W_V W_O of a head, through factors    [layer, head]
W_in W_gate W_out                   the MLP: what it reads (with a gate, in gated ones) and writes   [layer]
W_E W_pos W_U                       tables of tokens and positions, unembedding
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headspan.dims import HEAD, LAYER, ROLES, Role, head_axis
from headspan.errors import ArgumentError

if TYPE_CHECKING:
    from headspan.heads import Heads

WHOLE = tuple(f"W_{role}" for role in ROLES)
PER_HEAD = tuple(f"W_{role}_head" for role in ROLES)
PRODUCTS = ("W_QK", "W_OV")
MLP = ("W_gate", "W_in", "W_out")
TABLES = ("W_E", "W_pos", "W_U")
KINDS = (*WHOLE, *MLP, *TABLES, *PER_HEAD, *PRODUCTS)
FACTORS: dict[str, tuple[Role, Role]] = {"W_QK": ("Q", "K"), "W_OV": ("V", "O")}


@dataclass(frozen=True)
class Kind:
    """Matrices of one shape: `rows` x `columns`, for products through `inner`; `axes` are those they run along.

    `stored` are the shapes of the stored matrices they come from, one or, for products, two.
    """

    name: str
    axes: tuple[str, ...]
    rows: int
    columns: int
    inner: int | None
    stored: tuple[tuple[int, int], ...]


def checked_matrices(asked: Iterable[str] | str | None) -> tuple[str, ...] | None:
    """The kinds that were asked for, each once, refused if there is no such kind; None for everything there is."""
    if asked is None:
        return None
    names = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else list(asked)
    unknown = [name for name in names if name not in KINDS]
    if unknown or not names:
        raise ArgumentError(
            f"matrices: {unknown[0] if unknown else asked!r} is not a matrix; matrices are {', '.join(KINDS)}"
        )
    return tuple(name for name in KINDS if name in names)


def chosen_kinds(heads: Heads, asked: Iterable[str] | str | None) -> tuple[str, ...]:
    """The kinds that were asked for, which this checkpoint must have; everything it has by default."""
    there, names = available_kinds(heads), checked_matrices(asked)
    absent = [name for name in names or () if name not in there]
    if absent:
        raise ArgumentError(f"matrices: this checkpoint has no {absent[0]} of its own; it has {', '.join(there)}")
    return there if names is None else names


def available_kinds(heads: Heads) -> tuple[str, ...]:
    """Every kind that this checkpoint holds. A tied unembedding is its token table, which counts once."""
    stored = heads.reader.stored
    mlp = stored.stack.mlp
    there = {*WHOLE, *PER_HEAD, *PRODUCTS}
    if "MLP" in stored.parts and mlp is not None:
        there |= {"W_in", "W_out"} | ({"W_gate"} if mlp.fused or len(mlp.reads) > 1 else set())
    there |= stored.parts & set(TABLES)
    tokens = None if stored.stack.tokens is None else stored.names.find(*stored.stack.tokens.names)
    folded = heads.fold != "none" and stored.stack.final_norm is not None
    if "W_U" in there and (stored.stack.tied or stored.unembedding == tokens) and not folded:
        there.remove("W_U")
    return tuple(name for name in KINDS if name in there)


def head_role(name: str) -> Role:
    """The role of an attention matrix, whole or of one head."""
    return next(role for role in ROLES if name.startswith(f"W_{role}"))


def attention_kind(heads: Heads, name: str) -> Kind:
    """Shape and axes of a kind of attention matrix."""
    sizes = {role: heads.shape(role)[1:] for role in ROLES}
    whole = {
        role: (heads_ * rows, columns) if role == "O" else (rows, heads_ * columns)
        for role, (heads_, rows, columns) in sizes.items()
    }
    if name in PRODUCTS:
        first, second = FACTORS[name]
        inner = heads.d_head if name == "W_QK" else heads.d_value
        return Kind(name, (LAYER, HEAD), heads.d_model, heads.d_model, inner, (whole[first], whole[second]))
    role = head_role(name)
    if name in WHOLE:
        return Kind(name, (LAYER,), *whole[role], None, (whole[role],))
    return Kind(name, (LAYER, head_axis(role)), *sizes[role][1:], None, (whole[role],))


@dataclass(frozen=True)
class Initialization:
    """Entries at initialization: one standard deviation for all, or Xavier's sqrt(2 / (inputs + outputs)) for each."""

    name: str
    sd: float | None

    def of(self, rows: int, columns: int) -> float:
        """For a matrix of that shape as it is stored, all heads together."""
        return math.sqrt(2 / (rows + columns)) if self.sd is None else self.sd


XAVIER = Initialization("xavier: sqrt(2 / (rows + columns))", None)


def checked_init(asked: str | float | None) -> str | float | None:
    """What the public function takes as `init`; anything but "xavier", "config" or a scale above 0 is refused."""
    if asked is None or asked in ("xavier", "config"):
        return asked
    try:
        sd = float(asked)
    except ValueError:
        sd = math.nan
    if not (math.isfinite(sd) and sd > 0):
        raise ArgumentError(f'init is "xavier", "config" or a standard deviation above 0, not {asked!r}')
    return sd


def initialization(heads: Heads, asked: str | float | None) -> Initialization:
    """The initialization asked for; by default the config's `initializer_range` where it has one, else Xavier's."""
    wanted = checked_init(asked)
    if isinstance(wanted, float):
        return Initialization(f"given: {wanted:g}", wanted)
    stated = None if wanted == "xavier" else _initializer_range(heads)
    if stated is None and wanted == "config":
        raise ArgumentError('init="config": the config has no initializer_range; use "xavier" or a number such as 0.02')
    return XAVIER if stated is None else Initialization(f"config: initializer_range {stated:g}", stated)


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
