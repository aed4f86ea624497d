"""The spectra of two checkpoints side by side, kind by kind.

Singular values and what sums them up, before and after, and the Kolmogorov-Smirnov distance of the two sets. Heads have
their own, with a chance value, in the drift; here stand whole matrices, MLPs, tables and the products W_QK and W_OV.
"""

from __future__ import annotations

from typing import Any

import torch
import xarray as xr

from headspan.heads import Heads
from headspan.lenses import spectra
from headspan.lenses.drift.motion import spectrum_ks
from headspan.lenses.spectra.kinds import PER_HEAD, available_kinds

SUMMED = ("stable_rank", "effective_rank", "spikes", "energy")


def spectra_change(before: Heads, after: Heads, seed: int, memory: int | str) -> tuple[dict[str, xr.Dataset], str]:
    """One dataset per kind of matrix that both have in one shape, and a line on those that are left out.

    Per matrix: `singular_value_before`, `_after` [..., rank]; `ks` in [0, 1], 0 for equal spectra; `stable_rank`,
    `effective_rank`, `spikes` (singular values beyond what a random matrix has) and `energy` |W|_F^2, each `_before`
    and `_after`, the first three with `_chance`, the same for both: that of a random matrix of the shape.
    """
    both = [kind for kind in available_kinds(before) if kind in available_kinds(after) and kind not in PER_HEAD]
    first, second = (spectra.compute(heads, matrices=both, seed=seed, memory=memory) for heads in (before, after))
    nodes, left_out = {}, []
    for kind in both:
        pair = first[kind].to_dataset(), second[kind].to_dataset()
        shapes = [f"{int(node['rows'])} x {int(node['columns'])}" for node in pair]
        if shapes[0] == shapes[1]:
            nodes[kind] = _kind_dataset(*pair)
        else:
            left_out.append(f"{kind} is {shapes[0]} before and {shapes[1]} after")
    return nodes, "; ".join(left_out)


def _kind_dataset(first: xr.Dataset, second: xr.Dataset) -> xr.Dataset:
    values = first["singular_value"], second["singular_value"]
    axes = tuple(str(axis) for axis in values[0].dims)
    tensors = [torch.as_tensor(array.values) for array in values]
    out: dict[str, Any] = {
        "singular_value_before": (axes, values[0].values),
        "singular_value_after": (axes, values[1].values),
        "ks": (axes[:-1], spectrum_ks(*tensors).numpy()),
    }
    for name in SUMMED:
        out |= {f"{name}_before": first[name].variable, f"{name}_after": second[name].variable}
        if f"{name}_chance" in first:
            out[f"{name}_chance"] = first[f"{name}_chance"].variable
    coords = {axis: first[axis].values for axis in axes if axis in first.coords and axis != "rank"}
    return xr.Dataset(out, coords=coords)
