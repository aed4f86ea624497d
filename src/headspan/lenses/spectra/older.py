"""Files of version 1: `_chance` and `_sd` beside every value, the two nulls of the trace as separate variables."""

from __future__ import annotations

import numpy as np
import xarray as xr

from headspan.lenses.spectra.schema import SUMMARIES

SPREADS = ("trace", "trace_share", "symmetric_share", "positive_mass")
OF_TRACE = {"trace_null_sd": ("trace_null_sd", "trace_sd_product"), "trace_z": ("trace_z", "trace_z_product")}


def upgraded(dataset: xr.Dataset) -> xr.Dataset:
    """One node of version 1 under today's names, with what the older version left to its tables."""
    names = {
        str(name): str(name).removesuffix("_chance") + "_null" for name in dataset if str(name).endswith("_chance")
    }
    names |= {f"{name}_sd": f"{name}_null_sd" for name in (*SUMMARIES, *SPREADS) if f"{name}_sd" in dataset}
    if "singular_value" in dataset:
        names |= {"p_value": "leading_p", "log_p_value": "leading_log_p"}
        return _with_scores(dataset.rename(names))
    names |= {"p_value": "trace_p"} | ({"q_value": "trace_q"} if "q_value" in dataset else {})
    renamed = dataset.rename(names)
    return _with_nulls(renamed) if "trace_z_product" in renamed else renamed


def _with_scores(node: xr.Dataset) -> xr.Dataset:
    """A kind of matrix with the z of every summary and the p-value of the largest singular value."""
    scores = {}
    for name in SUMMARIES:
        sd = node[f"{name}_null_sd"]
        scores[f"{name}_z"] = ((node[name] - node[f"{name}_null"]) / sd.where(sd > 0)).variable
    return node.assign(scores).assign(largest_p=node["leading_p"].isel(leading=0).variable)


def _with_nulls(node: xr.Dataset) -> xr.Dataset:
    """The alignment of heads with an axis `null`; version 1 had p-values under the first null alone."""
    found = {
        name: (
            ("null", *node["trace"].dims),
            np.stack([node[each].transpose(*node["trace"].dims).values for each in pair]),
        )
        for name, pair in OF_TRACE.items()
    }
    for name in ("trace_p", "trace_q"):
        values = node[name].transpose(*node["trace"].dims).values
        found[name] = (("null", *node["trace"].dims), np.stack([values, np.full(values.shape, np.nan)]))
    kept = node.drop_vars([*found, "trace_sd_product", "trace_z_product"])
    return kept.assign(found).assign_coords(null=["factors", "product"])
