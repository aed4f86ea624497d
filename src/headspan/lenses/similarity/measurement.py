"""Attention heads as subspaces: query against key, head against head, layer by layer.

1. Per head: the principal angles of its query and key read spaces and of their null spaces, each with what is expected
   of random spaces of the same dimensions, and a check on numbers that null spaces are null (`query_key`).
2. Per pair of heads: the distance of their attention spaces (`spaces`), within layers and across them, with null and
   z-score (`layers`), clusters and maps (`groups`).
3. Per layer: diversity, the mean distance of its heads.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import xarray as xr

from headspan.dims import DST_LAYER, HEAD, LAYER, SRC_LAYER, HeadLabel
from headspan.errors import ArgumentError
from headspan.heads import Heads
from headspan.lenses.similarity.groups import direction_map, random_direction_map
from headspan.lenses.similarity.layers import (
    LayerArrays,
    Variables,
    across_variables,
    add_layer_distances,
    closest_pairs,
    distances_across,
    layer_arrays,
    layer_variables,
    whole_null,
)
from headspan.lenses.similarity.query_key import (
    BINS,
    all_angles,
    angle_counts,
    angle_error,
    departures,
    null_dimensions,
    null_draws,
)
from headspan.lenses.similarity.schema import COMBINATIONS, FOUR_SPACES
from headspan.lenses.similarity.spaces import SpaceChoice, block_spaces, expanded, kept_spaces, space_choice

MANY_HEADS = 400
"""Above this many heads, distances across layers are left out unless asked for."""
COLLECTED = (
    *("rank_Q", "rank_K", "dimension", "projection_kernel_others", "own_key_place"),
    *("null_change", "read_change", "random_change"),
)
"""Numbers of single heads that the pass over the layers leaves."""


def measure(
    heads: Heads,
    *,
    space: str = "sum",
    distance: str = "grassmann",
    across_layers: bool | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    angle_tolerance: float | None = None,
    qk_rank: int | None = None,
    head: str | tuple[int, int] | None = None,
    samples: int = 100,
    maps: bool = True,
    memory: int | str = "4GB",
) -> xr.Dataset:
    """`headspan.similarity` on heads, over grids of layers and heads."""
    choice = space_choice(heads, space, tolerance, angle_tolerance, qk_rank)
    few = heads.n_layers * heads.n_heads <= MANY_HEADS
    across = heads.n_layers > 1 and (few if across_layers is None else across_layers)
    chosen = None if head is None else _checked_head(heads, head)
    with kept_spaces(heads, choice, memory) if across else nullcontext() as kept:
        found = layer_arrays(heads, choice, distance, kept, memory, seed)
        table = None if kept is None else distances_across(kept, distance, memory)
        scratch = 0 if kept is None else kept.scratch_bytes
    if table is not None:
        add_layer_distances(found, table, heads.n_heads)
    variables = _head_variables(heads, choice, found, seed)
    whole = None if table is None else whole_null(heads, choice, distance, found, seed)
    variables |= layer_variables(heads, choice, distance, found, whole, seed)
    if table is not None and whole is not None:
        variables |= across_variables(heads, table, whole, maps, seed)
    variables |= closest_pairs({name: values for name, (_, values) in variables.items()}, heads.layers)
    first = _first_defined(heads, found) if chosen is None else chosen
    if chosen is not None:
        variables |= _chosen_variables(heads, chosen, found, seed)
    if maps and first is not None:
        variables |= _sample_variables(heads, choice, first, samples, seed)
    attrs = _attributes(heads, choice, distance, seed, str(first) if (maps and first) or chosen else "none")
    attrs |= angle_error(heads, choice, found["theta"])
    attrs |= {"scratch_bytes": scratch, "across_layers": _across_text(heads, across, across_layers)}
    return xr.Dataset(variables, coords=_coordinates(heads, across, maps), attrs=attrs)


def _attributes(heads: Heads, choice: SpaceChoice, distance: str, seed: int, sample_head: str) -> dict[str, object]:
    """How the result was made; numbers and text only, which every file format can hold."""
    return {
        "space": choice.space,
        "distance": distance,
        "seed": seed,
        "tolerance": heads.rank_rule(choice.tolerance),
        "angle_tolerance": "rounding" if choice.angle_tolerance is None else choice.angle_tolerance,
        "qk_rank": choice.qk_rank if choice.space == "qk" else "all",
        "computed_in": str(choice.dtype).removeprefix("torch."),
        "sample_head": sample_head,
        "null": "independent uniformly random subspaces of the true dimensions",
    }


def _across_text(heads: Heads, across: bool, asked: bool | None) -> str:
    if across:
        return "computed"
    if heads.n_layers == 1:
        return "skipped: there is one layer"
    if asked is False:
        return "skipped: not asked for"
    return f"skipped: {heads.n_layers * heads.n_heads} heads, more than {MANY_HEADS}; ask with across_layers=True"


def _coordinates(heads: Heads, across: bool, maps: bool) -> dict[str, object]:
    layers = list(heads.layers)
    coords: dict[str, object] = {LAYER: layers, "combination": list(COMBINATIONS)}
    coords["bin"] = (np.arange(BINS) + 0.5) * 90 / BINS
    if across:
        coords |= {SRC_LAYER: layers, DST_LAYER: layers, "linkage_part": ["first", "second", "distance", "size"]}
    return coords | {"subspace": list(FOUR_SPACES), "axis": [0, 1]} if maps else coords


def _head_variables(heads: Heads, choice: SpaceChoice, found: LayerArrays, seed: int) -> Variables:
    """Everything about one head at a time."""
    d, shape = heads.d_model, (heads.n_layers, heads.n_heads)
    theta, p, q = found["theta"].reshape(-1, min(d, heads.d_head)), found["rank_Q"].ravel(), found["rank_K"].ravel()
    angles = all_angles(theta, p, q, d)
    arrays = departures(theta, p, q, d, seed)
    arrays |= null_dimensions(theta, p, q, d, max(1e-9, choice.sum_tolerance))
    arrays |= {"degenerate": (p == 0) | (q == 0), "deficient": (p < heads.d_head) | (q < heads.d_head)}
    arrays["own_key_place_null"] = np.full(len(p), (heads.n_kv_heads + 1) / 2 if heads.n_kv_heads > 1 else np.nan)
    # Ascending with NaN behind, so the first is the smallest; fmax passes over NaN without a warning.
    arrays |= {"smallest_angle": np.degrees(theta[:, 0]), "largest_angle": np.degrees(np.fmax.reduce(theta, axis=1))}
    for name in COLLECTED:
        arrays[name] = found[name].ravel()
    angles_null = arrays.pop("angles_RQ_RK_null")
    out: Variables = {name: ((LAYER, HEAD), array.reshape(shape)) for name, array in arrays.items()}
    out["angles_RQ_RK_null"] = ((LAYER, HEAD, "angle"), angles_null.reshape(*shape, -1))
    for name, values in angles.items():
        axis = "null_angle" if name == "NQ_NK" else "angle"
        out[f"angles_{name}"] = ((LAYER, HEAD, axis), values.reshape(*shape, -1))
    counts = angle_counts(angles, p, q, d, null_draws(p, q), seed)
    out["forced_zeros"] = (("combination",), counts.pop("forced_zeros"))
    return out | {name: (("combination", "bin"), values) for name, values in counts.items()}


def _chosen_variables(heads: Heads, head: HeadLabel, found: LayerArrays, seed: int) -> Variables:
    """The angles of one head by themselves, counted like those of all heads."""
    d, place = heads.d_model, (list(heads.layers).index(head.layer), head.head)
    theta, p, q = found["theta"][place][None], found["rank_Q"][place][None], found["rank_K"][place][None]
    counts = angle_counts(all_angles(theta, p, q, d), p, q, d, null_draws(p, q), seed)
    dims = ("combination", "bin")
    return {f"chosen_{name}": (dims[: values.ndim], values) for name, values in counts.items()}


def _checked_head(heads: Heads, label: str | tuple[int, int]) -> HeadLabel:
    head = HeadLabel.parse(label)
    if head.kv or head.layer not in heads.layers or not head.head < heads.n_heads:
        raise ArgumentError(
            f"head={head} is not a query head; it is one of layers {heads.layers[0]}..{heads.layers[-1]} "
            f"with {heads.n_heads} heads each"
        )
    return head


def _first_defined(heads: Heads, found: LayerArrays) -> HeadLabel | None:
    """The first head with a query and a key space."""
    places = np.argwhere((found["rank_Q"] > 0) & (found["rank_K"] > 0))
    return HeadLabel(heads.layers[int(places[0][0])], int(places[0][1])) if len(places) else None


def _sample_variables(heads: Heads, choice: SpaceChoice, head: HeadLabel, samples: int, seed: int) -> Variables:
    """The map of directions sampled from the four spaces of one head, and of random ones."""
    spaces = block_spaces(heads, heads.layer(head.layer, ("Q", "K")), choice)
    query, key = spaces.query[0, head.head], expanded(heads, spaces.key)[0, head.head]
    dims = ("subspace", "sample", "axis")
    out: Variables = {"sample_tsne": (dims, direction_map(query, key, samples, seed))}
    p, q = int(query.rank), int(key.rank)
    null = np.full((len(FOUR_SPACES), samples, 2), np.nan)
    if min(p, q) > 0:
        null = random_direction_map(heads.d_model, p, q, samples, seed)
    out["sample_tsne_null"] = (dims, null)
    return out
