"""The spectrum of every weight matrix, against that of random matrices of its shape.

1. Singular values of all matrices, through Gram matrices, a block of layers at a time (`matrix_values`).
2. For each kind of matrix, random matrices of its shape: Marchenko-Pastur law, edge, draws (`law`).
3. Numbers that summarize a spectrum and its departure from the law: with the scale of its own bulk, and with that of a
   stated initialization.
4. Trace and symmetric part of W_QK: do queries look for keys like themselves? (`alignment`)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float

from headspan.dims import HEAD, LAYER
from headspan.heads import Heads
from headspan.lenses.spectra.alignment import alignment_nodes
from headspan.lenses.spectra.kinds import PRODUCTS, Initialization, Kind, chosen_kinds, initialization
from headspan.lenses.spectra.law import (
    bulk_scale,
    law_of,
    law_statistics,
    null_moments,
    power_law_fits,
    require_powerlaw,
    shape_statistics,
    spike_count,
    spike_log_p,
)
from headspan.lenses.spectra.matrix_values import MatrixValues, matrix_values
from headspan.subspaces import default_tolerance
from headspan.subspaces.rank import require_tolerance

NULL = "independent normal entries of one standard deviation; products: two independent such factors"
LEADING = 8
"""p-values are kept for this many of a matrix's largest singular values."""


def measure(
    heads: Heads,
    *,
    matrices: Sequence[str] | str | None = None,
    delta: int = 0,
    init: str | float | None = None,
    power_law: bool = False,
    tolerance: float | None = None,
    seed: int = 0,
    memory: int | str = "4GB",
) -> xr.DataTree:
    """`headspan.spectra` on heads: a node per kind of matrix, over [layer], [layer, head], [layer, kv_head] or nothing.

    With W_QK also `alignment` [layer, head] and `layer` [layer].
    """
    if power_law:
        require_powerlaw()
    if tolerance is not None:
        require_tolerance(tolerance)
    wanted, chosen = chosen_kinds(heads, matrices), initialization(heads, init)
    found = matrix_values(heads, wanted, delta, tolerance, memory)
    nodes: dict[str, xr.Dataset] = {}
    for name in wanted:
        kind = found.kinds[name]
        node = kind_node(heads, kind, found.spectra(name), chosen, tolerance, seed)
        node = node.assign(numerical_rank=(kind.axes, found.rank(name)))
        if name in PRODUCTS:
            node = node.assign(_factor_energy(found, name))
        if power_law and kind.inner is None and name.count("_") == 1:
            node = node.assign(_power_laws(kind, node, seed))
        nodes[name] = node
    if "W_QK" in wanted:
        sums = {name: found.sum(name) for name in found.sums if name not in ("norm_V", "norm_O")}
        nodes |= alignment_nodes(heads, sums, found.spectra("W_QK"))
    attrs = {
        "init": chosen.name,
        "tolerance": heads.rank_rule(tolerance),
        "roundoff": heads.attention_roundoff(),
        "seed": seed,
        "delta": delta,
        "null": NULL,
        "computed_in": "float64",
    }
    attrs["alignment"] = _alignment_text(heads, "W_QK" in wanted)
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **nodes})


def blocks(heads: Heads) -> dict[str, dict[str, str]]:
    """Parts of the work that a sweep shares out on large models: a kind of matrix each."""
    return {kind: {"matrices": kind} for kind in chosen_kinds(heads, None)}


def _alignment_text(heads: Heads, asked: bool) -> str:
    if not asked:
        return "skipped: W_QK was not asked for"
    if heads.stack.reads_memory:
        return "undefined: in cross-attention queries and keys read different streams"
    return "computed"


def kind_node(
    heads: Heads,
    kind: Kind,
    values: Float[np.ndarray, "*axes k"],
    init: Initialization,
    tolerance: float | None,
    seed: int,
) -> xr.Dataset:
    """Everything about the matrices of one kind but their rank, which the precision of the weights decides."""
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
    plain = {"energy": energy, "rms": np.sqrt(energy / law.mean_energy), "sigma": sigma}
    plain |= {"largest": values[..., 0], "largest_p": np.exp(log_p[..., 0]), "edge": sigma * law.edge}
    plain |= {"smallest": values[..., -1]}
    variables: dict[str, object] = {name: (kind.axes, array) for name, array in plain.items()}
    for name, array in arrays.items():
        mean, sd = null_moments(kind.rows, kind.columns, kind.inner, seed)[name]
        z = (array - mean) / sd if sd > 0 else np.full(array.shape, np.nan)
        variables |= {
            name: (kind.axes, array),
            f"{name}_null": mean,
            f"{name}_null_sd": sd,
            f"{name}_z": (kind.axes, z),
        }
    variables |= {"sigma_init": sigma_init, "edge_init": sigma_init * law.edge, "rows": kind.rows}
    variables |= {"columns": kind.columns, "typical": (("rank",), law.typical)}
    variables["singular_value"] = ((*kind.axes, "rank"), values)
    variables["leading_log_p"] = ((*kind.axes, "leading"), log_p[..., :LEADING])
    variables["leading_p"] = ((*kind.axes, "leading"), np.exp(log_p[..., :LEADING]))
    coords = {LAYER: list(heads.layers)} if kind.axes else {}
    return xr.Dataset(variables, coords=coords, attrs={"tolerance": used, "draws": len(law.drawn)})


def _factor_energy(found: MatrixValues, name: str) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """The energy of a product over that of independent factors with the same norms: |A B^T|^2 r / (|A|^2 |B|^2)."""
    first, second = ("norm_A", "norm_B") if name == "W_QK" else ("norm_V", "norm_O")
    energy = (found.spectra(name) ** 2).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = energy * (found.kinds[name].inner or 1) / (found.sum(first) * found.sum(second)) ** 2
    return {"energy_given_factors": ((LAYER, HEAD), ratio), "energy_given_factors_null": ((), np.array(1.0))}


def _power_laws(kind: Kind, node: xr.Dataset, seed: int) -> dict[str, tuple[tuple[str, ...], object]]:
    fits, expected = power_law_fits(node["singular_value"].values, law_of(kind.rows, kind.columns, None, seed))
    found: dict[str, tuple[tuple[str, ...], object]] = {name: (kind.axes, fits[name]) for name in fits}
    return found | {f"{name}_null": ((), value) for name, value in expected.items()}
