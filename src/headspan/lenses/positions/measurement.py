"""Positions and tokens: how the two tables overlap with each other and with the matrices of every layer.

1. Both tables' spectra and rows, as stored and without their mean rows (`spectra`, `tables`).
2. The position table's directions: sparse in the stream, sinusoids over positions (`directions`).
3. The two together: capture, overlaps, corners, principal angles, mean rows (`overlap`).
4. What the logits of layer 0 are made of (`layer_zero`).
5. Every matrix of every layer against both tables, in one pass (`layers`).

Where one matrix widens both tables to d_model (ALBERT, ELECTRA), steps 1 to 3 take the tables before it: every
direction behind it lies in its span and is stretched by it, so that tables with nothing in common would overlap there.

A table that is not there leaves out what needs it; the attribute `left_out` says what and why.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr
from torch import Tensor

from headspan.dims import HEAD, LAYER, ROLES, head_axis
from headspan.errors import ArgumentError, DegenerateSubspace, MemoryBudgetError
from headspan.heads import Heads
from headspan.heads.memory import memory_bytes
from headspan.lenses.positions.directions import context_obstacle, context_variables, sparsity_variables
from headspan.lenses.positions.gains import gain_obstacle, gain_variables
from headspan.lenses.positions.layer_zero import logit_obstacle, logit_shares
from headspan.lenses.positions.layers import BLOCKS, HEAD_BLOCKS, Plan, layer_results, matrix_names
from headspan.lenses.positions.overlap import angle_variables, capture_variables, mean_variables, overlap_variables
from headspan.lenses.positions.schema import CENTERING, CENTERINGS, CHOICES, SIDES, TABLE, TERMS
from headspan.lenses.positions.spectra import RankRule, TableSpectra, Variables, table_spectra
from headspan.lenses.positions.tables import EDGES, table_variables
from headspan.subspaces.rank import require_tolerance

DEFAULT_K = 30
STORED = {"P": "W_pos", "E": "W_E"}
SQUARES = 8
"""Matrices d x d in double precision held at a time: directions of tables, a Gram matrix and what LAPACK takes."""


def measure(
    heads: Heads,
    *,
    k: int | None = None,
    centering: str = "stored",
    full: bool = False,
    layer: int | None = None,
    smooth: float = 0.0,
    samples: int = 512,
    tolerance: float | None = None,
    seed: int = 0,
    memory: int | str = "4GB",
) -> xr.Dataset:
    """`headspan.positions` on heads, over grids of layers and heads."""
    if layer is not None and layer not in heads.layers:
        raise ArgumentError(f"layer={layer} is out of range; it is in {heads.layers[0]}..{heads.layers[-1]}")
    if tolerance is not None:
        require_tolerance(tolerance)
    budget = memory_bytes(memory)
    scratch = budget // 8
    _check_room(heads, budget)
    rows, left_out = _stored_tables(heads)
    rules = {name: RankRule(tolerance, heads.roundoff(STORED[name])) for name in rows}
    tables = {name: table_spectra(values, rules[name], scratch) for name, values in rows.items()}
    for name in [name for name, spectra in tables.items() if not spectra.stored.rank]:
        left_out.append(f"{_words(name)}: all {tables[name].n_rows} rows are zero, so it has no directions")
        del tables[name], rows[name]
    if not tables:
        raise DegenerateSubspace(f"no table has a direction: {'; '.join(left_out)}")
    width = next(iter(tables.values())).stored.d
    k = _checked_k(tables, k, width)
    variables = table_variables(rows, tables, scratch, seed)
    # Blocks of at least eight directions, so that an average is one.
    blocks = max(1, min(BLOCKS, *(spectra.stored.rank // 8 for spectra in tables.values())))
    variables |= _position_variables(heads, rows, tables, left_out, k, seed)
    if len(tables) == 2:
        variables |= _pair_variables(tables["P"], tables["E"], k, blocks, heads.d_model if full else None, seed)
        variables |= _logit_variables(heads, rows, left_out, samples, seed)
    rows.clear()  # the layers need directions only
    if heads.widened_together:
        tables = {name: table_spectra(heads.table(STORED[name]), rules[name], scratch) for name in tables}
    variables |= _layer_variables(heads, tables, centering, k, blocks, tolerance, full, memory, left_out)
    for name in [name for name in variables if name.endswith("_log_p")]:
        dims, log_p = variables[name]
        variables[name.removesuffix("_log_p") + "_p"] = (dims, np.exp(log_p))
    attrs: dict[str, object] = {
        "positions": heads.stack.positions,
        "causal": int(heads.stack.causal),
        "k": k,
        "centering": centering,
        "seed": seed,
        "samples": samples,
        "tolerance": heads.rank_rule(tolerance),
        "full": int(full),
        "shown_layer": heads.layers[0] if layer is None else layer,
        "smooth": smooth,
        "computed_in": "float64",
        "left_out": "; ".join(left_out),
        "table_width": width,
        "null": _null_text(heads, width),
    }
    return xr.Dataset(variables, coords=_coordinates(heads, variables, tables), attrs=attrs)


def _null_text(heads: Heads, width: int) -> str:
    text = "directions of the tables turned by a uniformly random rotation of the stream"
    if not heads.widened_together:
        return text
    return f"{text}; of the {width} dimensions before the matrix that widens both tables, where they are compared"


def _check_room(heads: Heads, budget: int) -> None:
    """Refuse what the budget cannot hold: tables are read whole, and directions are d x d in double precision."""
    for name in ("W_pos", "W_E"):
        if name in heads.reader.stored.parts:
            heads.require_room_for(name, budget // 2)
    needed = SQUARES * 8 * heads.d_model**2
    if needed > budget:
        raise MemoryBudgetError(
            f"directions in {heads.d_model} dimensions need {needed:,} bytes of working memory, found {budget:,}; "
            "raise the memory budget"
        )


def _words(name: str) -> str:
    return {"P": "position table", "E": "token table"}[name]


def _stored_tables(heads: Heads) -> tuple[dict[str, Tensor], list[str]]:
    """The tables that are there, positions first, and why one is not."""
    stored, rows, left_out = heads.reader.stored, {}, []
    if "W_pos" in stored.parts:
        rows["P"] = _table(heads, STORED["P"])
    elif stored.stack.position_table is None:
        left_out.append(f"position analyses: no learned position table ({stored.stack.positions} positions)")
    else:
        left_out.append(f"position analyses: '{stored.stack.position_table.names[0]}' is not in this checkpoint")
    if "W_E" in stored.parts:
        rows["E"] = _table(heads, STORED["E"])
    elif stored.stack.tokens is None:
        left_out.append(f"token analyses: a {heads.checkpoint.family} {stored.stack.name} has no token table")
    else:
        left_out.append(f"token analyses: '{stored.stack.tokens.names[0]}' is not in this checkpoint")
    return rows, left_out


def _table(heads: Heads, name: str) -> Tensor:
    return heads.narrow_table(name) if heads.widened_together else heads.table(name)


def _checked_k(tables: Mapping[str, TableSpectra], k: int | None, d: int) -> int:
    name, rank = min(((name, table.stored.rank) for name, table in tables.items()), key=lambda item: item[1])
    if k is None:
        return max(1, min(DEFAULT_K, d // 8, rank))
    if not 1 <= k <= rank:
        raise ArgumentError(f"k={k} is out of range; it is in 1..{rank}, the rank of the {_words(name)}")
    return k


def _position_variables(
    heads: Heads,
    rows: Mapping[str, Tensor],
    tables: Mapping[str, TableSpectra],
    left_out: list[str],
    k: int,
    seed: int,
) -> Variables:
    if "P" not in tables:
        return {}
    out = sparsity_variables(tables["P"], tables.get("E"), k, seed)
    no_gains = gain_obstacle(heads)
    if no_gains is None:
        out |= gain_variables(heads, out["coordinate_chosen"][1][CENTERINGS.index("stored")])
    else:
        left_out.append(f"gains of the norms: {no_gains}")
    obstacle = context_obstacle(heads.checkpoint.family, len(rows["P"]), heads.stack.name)
    if obstacle is not None:
        left_out.append(f"position directions as sinusoids: {obstacle}")
        return out
    return out | context_variables(rows["P"], tables["P"], k, seed)


def _pair_variables(P: TableSpectra, E: TableSpectra, k: int, blocks: int, full: int | None, seed: int) -> Variables:
    """Everything about the directions of both tables together; `full` is the side of a grid of all overlaps."""
    out = capture_variables(P, E, k) | overlap_variables(P, E, blocks, full)
    return out | angle_variables(P, E, k, seed) | mean_variables(P, E, k)


def _logit_variables(
    heads: Heads, rows: Mapping[str, Tensor], left_out: list[str], samples: int, seed: int
) -> Variables:
    """What the logits of layer 0 are made of [layer, head, term]; NaN for the other layers."""
    obstacle = logit_obstacle(heads)
    if obstacle is not None:
        left_out.append(f"logits of layer 0: {obstacle}")
        return {}
    found = logit_shares(heads, rows["E"], rows["P"], samples, seed)
    z = (found.share - found.null) / np.where(found.null_sd > 0, found.null_sd, np.nan)
    first = list(heads.layers).index(0)
    out: Variables = {"logit_share_null": (("term",), found.null), "logit_share_null_sd": (("term",), found.null_sd)}
    measured = {"logit_share": found.share, "logit_share_se": found.share_se, "logit_share_z": z}
    for name, values in (measured | {"logit_sd": found.logit_sd}).items():
        every = np.full((heads.n_layers, *values.shape), np.nan)
        every[first] = values
        out[name] = ((LAYER, HEAD, "term")[: every.ndim], every)
    return out


def _layer_variables(
    heads: Heads,
    tables: Mapping[str, TableSpectra],
    centering: str,
    k: int,
    blocks: int,
    tolerance: float | None,
    full: bool,
    memory: int | str,
    left_out: list[str],
) -> Variables:
    """Every matrix of every layer: arrays [layer, matrix, table, ...] and [layer, head, table, ...]."""
    if len(matrix_names(heads)) == len(ROLES):
        kind = "it is a mixture of experts" if heads.stack.experts else "it is not in this checkpoint"
        left_out.append(f"the MLP: {kind}")
    spectra = {name: table[centering] for name, table in tables.items()}
    narrow = min(heads.shape(role)[1] * min(heads.shape(role)[2:]) for role in ROLES)
    plan = Plan(
        tables=spectra,
        k={name: min(k, spectrum.rank) for name, spectrum in spectra.items()},
        tolerance=tolerance,
        blocks=max(1, min(blocks, narrow // 8)),
        head_blocks=max(1, min(HEAD_BLOCKS, *(min(heads.shape(role)[2:]) // 4 for role in ROLES))),
        table_blocks=blocks,
        full=full,
    )
    out: Variables = {}
    for name, values in layer_results(heads, plan, memory).items():
        out[name] = (_layer_dims(name), values)
    out["overlap_null"] = ((), np.array(1 / heads.d_model))
    return out


def _layer_dims(name: str) -> tuple[str, ...]:
    if name == "matrix_rank":
        return (LAYER, "matrix")
    if name.startswith("head_"):
        (role,) = (role for role in ROLES if f"_{role}" in name)
        tail = ("head_block", "table_block") if "overlap" in name else ()
        return (LAYER, head_axis(role), "table", *tail)
    tails = {"overlap": ("block", "table_block"), "overlap_z": ("block", "table_block")}
    tails["overlap_full"] = ("matrix_direction", "table_direction")
    corner = ("side", "table_side") if name.startswith("corner") else ()
    return (LAYER, "matrix", "table", *tails.get(name, corner))


def _coordinates(heads: Heads, variables: Variables, tables: Mapping[str, TableSpectra]) -> dict[str, object]:
    used = {dim for dims, _ in variables.values() for dim in dims}
    every: dict[str, object] = {
        LAYER: list(heads.layers),
        TABLE: list(tables),
        CENTERING: list(CENTERINGS),
        "matrix": list(matrix_names(heads)),
        "k_choice": list(CHOICES),
        "term": list(TERMS),
        "cosine": (EDGES[1:] + EDGES[:-1]) / 2,
        **{name: list(SIDES) for name in ("side", "table_side", "token_side")},
    }
    return {name: values for name, values in every.items() if name in used}
