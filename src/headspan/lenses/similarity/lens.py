"""Attention heads as subspaces: query against key, head against head, layer by layer.

1. Per head: the principal angles of its query and key read spaces and of their null spaces, each beside what random
   spaces of the same dimensions give (`similarity_query_key`).
2. Per pair of heads: the distance of their attention spaces, within layers and across them, with chance and z-score
   (`similarity_pairs`, `similarity_chance`), clusters and maps (`similarity_clusters`, `similarity_maps`).
3. Per layer: diversity, the mean distance of its heads.
4. A check on numbers that what is called a null space is one (`similarity_invariance`).
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import xarray as xr

from headspan.dims import HEAD, LAYER, HeadLabel
from headspan.errors import ShapeError
from headspan.heads import Heads
from headspan.lenses.similarity.chance import checked_metric
from headspan.lenses.similarity.keeping import kept_spaces
from headspan.lenses.similarity.layers import Gathered, distances_across, gather
from headspan.lenses.similarity.maps import FOUR_SPACES, direction_map, random_direction_map
from headspan.lenses.similarity.query_key import (
    BINS,
    COMBINATIONS,
    all_angles,
    angle_counts,
    chance_draws,
    departures,
    null_dimensions,
)
from headspan.lenses.similarity.rounding import angle_error
from headspan.lenses.similarity.spaces import SpaceChoice, block_spaces, expanded, space_choice
from headspan.lenses.similarity.variables import Variables, across_variables, layer_variables

MANY_HEADS = 400
"""Above this many heads, distances across layers are left out unless asked for."""


def compute(
    heads: Heads,
    *,
    space: str = "sum",
    metric: str = "grassmann",
    across_layers: bool | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    angle_tolerance: float | None = None,
    qk_rank: int | None = None,
    sample_head: str | tuple[int, int] | None = None,
    samples: int = 100,
    maps: bool = True,
    memory: int | str = "4GB",
) -> xr.Dataset:
    """How the query and key spaces of each head, and the attention spaces of all heads, lie to one another.

    Parameters
    ----------
    heads
        Any heads; only W_Q and W_K are read.
    space
        What stands for a head when heads are compared: "sum" (R_Q + R_K), "intersection", or "qk" (the leading
        singular vectors of W_Q W_K^T on both sides).
    metric
        "grassmann", "chordal", "projection", "fubini-study", "binet-cauchy", "spectral" or "procrustes".
    across_layers
        Compare heads of different layers too. By default up to 400 heads; the attribute `across_layers` says.
    seed
        For chance draws, maps and the invariance check.
    tolerance
        Singular values up to this share of a head's largest count as zero; by default d_model times machine epsilon.
    angle_tolerance, qk_rank
        For "intersection", the largest angle in radians that counts as common (default: rounding); for "qk", how many
        singular vectors of each side (default d_head / 4).
    sample_head, samples
        The head whose four spaces are sampled for a map (default: the first that has both spaces), and how many
        directions of each.
    maps
        Whether to make maps of heads and of sampled directions; a sweep over many models can do without.
    memory
        Budget for one block of layers and its scratch space.

    Returns
    -------
    Dataset
        Per head [layer, head]: `angles_RQ_RK` and three more (radians), `grassmann`, `projection_kernel` with
        `_chance`, `_sd`, `_z`, `p_value`, `q_value`, `own_key_place`, ranks, flags `degenerate` and `deficient`.
        Per pair: `layer_distance` [layer, src_head, dst_head], `distance` [src_layer, src_head, dst_layer, dst_head].
        Per layer: `diversity`. NaN where undefined. `docs/similarity.md` lists all with range and chance.
    """
    choice = space_choice(heads, space, tolerance, angle_tolerance, qk_rank)
    checked_metric(metric)
    if heads.stack.reads_memory:
        raise ShapeError(
            "in cross-attention queries and keys read different streams, which have no angles between them"
        )
    if samples < 1:
        raise ShapeError(f"samples needs to be at least 1, found {samples}")
    few = heads.n_layers * heads.n_heads <= MANY_HEADS
    across = heads.n_layers > 1 and (few if across_layers is None else across_layers)
    chosen = None if sample_head is None else _checked_head(heads, sample_head)
    with kept_spaces(heads, choice, memory) if across else nullcontext() as kept:
        found = gather(heads, choice, metric, kept, memory, seed)
        distance = None if kept is None else distances_across(kept, metric, memory)
        scratch = 0 if kept is None else kept.scratch_bytes
    variables = _head_variables(heads, choice, found, seed)
    variables |= layer_variables(heads, choice, metric, found, seed)
    if distance is not None:
        variables |= across_variables(heads, choice, metric, found, distance, maps, seed)
    first = _first_defined(heads, found) if chosen is None else chosen
    if maps and first is not None:
        variables |= _sample_variables(heads, choice, first, samples, seed)
    attrs = _attributes(heads, choice, metric, seed, str(first) if maps and first else "none")
    attrs |= angle_error(heads, choice, found["theta"])
    attrs["scratch_bytes"] = scratch
    attrs["across_layers"] = _across_text(heads, across, across_layers)
    return xr.Dataset(variables, coords=_coordinates(heads, across), attrs=attrs)


def _attributes(heads: Heads, choice: SpaceChoice, metric: str, seed: int, sample_head: str) -> dict[str, object]:
    """Where the result comes from and how it was made; numbers and text only, which every file format can hold."""
    return {
        **heads.provenance(),
        "lens": "similarity",
        "space": choice.space,
        "metric": metric,
        "seed": seed,
        "tolerance": choice.tolerance,
        "angle_tolerance": "rounding" if choice.angle_tolerance is None else choice.angle_tolerance,
        "qk_rank": choice.qk_rank if choice.space == "qk" else "all",
        "computed_in": str(choice.dtype).removeprefix("torch."),
        "d_model": heads.d_model,
        "d_head": heads.d_head,
        "n_kv_heads": heads.n_kv_heads,
        "sample_head": sample_head,
        "null": "independent Haar subspaces of the true dimensions",
    }


def _across_text(heads: Heads, across: bool, asked: bool | None) -> str:
    if across:
        return "computed"
    if heads.n_layers == 1:
        return "skipped: there is one layer"
    if asked is False:
        return "skipped: not asked for"
    return f"skipped: {heads.n_layers * heads.n_heads} heads, more than {MANY_HEADS}; ask with across_layers=True"


def _coordinates(heads: Heads, across: bool) -> dict[str, object]:
    places, layers = list(range(heads.n_heads)), list(heads.layers)
    coords: dict[str, object] = {LAYER: layers, HEAD: places, "src_head": places, "dst_head": places}
    coords |= {"combination": list(COMBINATIONS), "bin": (np.arange(BINS) + 0.5) * 90 / BINS}
    if across:
        coords |= {"src_layer": layers, "dst_layer": layers, "linkage_part": ["first", "second", "distance", "size"]}
    return coords | {"subspace": list(FOUR_SPACES), "axis": [0, 1]}


def _head_variables(heads: Heads, choice: SpaceChoice, found: Gathered, seed: int) -> Variables:
    """Everything about one head at a time."""
    d, shape = heads.d_model, (heads.n_layers, heads.n_heads)
    theta, p, q = found["theta"].reshape(-1, min(d, heads.d_head)), found["rank_Q"].ravel(), found["rank_K"].ravel()
    angles = all_angles(theta, p, q, d)
    arrays = departures(theta, p, q, d, seed)
    arrays |= null_dimensions(theta, p, q, d, max(1e-9, choice.tolerance))
    arrays |= {"degenerate": (p == 0) | (q == 0), "deficient": (p < heads.d_head) | (q < heads.d_head)}
    arrays["own_key_place_chance"] = np.full(len(p), (heads.n_kv_heads + 1) / 2 if heads.n_kv_heads > 1 else np.nan)
    for name in ("rank_Q", "rank_K", "dimension", "projection_kernel_others", "own_key_place"):
        arrays[name] = found[name].ravel()
    for name in ("null_change", "read_change", "random_change"):
        arrays[name] = found[name].ravel()
    listed = arrays.pop("angles_chance")
    out: Variables = {name: ((LAYER, HEAD), array.reshape(shape)) for name, array in arrays.items()}
    out["angles_chance"] = ((LAYER, HEAD, "angle"), listed.reshape(*shape, -1))
    for name, values in angles.items():
        axis = "null_angle" if name == "NQ_NK" else "angle"
        out[f"angles_{name}"] = ((LAYER, HEAD, axis), values.reshape(*shape, -1))
    counts = angle_counts(angles, p, q, d, chance_draws(p, q), seed)
    out["forced_zeros"] = (("combination",), counts.pop("forced_zeros"))
    return out | {name: (("combination", "bin"), values) for name, values in counts.items()}


def _checked_head(heads: Heads, label: str | tuple[int, int]) -> HeadLabel:
    head = HeadLabel.parse(label)
    if head.kv or head.layer not in heads.layers or not head.head < heads.n_heads:
        raise ShapeError(
            f"sample_head {head} is not a query head of layers {heads.layers[0]}..{heads.layers[-1]} "
            f"with {heads.n_heads} heads each"
        )
    return head


def _first_defined(heads: Heads, found: Gathered) -> HeadLabel | None:
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
    chance = np.full((len(FOUR_SPACES), samples, 2), np.nan)
    if min(p, q) > 0:
        chance = random_direction_map(heads.d_model, p, q, samples, seed)
    out["sample_tsne_chance"] = (dims, chance)
    return out
