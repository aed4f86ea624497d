"""The matrices of a model, by kind: which there are, what shape they have, and along which axes they run.

W_Q W_K W_V W_O                     whole, all heads of a layer side by side            [layer]
W_Q_head W_K_head W_V_head W_O_head one head each; K and V along kv heads               [layer, head or kv_head]
W_QK W_OV                           W_Q W_K^T and W_V W_O of a head, through factors    [layer, head]
W_in W_gate W_out                   the MLP: what it reads (with a gate, in gated ones) and writes   [layer]
W_E W_pos W_U                       tables of tokens and positions, unembedding
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headspan.dims import HEAD, KV_HEAD, LAYER, ROLES, Role, head_axis
from headspan.errors import ShapeError
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


def chosen_kinds(heads: Heads, asked: Iterable[str] | str | None) -> tuple[str, ...]:
    """The kinds that were asked for and that this checkpoint has; everything it has by default."""
    there = available_kinds(heads)
    if asked is None:
        return there
    names = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else list(asked)
    unknown = [name for name in names if name not in KINDS]
    if unknown or not names:
        raise ShapeError(f"{unknown[0] if unknown else asked!r} is not a matrix; matrices are {', '.join(KINDS)}")
    absent = [name for name in names if name not in there]
    if absent:
        raise ShapeError(f"this checkpoint has no {absent[0]} of its own; it has {', '.join(there)}")
    return tuple(name for name in KINDS if name in names)


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
    role = next(role for role in ROLES if name.startswith(f"W_{role}"))
    if name in WHOLE:
        return Kind(name, (LAYER,), *whole[role], None, (whole[role],))
    axis = KV_HEAD if head_axis(role) == KV_HEAD else HEAD
    return Kind(name, (LAYER, axis), *sizes[role][1:], None, (whole[role],))
