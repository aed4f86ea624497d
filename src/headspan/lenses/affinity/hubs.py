"""Hubs: heads that many heads can reach and that can reach many.

With K(s, t) a pair's kernel, c its chance value and x+ = max(x, 0):

- `excess` (default, no cut to choose): inlet(h) = mean over OQ, OK, OV of (mean over sources of K(s, h) - c)+, and
  outlet(h) the same over destinations; the score is the geometric mean of the two;
- `kernel`: inlet and outlet are the plain means of K, score their sum;
- `degree`: inlet and outlet count the head's edges in the union of the top-k graphs, score their sum.

Of a sketch the means are those of its unbiased estimates. In a grouped model a pair through K or V ends at a kv head;
its kernel counts for every query head that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr

from headspan.dims import COMPOSING, HEAD, LAYER, PAIR_DIMS, HeadLabel
from headspan.errors import ShapeError
from headspan.lenses.affinity.edges import is_sketched, pairing_node, pairings_of, top_edges
from headspan.lenses.affinity.lens import VARIABLES
from headspan.statistics.permutation import Array

DEFINITIONS = ("excess", "kernel", "degree")


def hub_scores(result: xr.DataTree, definition: str = "excess", metric: str = "pk", top: int = 20) -> xr.Dataset:
    """Inlet, outlet and hub score of every head.

    Returns
    -------
    Dataset with `inlet`, `outlet` and `score` [layer, head]. All >= 0; under chance `excess` is 0 up to sampling error,
    `kernel` is twice the chance kernel. The inlet of the first layer and the outlet of the last are NaN: no pair.
    """
    if definition not in DEFINITIONS:
        raise ShapeError(f"unknown definition of a hub {definition!r}; known are {', '.join(DEFINITIONS)}")
    used = [pairing for pairing in COMPOSING if pairing in pairings_of(result)]
    if not used:
        raise ShapeError("hubs need at least one of the pairings OQ, OK, OV in the result")
    if definition == "degree":
        inlet, outlet = _degrees(result, used, metric, top)
    else:
        sides = [_mean_in_and_out(result, pairing, metric, definition == "excess") for pairing in used]
        inlet, outlet = (np.mean([side[i] for side in sides], axis=0) for i in (0, 1))
    score = np.sqrt(inlet * outlet) if definition == "excess" else inlet + outlet
    layers = pairing_node(result, used[0])["src_layer"].values
    return xr.Dataset(
        {name: ((LAYER, HEAD), values) for name, values in (("inlet", inlet), ("outlet", outlet), ("score", score))},
        coords={LAYER: layers},
        attrs={**result.attrs, "definition": definition, "metric": metric, "pairings": ",".join(used)},
    )


def ranked_hubs(hubs: xr.Dataset) -> pd.DataFrame:
    """Hubs as a table, highest score first; heads without a score come last."""
    layers, n_heads = hubs[LAYER].values, hubs.sizes[HEAD]
    table = pd.DataFrame(
        {
            "head": [str(HeadLabel(int(layer), head)) for layer in layers for head in range(n_heads)],
            **{name: hubs[name].values.reshape(-1) for name in ("inlet", "outlet", "score")},
        }
    )
    return table.sort_values("score", ascending=False, na_position="last", kind="stable").reset_index(drop=True)


def class_hubs(hubs: xr.Dataset, classes: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Where the members of each class stand among all hubs: is one of them special, or is the class?

    Returns
    -------
    Table with `class`, `head`, `rank` (1 is the strongest hub; by chance the middle), `n_heads`, `score`.
    """
    ranked = ranked_hubs(hubs)
    places = {
        head: (rank, score) for rank, (head, score) in enumerate(zip(ranked["head"], ranked["score"], strict=True), 1)
    }
    rows = [
        {"class": name, "head": head, "rank": places[head][0], "n_heads": len(ranked), "score": places[head][1]}
        for name, members in classes.items()
        for head in members
        if head in places
    ]
    return pd.DataFrame(rows, columns=["class", "head", "rank", "n_heads", "score"]).sort_values(["class", "rank"])


def _mean_in_and_out(result: xr.DataTree, pairing: str, metric: str, excess: bool) -> tuple[Array, Array]:
    """Mean incoming and outgoing score of every query head, [layer, head], less chance and clipped if asked."""
    node = pairing_node(result, pairing)
    name = VARIABLES[metric][0]
    if name not in node:
        raise ShapeError(f"this result has no {metric} for {pairing}")
    if is_sketched(result):
        received, outgoing = node["incoming"].values, node["outgoing"].values
    else:
        scores = node[name].transpose(*PAIR_DIMS).values
        received, outgoing = _mean(scores, (0, 1)), _mean(scores, (2, 3))
    incoming = np.repeat(received, int(result.attrs["n_heads"]) // received.shape[1], axis=1)
    if excess:
        chance = float(node["chance_mean"].sel(metric=metric))
        incoming, outgoing = np.maximum(incoming - chance, 0), np.maximum(outgoing - chance, 0)
    return incoming, outgoing


def _mean(scores: Array, axes: tuple[int, int]) -> Array:
    """Mean over the pairs that exist; NaN where there is none."""
    known = ~np.isnan(scores)
    count = known.sum(axes).astype(float)
    total = np.where(known, scores, 0.0).sum(axes)
    mean: Array = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    return mean


def _degrees(result: xr.DataTree, pairings: list[str], metric: str, top: int) -> tuple[Array, Array]:
    layers = list(pairing_node(result, pairings[0])["src_layer"].values)
    inlet, outlet = np.zeros((2, len(layers), int(result.attrs["n_heads"])))
    for pairing in pairings:
        chosen = top_edges(result, pairing, metric, top)
        group = int(result.attrs["n_heads"]) // pairing_node(result, pairing).sizes["dst_head"]
        for edge in chosen.itertuples():
            outlet[layers.index(edge.src_layer), edge.src_head] += 1
            first = int(edge.dst_head) * group
            inlet[layers.index(edge.dst_layer), first : first + group] += 1
    return inlet, outlet
