"""Two checkpoints of one shape, compared in every way that headspan has.

1. How far every head moved (`headspan.drift`), against a random change of the same size.
2. Edges of the wiring gained and lost, and where the changes lie (`edges`).
3. Rank-one channels gained and lost (`channel_changes`).
4. The change of every whole matrix: its size and rank, and directions that lead after and were not there before
   (`directions`).
5. The spectra of all matrices before and after (`headspan.spectra`). Those of single heads are in the drift, with a
   null; here are whole matrices, MLPs, tables and the products W_QK and W_OV.
6. Where it is asked for and both run, attention and losses on the same tokens (`behavior`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import xarray as xr

from headspan.dims import ROLES
from headspan.heads import Heads
from headspan.lenses.compare.behavior import behavior_node
from headspan.lenses.compare.channel_changes import channel_nodes
from headspan.lenses.compare.directions import change_nodes
from headspan.lenses.compare.edges import wiring_nodes
from headspan.lenses.compare.schema import HAAR, NULLED, PER_HEAD, SUMMARIES, TWO_WAY
from headspan.lenses.drift import drift
from headspan.lenses.spectra import spectra
from headspan.progress import current_step
from headspan.result import Result
from headspan.subspaces import spectrum_ks


def measure(
    before: Heads,
    after: Heads,
    *,
    leading: int | None = None,
    tolerance: float | None = None,
    draws: int = 16,
    seed: int = 0,
    level: float = 0.05,
    null: str = "two-way",
    noise: str | None = None,
    similarity: float = 0.5,
    text: str | None = None,
    sequences: int = 32,
    length: int = 64,
    memory: int | str = "4GB",
    running: Sequence[Any] | None = None,
) -> xr.DataTree:
    """`headspan.compare` on heads; `behavior` where the models are given as `running`."""
    noise = noise or ("rounding" if after.checkpoint.packing and not before.checkpoint.packing else "gaussian")
    drawn: dict[str, Any] = {"noise": noise, "draws": draws, "seed": seed}
    moved = drift(before, after, leading=leading, tolerance=tolerance, **drawn)
    nodes = {f"drift/{role}": moved.dataset(role) for role in ROLES}
    reading: dict[str, Any] = {"tolerance": tolerance, "memory": memory}
    wiring, wiring_attrs = wiring_nodes(before, after, null=null, level=level, **drawn, **reading)
    talking, channel_attrs = channel_nodes(
        before,
        after,
        null=HAAR if null == HAAR else TWO_WAY,
        level=level,
        similarity=similarity,
        memory=memory,
        **drawn,
    )
    current_step("changes of all matrices")
    changed, change_attrs = change_nodes(before, after, similarity=similarity, level=level, **drawn)
    current_step("spectra of all matrices")
    spectral, left_out = _spectra_changes(*(spectra(heads, seed=seed, **reading) for heads in (before, after)))
    attrs = {**moved.attrs, "level": level, "noise": noise, **wiring_attrs, **channel_attrs, **change_attrs}
    attrs |= {"spectra_left_out": left_out} if left_out else {}
    nodes |= {**wiring, **talking, **changed, **{f"spectra/{kind}": node for kind, node in spectral.items()}}
    if running is not None:
        current_step("running both")
        node, behavior_attrs = behavior_node(running, text=text, sequences=sequences, length=length, **drawn)
        nodes |= node
        attrs |= behavior_attrs
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **nodes})


def _spectra_changes(first: Result, second: Result) -> tuple[dict[str, xr.Dataset], str]:
    """One dataset per kind of matrix that both have in one shape, and a line on those that are left out."""
    nodes, left_out = {}, []
    for kind, node in first.data.children.items():
        if "singular_value" not in node or str(kind).endswith(PER_HEAD) or kind not in second:
            continue
        pair = first.dataset(str(kind)), second.dataset(str(kind))
        shapes = [f"{int(node['rows'])} x {int(node['columns'])}" for node in pair]
        if shapes[0] == shapes[1]:
            nodes[str(kind)] = _spectra_node(*pair)
        else:
            left_out.append(f"{kind} is {shapes[0]} before and {shapes[1]} after")
    return nodes, "; ".join(left_out)


def _spectra_node(first: xr.Dataset, second: xr.Dataset) -> xr.Dataset:
    """Singular values before and after, their distance, and what summarizes them, each `_before` and `_after`."""
    found = {
        f"{name}_{side}": (one[name].dims, one[name].values)
        for name in ("singular_value", *SUMMARIES)
        for one, side in ((first, "before"), (second, "after"))
    }
    ks = spectrum_ks(*(torch.as_tensor(one["singular_value"].values) for one in (first, second)))
    found |= {f"{name}_null": ((), first[f"{name}_null"].values) for name in NULLED}
    return first.drop_vars(list(first)).drop_attrs().assign(found | {"ks": (first["energy"].dims, ks.numpy())})
