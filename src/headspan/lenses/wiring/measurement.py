"""The whole wiring: edges of every kind between the parts that were asked for.

1. Which kinds of parts there are, and which of their pairs compose (`parts`, `checkpoint.families.order`).
2. Quadratic forms of all matrices and the heads' shares of them, in one pass over the weights (`energy`).
3. Each kind of edge beside its nulls (`relations`); pairs of heads are those of affinity.
4. On request, the neurons of one head in place of all this (`neurons`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import xarray as xr

from headspan.checkpoint.families.order import Part
from headspan.dims import Role
from headspan.errors import ArgumentError, UnsupportedModel
from headspan.heads import Heads
from headspan.heads.memory import memory_bytes
from headspan.heads.precision import computing_dtype
from headspan.lenses.wiring.encoder_edges import encoder_edges
from headspan.lenses.wiring.energy import Energies, Matrix, energies
from headspan.lenses.wiring.head_edges import head_edges
from headspan.lenses.wiring.neurons import neuron_edges
from headspan.lenses.wiring.parts import (
    READ_ROLES,
    Axis,
    Choice,
    available,
    axis,
    composing,
    parse_choice,
    part_id,
    relation_name,
)
from headspan.lenses.wiring.relations import Edges, Spectra, matrix_edges
from headspan.lenses.wiring.schema import PEERS, ROTATION

SHARED = "passes run through shared layers, so that their heads are no independent peers"
TIED = "W_U is the token table itself"


def measure(
    heads: Heads,
    *,
    src: str | Sequence[str] | None = None,
    dst: str | Sequence[str] | None = None,
    neurons: str | None = None,
    null: str = PEERS,
    centering: str = "stored",
    top: int = 20,
    dtype: Any = None,
    tolerance: float | None = None,
    memory: int | str = "4GB",
) -> xr.DataTree:
    """`headspan.wiring` on heads: a node per kind of edge, and one of the parts."""
    budget, chosen = memory_bytes(memory), (parse_choice(src, "src"), parse_choice(dst, "dst"))
    for choice in () if heads.stack.reads_memory else chosen:  # beside cross-attention stand the encoder's own
        choice.check_parts(heads.unrolled())
    computed = heads.to(dtype or computing_dtype(heads))
    passes = computed.unrolled()
    used = ROTATION if heads.stack.passes else null
    if neurons is not None:
        found = list(neuron_edges(passes, neurons, used, tolerance))
    else:
        found = list(_edges(computed, passes, chosen, used, centering == "centered", tolerance, budget))
    asked = None if neurons is not None else chosen
    nodes = {relation_name(each.name_of("src"), each.name_of("dst")): each.dataset(asked) for each in found}
    nodes = {name: node for name, node in nodes.items() if node.sizes["src"] and node.sizes["dst"]}
    if not nodes:
        error = UnsupportedModel if src is dst is neurons is None else ArgumentError
        raise error(_nothing(heads, chosen))
    attrs = {
        "dtype": str(computed.dtype).removeprefix("torch."),
        "tolerance": heads.rank_rule(tolerance),
        "null": null,
        "centering": centering,
        "top": top,
        "neurons": neurons or "",
        "n_layers": passes.n_layers,
        "parallel": int(heads.stack.parallel),
        **({"shared_weights": SHARED} if heads.stack.passes else {}),
    }
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **nodes, "parts": _parts(found, nodes)})


def _edges(
    heads: Heads,
    passes: Heads,
    chosen: tuple[Choice, Choice],
    null: str,
    centered: bool,
    tolerance: float | None,
    budget: int,
) -> Iterator[Edges]:
    """Edges of every kind that was asked for and that this checkpoint has, pairs of heads first."""
    writing, reading = (available(passes, choice) for choice in chosen)
    if "O" in writing and set(READ_ROLES) & set(reading):
        yield from head_edges(heads, [role for role in READ_ROLES if role in reading], null, tolerance, budget)
    writers = [one for part in writing if part != "O" for one in _matrices(passes, part, writes=True)]
    readers = [one for part in ("MLP", "logits") if part in reading for one in _matrices(passes, part, writes=False)]
    roles = [role for role in READ_ROLES if role in reading and writers]
    roles += ["O"] if "O" in writing and readers else []
    found = energies(passes, writers, readers, roles, centered=centered, tolerance=tolerance, memory=budget)
    yield from encoder_edges(passes, chosen, null, centered, tolerance, budget)
    for src in writing:
        for dst in reading:
            if not (src == "O" and dst in READ_ROLES):
                yield _matrix_relation(passes, found, (writers, readers), (src, dst), null)


def _matrices(heads: Heads, part: Part, writes: bool) -> list[Matrix]:
    return [Matrix(part, writes, layer) for layer in (heads.layers if part == "MLP" else (0,))]


def _matrix_relation(
    heads: Heads, found: Energies, matrices: tuple[list[Matrix], list[Matrix]], kinds: tuple[Part, Part], null: str
) -> Edges:
    """Edges of one kind, of which at least one end is a matrix."""
    src, dst = (axis(heads, part) for part in kinds)
    rows, columns = (
        [place for place, one in enumerate(side) if one.part == part]
        for side, part in zip(matrices, kinds, strict=True)
    )
    if src.is_heads:
        share = found.shares["O"][:, columns]
        spectra = Spectra.of_ranks(found.ranks["O"]), Spectra(found.spectra[1][columns])
    elif dst.is_heads:
        role = cast("Role", dst.part)
        share = found.shares[role][:, rows].T
        spectra = Spectra(found.spectra[0][rows]), Spectra.of_ranks(found.ranks[role])
    else:
        share = found.between[np.ix_(rows, columns)]
        spectra = Spectra(found.spectra[0][rows]), Spectra(found.spectra[1][columns])
    known, reason = composing(heads, src, dst), ""
    if kinds == ("W_E", "logits") and _is_tied(heads):
        known, reason = np.zeros_like(known), TIED
    edges = matrix_edges(src, dst, np.where(known, share, np.nan), spectra, heads.d_model, null)
    return edges if not reason else edges.explained(reason)


def _is_tied(heads: Heads) -> bool:
    stored = heads.reader.stored
    tokens = stored.stack.tokens
    return tokens is not None and (stored.stack.tied or stored.unembedding == stored.names.find(*tokens.names))


def _parts(found: Sequence[Edges], nodes: dict[str, xr.Dataset]) -> xr.Dataset:
    """Every part that is at an end of an edge, with its kind, label, layer and dimension."""
    rows: dict[str, tuple[str, str, float, float]] = {}
    for edges in found:
        node = nodes.get(relation_name(edges.name_of("src"), edges.name_of("dst")))
        for side, end, sizes in (("src", edges.src, edges.dimensions[0]), ("dst", edges.dst, edges.dimensions[1])):
            kept = set() if node is None else set(node[side].values)
            rows |= {
                part_id(end.part, label, side): (_kind(end, side), label, _layer(end, place), float(sizes[place]))
                for place, label in enumerate(end.labels)
                if label in kept
            }
    columns = list(zip(*rows.values(), strict=True)) if rows else [(), (), (), ()]
    names = ("kind", "label", "part_layer", "dimension")
    types = (object, object, np.float64, np.float64)
    data = {n: ("part", np.array(c, dtype=t)) for n, c, t in zip(names, columns, types, strict=True)}
    return xr.Dataset(data, coords={"part": ("part", np.array(list(rows), dtype=object))})


def _kind(end: Axis, side: str) -> str:
    if end.part == "MLP" and end.numbers is not None:
        return "neuron"
    kind = end.part if end.part != "MLP" else f"MLP {'out' if side == 'src' else 'in'}"
    return f"{end.stack} {kind}".lstrip()


def _layer(end: Axis, place: int) -> float:
    return np.nan if end.layers is None else float(end.layers[place])


def _nothing(heads: Heads, chosen: tuple[Choice, Choice]) -> str:
    """Why there is no edge of the kinds asked for."""
    if chosen[0].kinds == ("W_pos",) and heads.stack.rotary:
        return (
            "this model has no position table: queries and keys are turned by their positions (rotary), which no edge "
            "shows; see headspan positions"
        )
    asked = [", ".join({"O": "heads", "MLP": "MLPs"}.get(kind, kind) for kind in choice.kinds) for choice in chosen]
    there = ", ".join(sorted(heads.reader.stored.parts))
    return f"no edge from {asked[0]} to {asked[1]} is in this checkpoint, which has {there}"
