"""What the geometry of query, key and attention spaces says about a model."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import xarray as xr

from headspan.dims import LAYER, HeadLabel
from headspan.finding import Finding
from headspan.lenses.similarity.tables import closest_pairs

LENS = "similarity"
LEVEL = 0.01
HAAR = "Null: independent uniformly random subspaces of the same dimensions; trained weights are anisotropic."
SOURCE = "Björck and Golub (1973), Numerical methods for computing angles between linear subspaces"


def findings(result: xr.Dataset) -> list[Finding]:
    """Query against key, own keys, diversity of layers, closest heads and clusters, as far as they are defined."""
    found = [*_departures(result), *_strongest(result), *_own_keys(result), *_diversity(result)]
    return [*found, *_closest(result), *_clusters(result), *_degenerate(result)]


def _label(result: xr.Dataset, place: int) -> str:
    layer, head = divmod(place, result.sizes["head"])
    return str(HeadLabel(int(result[LAYER].values[layer]), int(result["head"].values[head])))


def _departures(result: xr.Dataset) -> Iterator[Finding]:
    """How many heads' query and key spaces are not as random ones would lie, to either side."""
    z, q = result["projection_kernel_z"].values.ravel(), result["q_value"].values.ravel()
    tested = int(np.isfinite(z).sum())
    if tested == 0:
        return
    more, less = int(((q < LEVEL) & (z > 0)).sum()), int(((q < LEVEL) & (z < 0)).sum())
    angles = np.degrees(result["angles_chance"].values)
    as_chance = [_label(result, int(place)) for place in np.flatnonzero(q >= LEVEL)]
    few = less or "none"
    rest = f" Not to be told from chance: {_listed(as_chance)}." if as_chance else ""
    yield Finding(
        LENS,
        f"The query and key spaces of {more} of {tested} heads overlap more than chance, those of {few} less.{rest}",
        value=float(more + less),
        expected=0.0,
        evidence=(
            f"False-discovery rate {LEVEL:g}. Nearly orthogonal spaces alone prove nothing: random ones have angles of "
            f"{np.nanmin(angles):.0f} to {np.nanmax(angles):.0f} degrees. {HAAR}"
        ),
        reference=SOURCE,
        weight=0.6 if more + less else 0.1,
    )


def _listed(labels: list[str], most: int = 5) -> str:
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(labels[:most]) + more


def _strongest(result: xr.Dataset) -> Iterator[Finding]:
    """The heads that depart furthest, one finding for each direction."""
    z, q = result["projection_kernel_z"].values.ravel(), result["q_value"].values.ravel()
    for sign, words in ((1, "overlap most"), (-1, "avoid each other most")):
        places = np.flatnonzero((q < LEVEL) & (sign * z > 0))
        if len(places) == 0:
            continue
        places = places[np.argsort(-sign * z[places], kind="stable")]
        kernel, chance, first = result["projection_kernel"].values.ravel(), "projection_kernel_chance", int(places[0])
        named = [f"{_label(result, int(place))} ({kernel[place]:.1f})" for place in places[:3]]
        width = int(min(result["rank_Q"].values.flat[first], result["rank_K"].values.flat[first]))
        yield Finding(
            LENS,
            f"Query and key spaces {words} in {', '.join(named)}, of at most {width}.",
            value=float(kernel[first]),
            expected=float(result[chance].values.flat[first]),
            p=float(result["p_value"].values.flat[first]),
            evidence=f"Projection kernel of {_label(result, first)}, z = {z[first]:.1f}. {HAAR}",
            weight=0.5,
        )


def _own_keys(result: xr.Dataset) -> Iterator[Finding]:
    """Whether a query lies nearest to its own key: a comparison inside the model, which anisotropy does not touch."""
    place = result["own_key_place"].values
    tested = int(np.isfinite(place).sum())
    if tested == 0:
        return
    from scipy.special import bdtrc

    nearest, share = int((place == 1).sum()), 1 / int(result.attrs["n_kv_heads"])
    p_value = 1.0 if nearest == 0 else float(bdtrc(nearest - 1, tested, share))
    others = float(np.nanmean(result["projection_kernel_others"].values))
    own = float(np.nanmean(result["projection_kernel"].values))
    yield Finding(
        LENS,
        f"In {nearest} of {tested} heads the query space is nearest to its own key space among all keys of the layer.",
        value=float(nearest),
        expected=tested * share,
        p=p_value,
        evidence=(
            f"Mean kernel with the own key {own:.2f}, with the other keys of the layer {others:.2f}. "
            "Null: every key of a layer is equally likely to be the nearest (binomial)."
        ),
        weight=0.55 if p_value < LEVEL else 0.1,
    )


def _two_sided(z: float) -> float | None:
    return math.erfc(abs(z) / math.sqrt(2)) if math.isfinite(z) else None


def _diversity(result: xr.Dataset) -> Iterator[Finding]:
    """The layers whose heads differ least and most."""
    values, chance = result["diversity"].values, result["diversity_chance"].values
    if not np.isfinite(values).any():
        return
    least, most = int(np.nanargmin(values)), int(np.nanargmax(values))
    layers, z = result[LAYER].values, float(result["diversity_z"].values[least])
    metric = result.attrs["metric"]
    statement = f"The heads of layer {layers[least]} lie closest together: mean distance {values[least]:.2f}"
    if least != most:
        statement += f"; those of layer {layers[most]} are the most diverse: {values[most]:.2f}"
    yield Finding(
        LENS,
        f"{statement}.",
        value=float(values[least]),
        expected=float(chance[least]),
        p=_two_sided(z),
        evidence=f"Mean {metric} distance of attention spaces ({result.attrs['space']}), z = {z:.0f}. {HAAR}",
        figure="Distances within layers",
        weight=0.4,
    )


def _closest(result: xr.Dataset) -> Iterator[Finding]:
    """The pairs of heads whose attention spaces are nearest."""
    pairs = closest_pairs(result, count=5)
    if not pairs:
        return
    first = pairs[0]
    named = ", ".join(f"{pair['src']} and {pair['dst']} ({pair['distance']:.2f})" for pair in pairs)
    n_pairs = result["diversity"].size * result.sizes["head"] * (result.sizes["head"] - 1) // 2
    if "distance" in result:
        n = result.sizes[LAYER] * result.sizes["head"]
        n_pairs = n * (n - 1) // 2
    p_value = _two_sided(float(first["z"]))
    yield Finding(
        LENS,
        f"The heads with the closest attention spaces are {named}.",
        value=float(first["distance"]),
        expected=float(first["chance"]),
        p=None if p_value is None else min(1.0, n_pairs * p_value),
        evidence=f"{result.attrs['metric']} distance, z = {first['z']:.0f}, p corrected for {n_pairs} pairs. {HAAR}",
        figure="Distances within layers",
        weight=0.5,
    )


def _clusters(result: xr.Dataset) -> Iterator[Finding]:
    """Into which clusters the heads of all layers fall."""
    if "cluster" not in result or not math.isfinite(float(result["silhouette"])):
        return
    label = result["cluster"].values
    sizes = {int(name): int((label == name).sum()) for name in np.unique(label[np.isfinite(label)])}
    smallest = min(sizes, key=lambda name: sizes[name])
    layers = result[LAYER].values[(label == smallest).any(axis=1)]
    where = f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]} to {layers[-1]}"
    yield Finding(
        LENS,
        f"Cut where they are most distinct, all heads form {len(sizes)} clusters of "
        f"{', '.join(str(size) for size in sizes.values())} heads; the smallest lies in {where}.",
        value=float(result["silhouette"]),
        expected=float(result["silhouette_chance"]),
        evidence="Mean silhouette of an average-linkage tree, in -1..1; near 0, clusters are barely distinct.",
        figure="Map of heads",
        weight=0.3,
    )


def _degenerate(result: xr.Dataset) -> Iterator[Finding]:
    """Heads that have no query or key space at all."""
    places = np.flatnonzero(result["degenerate"].values.ravel())
    if len(places) == 0:
        return
    named = _listed([_label(result, int(place)) for place in places])
    yield Finding(
        LENS,
        f"{len(places)} heads have no query or no key space, so they attend evenly or by bias alone: {named}.",
        value=float(len(places)),
        expected=0.0,
        evidence=f"Rank 0 of W_Q or W_K at tolerance {result.attrs['tolerance']:.1e}; their scores are undefined.",
        weight=0.7,
    )
