"""Spectra to labelled results: one Dataset per kind of matrix, every value with its chance beside it."""

from __future__ import annotations

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float

from headspan.dims import LAYER
from headspan.heads import Heads
from headspan.lenses.spectra.alignment import alignment_chance, alignment_variables, layer_alignment
from headspan.lenses.spectra.gathering import Gathered
from headspan.lenses.spectra.initialisation import Initialisation
from headspan.lenses.spectra.kinds import Kind
from headspan.lenses.spectra.law import bulk_scale, law_of
from headspan.lenses.spectra.statistics import (
    chance_moments,
    law_statistics,
    shape_statistics,
    spike_count,
    spike_log_p,
)
from headspan.subspaces import default_tolerance

LEADING = 8
"""p-values are kept for this many of a matrix's largest singular values."""


def kind_node(
    heads: Heads,
    kind: Kind,
    values: Float[np.ndarray, "*axes k"],
    init: Initialisation,
    tolerance: float | None,
    seed: int,
) -> xr.Dataset:
    """Everything about the matrices of one kind."""
    law = law_of(kind.rows, kind.columns, kind.inner, seed)
    used = default_tolerance(max(kind.rows, kind.columns), torch.float64) if tolerance is None else tolerance
    # What rounding leaves of a zero is a zero.
    values = np.where(values > used * values[..., :1], values, 0.0)
    sigma = bulk_scale(values, law.typical)
    sigma_init = float(np.prod([init.of(*shape) for shape in kind.stored]))
    energy = (values**2).sum(-1)
    log_p = spike_log_p(values, law, sigma)
    arrays = shape_statistics(values, used) | law_statistics(values, law, sigma)
    compared = law_statistics(values, law, np.full(sigma.shape, sigma_init))
    known = np.where(energy > 0, 1.0, np.nan)
    arrays |= {f"{name}_init": array * known for name, array in compared.items()}
    arrays["spikes"] = spike_count(log_p)
    arrays["energy_ratio"] = energy / (law.mean_energy * sigma_init**2)
    moments = chance_moments(kind.rows, kind.columns, kind.inner, seed)
    plain = {"energy": energy, "largest": values[..., 0], "smallest": values[..., -1], "sigma": sigma}
    plain |= {"rms": np.sqrt(energy / law.mean_energy), "edge": sigma * law.edge}
    plain["numerical_rank"] = (values > 0).sum(-1)
    variables: dict[str, object] = {name: (kind.axes, array) for name, array in (plain | arrays).items()}
    variables |= {f"{name}_chance": moments[name][0] for name in arrays}
    variables |= {f"{name}_sd": moments[name][1] for name in arrays}
    variables |= {"sigma_init": sigma_init, "edge_init": sigma_init * law.edge, "rows": kind.rows}
    variables |= {"columns": kind.columns, "typical": (("rank",), law.typical)}
    variables["singular_value"] = ((*kind.axes, "rank"), values)
    variables["log_p_value"] = ((*kind.axes, "leading"), log_p[..., :LEADING])
    variables["p_value"] = ((*kind.axes, "leading"), np.exp(log_p[..., :LEADING]))
    attrs = {"kind": kind.name, "inner": kind.inner or 0, "tolerance": used, "draws": len(law.drawn)}
    return xr.Dataset(variables, coords=_coordinates(heads, kind), attrs=attrs)


def _coordinates(heads: Heads, kind: Kind) -> dict[str, list[int]]:
    sizes = {LAYER: list(heads.layers), "head": list(range(heads.n_heads)), "kv_head": list(range(heads.n_kv_heads))}
    return {axis: sizes[axis] for axis in kind.axes}


def factor_energy(found: Gathered, name: str) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """The energy of a product over that of independent factors with the same norms: |A B^T|^2 r / (|A|^2 |B|^2).

    In [0, r]; 1 by chance. Above 1, the factors' strong features meet.
    """
    first, second = ("norm_A", "norm_B") if name == "W_QK" else ("norm_V", "norm_O")
    energy = (found.spectra(name) ** 2).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = energy * (found.kinds[name].inner or 1) / (found.sum(first) * found.sum(second)) ** 2
    return {"energy_given_factors": ((LAYER, "head"), ratio), "energy_given_factors_chance": ((), np.array(1.0))}


def alignment_nodes(heads: Heads, found: Gathered) -> dict[str, xr.Dataset]:
    """Trace and symmetric part of W_QK, head by head and layer by layer."""
    sums = {name: found.sum(name) for name in found.sums if name not in ("norm_V", "norm_O")}
    arrays = alignment_variables(heads, sums, found.spectra("W_QK"))
    coords = {LAYER: list(heads.layers), "head": list(range(heads.n_heads))}
    per_head: dict[str, object] = {name: ((LAYER, "head"), array) for name, array in arrays.items()}
    per_head |= alignment_chance(heads.d_model)
    per_layer: dict[str, object] = {name: ((LAYER,), array) for name, array in layer_alignment(arrays).items()}
    per_layer["trace_chance"] = 0.0
    return {
        "alignment": xr.Dataset(per_head, coords=coords, attrs={"null": NULL_OF_TRACE}),
        "layer": xr.Dataset(per_layer, coords={LAYER: coords[LAYER]}, attrs={"null": NULL_OF_TRACE}),
    }


NULL_OF_TRACE = "W_Q and W_K keep their singular values and get independent Haar singular vectors; normal"
