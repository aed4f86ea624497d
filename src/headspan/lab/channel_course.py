"""The channels from layer 0 to layer 1 along a run: when they form, how many dimensions they have, what leads.

At every kept checkpoint the channels lens decomposes what leads from a head of layer 0 into a head of layer 1: into its
queries (OQ), keys (OK) or values (OV), norms folded in. Of several heads the pair that is strongest at the end is
followed. The coupling, the largest singular value over the norms of both circuits, has a null of its own: a random
rotation between what is written and what is read. The untrained model at step 0 is the control. Lead or lag is that of
the curve's own change point against the one of OOD accuracy (`study.lag`).
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headspan.dims import COMPOSING
from headspan.errors import HeadspanError
from headspan.lab.study import Bench, lag
from headspan.lenses.channels import channels
from headspan.threads import one_thread

NUMBERS = ("coupling", "coupling_null", "coupling_z", "participation", "carrying")
FOLLOWED = ("coupling", "coupling_z", "participation")


def channel_course(bench: Bench) -> xr.Dataset:
    """Channels of the strongest pair of heads at every kept step.

    Returns
    -------
    Dataset
        `coupling` [step, pairing] in [0, 1] with `coupling_null` and `coupling_z` (haar), `participation` in
        [1, d_head] and `carrying`, how many channels carry 90 % of the energy; `lag` [quantity, pairing] in steps,
        negative where a curve moves before OOD accuracy; `pair` [pairing], the heads.
    """
    if bench.recipe.shape.layers < 2:
        raise HeadspanError("channels lead from one layer to another; the model has one layer")
    steps = sorted(bench.checkpoints)
    with one_thread():
        results = [channels(str(bench.checkpoints[s]), null="haar", vocabulary=False, progress=False) for s in steps]
    found = [{pairing: one[pairing].to_dataset(inherit=False) for pairing in COMPOSING} for one in results]
    columns = {name: np.full((len(steps), len(COMPOSING)), np.nan) for name in NUMBERS}
    pairs = []
    for place, pairing in enumerate(COMPOSING):
        src, dst = _strongest(found[-1][pairing])
        pairs.append(f"{src} to {dst}")
        for row, one in enumerate(found):
            here = one[pairing].sel(src=src, dst=dst)
            for name in NUMBERS:
                value = here[name]
                columns[name][row, place] = float(value.sel(null="haar") if "null" in value.dims else value)
    lags = [[lag(np.array(steps), columns[name][:, p], bench.at) for p in range(len(COMPOSING))] for name in FOLLOWED]
    return xr.Dataset(
        {name: (("step", "pairing"), values) for name, values in columns.items()}
        | {"lag": (("quantity", "pairing"), lags), "pair": (("pairing",), pairs)},
        coords={"step": steps, "pairing": list(COMPOSING), "quantity": list(FOLLOWED)},
        attrs={"transition": bench.at.step, "d_head": bench.recipe.shape.d_head},
    )


def _strongest(node: xr.Dataset) -> tuple[str, str]:
    """Labels of the pair with the largest coupling."""
    values = node["coupling"].fillna(-1.0)
    src, dst = np.unravel_index(int(values.values.argmax()), values.shape)
    return str(node["src"].values[src]), str(node["dst"].values[dst])
