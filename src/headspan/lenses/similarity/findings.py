"""What the geometry of query, key and attention spaces says about a model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
import xarray as xr

from headspan.dims import LAYER
from headspan.finding import Finding, rank_evidence, significance
from headspan.lenses.similarity.schema import BJORCK, DISTANCE_NAMES
from headspan.result import Result

LENS = "similarity"
LEVEL = 0.01
NAMED = 5
HAAR = "Null: independent uniformly random subspaces of the same dimensions; trained weights are anisotropic."


def findings(result: Result) -> Iterator[Finding]:
    """Query against key, own keys, diversity of layers, closest heads and clusters, as far as they are defined."""
    data = result.dataset()
    for part in (_departures, _strongest, _own_keys, _diversity, _closest, _clusters, _degenerate):
        yield from part(data)


def _departures(data: xr.Dataset) -> Iterator[Finding]:
    """How many heads' query and key spaces overlap more or less than random ones."""
    z, q = data["projection_kernel_z"].values, data["projection_kernel_q"].values
    tested = int(np.isfinite(z).sum())
    if tested == 0:
        return
    more, less = int(((q < LEVEL) & (z > 0)).sum()), int(((q < LEVEL) & (z < 0)).sum())
    angles = np.degrees(data["angles_RQ_RK_null"].values)
    rest = [str(label) for label in data["head"].values[q >= LEVEL]]
    tail = f" Not significant: {_listed(rest)}." if rest and more + less else ""
    told = (
        f"Query and key space overlap more than expected under the null in {more} of {tested} heads, less in "
        f"{less or 'none'} (q < {LEVEL:g}).{tail}"
        if more + less
        else f"In none of {tested} heads do query and key space overlap more or less than random subspaces "
        f"(q < {LEVEL:g})."
    )
    yield Finding(
        LENS,
        told,
        value=float(more + less),
        expected=0.0,
        evidence=(
            "Nearly orthogonal spaces are not evidence: random ones have angles of "
            f"{np.nanmin(angles):.0f} to {np.nanmax(angles):.0f} degrees. {HAAR}"
        ),
        reference=BJORCK,
        weight=0.6 if more + less else 0.1,
    )


def _listed(labels: list[str]) -> str:
    more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
    return ", ".join(labels[:NAMED]) + more


def _strongest(data: xr.Dataset) -> Iterator[Finding]:
    """The heads that depart furthest, one finding for each direction."""
    z, q = data["projection_kernel_z"].values, data["projection_kernel_q"].values
    for sign, words in ((1, "largest"), (-1, "smallest")):
        places = np.flatnonzero((q < LEVEL) & (sign * z > 0))
        if len(places) == 0:
            continue
        places = places[np.argsort(-sign * z[places], kind="stable")]
        first = data.isel(head=int(places[0]))
        width = int(min(first["rank_Q"], first["rank_K"]))
        kernel, expected = float(first["projection_kernel"]), float(first["projection_kernel_null"])
        others = [f"{row['head'].item()} ({float(row['projection_kernel']):.1f})" for row in _heads(data, places[1:3])]
        yield Finding(
            LENS,
            f"{first['head'].item()} has the {words} overlap of query and key space: {kernel:.1f} of "
            f"{width} dimensions (expected {expected:.1f}, z = {float(first['projection_kernel_z']):.1f}, "
            f"{significance('q', float(first['projection_kernel_q']))})"
            + (f"; next {'are' if len(others) > 1 else 'is'} {' and '.join(others)}." if others else "."),
            value=kernel,
            expected=expected,
            p=float(first["projection_kernel_p"]),
            q=float(first["projection_kernel_q"]),
            evidence=f"Projection kernel of query and key space. {HAAR}",
            weight=0.5,
        )


def _heads(data: xr.Dataset, places: np.ndarray) -> list[xr.Dataset]:
    return [data.isel(head=int(place)) for place in places]


def _own_keys(data: xr.Dataset) -> Iterator[Finding]:
    """Whether a query is nearest to its own key: a comparison inside the model, which anisotropy does not affect."""
    place = data["own_key_place"].values
    tested = int(np.isfinite(place).sum())
    if tested == 0:
        return
    from scipy.special import bdtrc

    nearest, share = int((place == 1).sum()), 1 / int(data.attrs["n_kv_heads"])
    p = 1.0 if nearest == 0 else float(bdtrc(nearest - 1, tested, share))
    others, own = (float(np.nanmean(data[f"projection_kernel{part}"].values)) for part in ("_others", ""))
    yield Finding(
        LENS,
        f"In {nearest} of {tested} heads the query space is closer to the head's own key space than to every other key "
        f"space of the layer (expected {tested * share:.3g}, binomial {significance('p', p)}).",
        value=float(nearest),
        expected=tested * share,
        p=p,
        evidence=(
            f"Mean kernel with the own key {own:.2f}, with the other keys of the layer {others:.2f}. "
            "Null: every key of a layer is equally likely to be the nearest."
        ),
        weight=0.55 if p < LEVEL else 0.1,
    )


def _two_sided(z: float) -> float | None:
    return math.erfc(abs(z) / math.sqrt(2)) if math.isfinite(z) else None


def _distance_name(data: xr.Dataset) -> str:
    return f"{DISTANCE_NAMES[data.attrs['distance']]} distance"


def _diversity(data: xr.Dataset) -> Iterator[Finding]:
    """The layers whose heads differ least and most."""
    values = data["diversity"].values
    if not np.isfinite(values).any():
        return
    least, most = int(np.nanargmin(values)), int(np.nanargmax(values))
    layers, z = data[LAYER].values, float(data["diversity_z"].values[least])
    expected = float(data["diversity_null"].values[least])
    statement = (
        f"The heads of layer {layers[least]} are the most similar: mean {_distance_name(data)} {values[least]:.2f} "
        f"(expected {expected:.2f}, z = {z:.0f})"
    )
    tested, p = int(np.isfinite(values).sum()), _two_sided(z)
    if least != most:
        statement += f"; those of layer {layers[most]} are the most diverse ({values[most]:.2f})"
    yield Finding(
        LENS,
        f"{statement}.",
        value=float(values[least]),
        expected=expected,
        p=None if p is None else min(1.0, tested * p),
        evidence=f"Mean over pairs of heads of the distance of their attention spaces ({data.attrs['space']}); p is "
        f"Bonferroni-corrected for {tested} layers. {HAAR}",
        figure="Distances within layers",
        weight=0.4,
    )


def _closest(data: xr.Dataset) -> Iterator[Finding]:
    """The pairs of heads whose attention spaces are nearest."""
    pairs = [data.isel(pair=place) for place in range(min(NAMED, data.sizes.get("pair", 0)))]
    if not pairs:
        return
    first, z = pairs[0], float(pairs[0]["closest_distance_z"])
    names = [f"{pair['closest_src'].item()} and {pair['closest_dst'].item()}" for pair in pairs]
    values = [float(pair["closest_distance"]) for pair in pairs]
    others = ", ".join(f"{name} ({value:.2f})" for name, value in zip(names[1:], values[1:], strict=True))
    n = data.sizes["head"] if "distance" in data else data.sizes["peer"]
    n_pairs = data.sizes["head"] // n * (n * (n - 1) // 2)
    p, expected = _two_sided(z), float(first["closest_distance_null"])
    yield Finding(
        LENS,
        f"{names[0]} have the closest attention spaces: {_distance_name(data)} {values[0]:.2f} (expected "
        f"{expected:.2f}, z = {z:.0f})" + (f"; next are {others}." if others else "."),
        value=values[0],
        expected=expected,
        p=None if p is None else min(1.0, n_pairs * p),
        evidence=f"Ranked by distance over expected distance; p is Bonferroni-corrected for {n_pairs:,} pairs. {HAAR}",
        figure="Distances within layers",
        weight=0.5,
    )


def _enumerated(sizes: Iterable[int]) -> str:
    *others, last = map(str, sizes)
    return f"{', '.join(others)} and {last}" if others else last


def _clusters(data: xr.Dataset) -> Iterator[Finding]:
    """Into which clusters the heads of all layers fall."""
    if "cluster" not in data or not math.isfinite(float(data["silhouette"])):
        return
    label = data["cluster"].values
    sizes = {int(name): int((label == name).sum()) for name in np.unique(label[np.isfinite(label)])}
    smallest = min(sizes, key=lambda name: sizes[name])
    layers = np.unique(data["head_layer"].values[label == smallest])
    where = f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]} to {layers[-1]}"
    score, expected = float(data["silhouette"]), float(data["silhouette_null"])
    yield Finding(
        LENS,
        f"Clustering by distance splits the heads into {len(sizes)} clusters of "
        f"{_enumerated(sizes.values())} heads (mean silhouette {score:.3f}, expected "
        f"{expected:.3f}); the smallest is in {where}.",
        value=score,
        expected=expected,
        evidence="Average linkage, cut at the largest mean silhouette (-1 to 1); near 0, clusters are barely distinct.",
        figure="Map of heads",
        weight=0.3,
    )


def _degenerate(data: xr.Dataset) -> Iterator[Finding]:
    """Heads that have no query or key space at all."""
    labels = [str(label) for label in data["head"].values[data["degenerate"].values.astype(bool)]]
    if labels:
        yield Finding(
            LENS,
            f"{len(labels)} {'head has' if len(labels) == 1 else 'heads have'} no query or no key space, so attention "
            f"is uniform or depends on biases alone: {_listed(labels)}.",
            value=float(len(labels)),
            expected=0.0,
            evidence=f"{rank_evidence(data.attrs['tolerance'])} Scores of a head without a space are undefined.",
            weight=0.7,
        )
