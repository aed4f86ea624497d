"""The leading channel of every pair beside its nulls: random rotations, and what the model's pairs have in general."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from headspan.dims import PAIR_DIMS
from headspan.heads import Heads
from headspan.lenses.channels.pair_cores import PairTables
from headspan.lenses.channels.schema import DERIVED, HAAR, TWO_WAY
from headspan.statistics import layer_distance, q_values, two_way
from headspan.statistics.permutation import Array
from headspan.subspaces.rotated_norms import largest_value_null

SIGNIFICANT = 0.05


def pairing_dataset(heads: Heads, found: PairTables, nulls: Sequence[str], seed: int) -> xr.Dataset:
    """One pairing's table of pairs that compose, [src_layer, src_head, dst_layer, dst_head]; see the schema."""
    layers, shape = np.asarray(heads.layers), (heads.n_layers, heads.n_heads) * 2
    composing = (np.broadcast_to(layer_distance(layers, layers), shape) > 0).reshape(found.norms.shape)
    norms = found.norms.numpy()
    strength = found.numbers["strength"].numpy()
    coupling = np.divide(strength, norms, out=np.full(norms.shape, np.nan), where=norms > 0)
    composing &= ~np.isnan(coupling)
    each = {HAAR: _under_rotation(heads, found, coupling, composing, seed)}
    if TWO_WAY in nulls:
        member = np.repeat(layers, heads.n_heads)
        fit = two_way(coupling, member, member, left_out=True)
        spread = np.full(coupling.shape, fit.scale)
        each[TWO_WAY] = dict(zip(DERIVED, (fit.expected, spread, fit.z, fit.p, fit.q), strict=True))

    def grid(values: Array) -> tuple[tuple[str, ...], Array]:
        return PAIR_DIMS, np.where(composing, values, np.nan).reshape(shape)

    variables: dict[str, Any] = {name: grid(table.numpy()) for name, table in found.numbers.items()}
    variables["coupling"] = grid(coupling)
    for what in DERIVED:
        stacked = np.stack([grid(each[null][what])[1] for null in nulls])
        variables[f"coupling_{what}"] = (("null", *PAIR_DIMS), stacked)
    q = variables["coupling_q"][1].reshape(len(nulls), -1)
    variables |= {"n_pairs": int(composing.sum()), "n_significant": ("null", (q < SIGNIFICANT).sum(1))}
    return xr.Dataset(variables, coords={"src_layer": layers, "dst_layer": layers, "null": list(nulls)})


def _under_rotation(
    heads: Heads, found: PairTables, coupling: Array, composing: np.ndarray, seed: int
) -> dict[str, Array]:
    """What a random rotation that keeps both spectra leads to expect."""
    null = largest_value_null(_known(found.source), _known(found.reader), heads.d_stream, seed)
    p = np.where(composing, null.p_values(coupling), np.nan)
    numbers = (null.mean, null.sd, (coupling - null.mean) / null.sd, p, q_values(p))
    return dict(zip(DERIVED, numbers, strict=True))


def _known(spectra: Any) -> Any:
    """Spectra with NaN as zeros, which have no null either."""
    return spectra.nan_to_num(0.0)
