"""The spectrum of every weight matrix, beside that of random matrices of its shape.

1. Singular values of all matrices, through Gram matrices, a block of layers at a time (`gathering`).
2. For each kind of matrix, random matrices of its shape: Marchenko-Pastur law, edge, draws (`law`).
3. What sums up a spectrum and how it departs from the law: with the scale of its own bulk, and with that of a stated
   initialisation (`statistics`, `nodes`).
4. Trace and symmetric part of W_QK: do queries look for keys like themselves? (`alignment`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import xarray as xr

from headspan.errors import ShapeError
from headspan.heads import Heads
from headspan.lenses.spectra.gathering import gather
from headspan.lenses.spectra.initialisation import initialisation
from headspan.lenses.spectra.kinds import PRODUCTS, chosen_kinds
from headspan.lenses.spectra.nodes import alignment_nodes, factor_energy, kind_node
from headspan.lenses.spectra.power_law import power_law_variables, require_powerlaw
from headspan.subspaces.rank import require_tolerance

NULL = "independent normal entries of one standard deviation; products: two independent such factors"


def compute(
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
    """Singular values of every weight matrix, what sums them up, and what chance gives for it.

    Parameters
    ----------
    heads
        Any heads. MLP, tables and unembedding are used as far as the checkpoint has them.
    matrices
        Which kinds, such as "W_Q,W_QK"; everything there is by default. `kinds.KINDS` lists them.
    delta
        For rotary models: positions from key to query at which W_QK is taken.
    init
        The initialisation to compare with: "xavier", "config" (its `initializer_range`) or a standard deviation. By
        default the config's where it states one, else Xavier; the attribute `init` says.
    power_law
        Also fit a power law to the tail of each whole matrix's squared singular values; needs the package `powerlaw`.
    tolerance
        Singular values up to this share of the largest count as zero; by default the longer side times the epsilon of
        float64.
    seed
        Fixes the draws of random matrices.
    memory
        Budget for one block of layers and its scratch space.

    Returns
    -------
    DataTree
        One node per kind of matrix: `singular_value [..., rank]`, `stable_rank`, `effective_rank`, `entropy`, `ks`,
        `spikes`, `energy_ratio` and more, each with `_chance` and `_sd`. With W_QK also `alignment [layer, head]` and
        `layer [layer]`. NaN where undefined. `docs/spectra.md` lists all with range and chance.
    """
    if power_law:
        require_powerlaw()
    wanted, chosen = chosen_kinds(heads, matrices), initialisation(heads, init)
    if tolerance is not None:
        require_tolerance(tolerance)
    found = gather(heads, wanted, delta, memory)
    nodes: dict[str, xr.Dataset] = {}
    for name in wanted:
        node = kind_node(heads, found.kinds[name], found.spectra(name), chosen, tolerance, seed)
        if name in PRODUCTS:
            node = node.assign(factor_energy(found, name))
        if power_law and found.kinds[name].inner is None and name.count("_") == 1:
            node = node.assign(power_law_variables(node, seed))
        nodes[name] = node
    if "W_QK" in wanted:
        nodes |= alignment_nodes(heads, found)
    attrs = {**heads.provenance(), "lens": "spectra", "init": chosen.name, "seed": seed, "delta": delta, "null": NULL}
    attrs |= {
        "d_model": heads.d_model,
        "d_head": heads.d_head,
        "n_heads": heads.n_heads,
        "n_kv_heads": heads.n_kv_heads,
    }
    attrs |= {"computed_in": "float64", "alignment": _alignment_text(heads, "W_QK" in wanted)}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **nodes})


def _alignment_text(heads: Heads, asked: bool) -> str:
    if not asked:
        return "skipped: W_QK was not asked for"
    if heads.stack.reads_memory:
        return "undefined: in cross-attention queries and keys read different streams"
    return "computed"


def along_steps(results: Mapping[int, xr.DataTree]) -> xr.DataTree:
    """Results of one model at several steps of its training as one, with a leading axis `step`.

    Parameters
    ----------
    results
        By training step; all with the same matrices and shapes.

    Returns
    -------
    DataTree
        The same nodes, every variable with the axis `step`; attributes that differ between steps are left out.
    """
    if not results:
        raise ShapeError("a training series needs at least one result")
    steps = sorted(results)
    names = set(results[steps[0]].children)
    other = next((step for step in steps if set(results[step].children) != names), None)
    if other is not None:
        raise ShapeError(
            f"step {other} holds other matrices than step {steps[0]}; compute both with the same `matrices`"
        )
    joined = {
        name: xr.concat(
            [results[step][name].to_dataset() for step in steps],
            dim=pd.Index(steps, name="step"),
            join="exact",
            combine_attrs="drop_conflicts",
            data_vars="all",
        )
        for name in results[steps[0]].children
    }
    root = xr.merge([xr.Dataset(attrs=results[step].attrs) for step in steps], combine_attrs="drop_conflicts")
    return xr.DataTree.from_dict({"/": root, **joined})
