"""Document 000, null and row spaces: figures 1 to 4, and the test of behavior that its last paragraph asks for."""

from __future__ import annotations

import numpy as np
import xarray as xr

from headspan.errors import ArgumentError
from headspan.finding import percent
from headspan.ledger.reproduction.exhibit import AtHand, Exhibits, Outcome, Shown
from headspan.lenses.model import Model
from headspan.result import Result
from headspan.statistics import mantel

EXHIBITS = Exhibits("000")
HEAD = "L0H0"
FAR = 4.0
"""Standard deviations beyond which a mean distance differs from that of random spaces."""
SAME = 5.0
"""Degrees up to which a median angle counts as that of random spaces."""
CLOSE = 0.1
"""Difference of two shares of neighbors that counts as none."""


def _similarity(at_hand: AtHand) -> tuple[Result, Model]:
    model = at_hand.first("similarity")
    return at_hand.result("similarity", model, head=HEAD), model


@EXHIBITS.add(
    "Figure 1",
    sentence="The null spaces of a head's queries and keys have most directions in common, and its row spaces are "
    "nearly orthogonal.",
    rule="Holds if the null spaces share exactly d - 2 d_head dimensions and the row spaces are no closer than random "
    "ones (q of the projection kernel at least 0.05, over all heads); in part if only the first is so.",
    command="headspan similarity {model} --head L0H0 --figures DIR",
    claims=("S0.4", "S0.5", "S0.6"),
)
def angles(at_hand: AtHand) -> Shown:
    """Angles of one head beside those of random spaces."""
    result, model = _similarity(at_hand)
    data = result.dataset()
    here = data.sel(head=HEAD)
    shared, expected = (float(here[f"shared_null_dimension{end}"]) for end in ("", "_null"))
    close = int(((data["projection_kernel_q"] < 0.05) & (data["projection_kernel_z"] > 0)).sum())
    kernel, null, z = (float(here[f"projection_kernel{end}"]) for end in ("", "_null", "_z"))
    number = (
        f"The null spaces of {HEAD} share {shared:g} dimensions ({expected:g} by counting dimensions alone). Its row "
        f"spaces overlap in {kernel:.2f} dimensions, random ones in {null:.2f} (z = {z:+.1f}); {close} of "
        f"{data.sizes['head']} heads are closer than random (q < 0.05)."
    )
    apart = not (float(here["projection_kernel_q"]) < 0.05 and z > 0)
    outcome: Outcome = "does not hold" if shared != expected else "holds" if apart else "holds in part"
    drawn = {name: result.figures[name] for name in ("Principal angles of one head", "Principal angles")}
    return Shown(outcome, number, model.source, drawn)


@EXHIBITS.add(
    "Figure 2",
    sentence="What the queries of a head read lies in what its keys ignore, and the other way round.",
    rule="Holds if the median angle from row to null space is below 45 degrees and more than 5 degrees below that of "
    "random spaces; in part if random spaces show the same.",
    command="headspan similarity {model} --head L0H0",
    claims=("S0.6",),
)
def across(at_hand: AtHand) -> Shown:
    """The angle of row and null space is what is left of the angle of the row spaces to 90 degrees."""
    result, model = _similarity(at_hand)
    here = result.dataset().sel(head=HEAD)
    own = float(np.degrees(np.nanmedian(here["angles_RQ_NK"])))
    random = 90 - float(np.degrees(np.nanmedian(here["angles_RQ_RK_null"])))
    number = (
        f"The median angle of {HEAD} between what queries read and what keys ignore is {own:.1f}°; {random:.1f}° for "
        "random spaces of the same dimensions."
    )
    outcome: Outcome = "does not hold" if own >= 45 else "holds" if own < random - SAME else "holds in part"
    name = "Principal angles of one head"
    return Shown(outcome, number, model.source, {name: result.figures[name]})


@EXHIBITS.add(
    "Figure 3",
    sentence="In a map of sampled directions null spaces lie on top of each other and row spaces form clusters.",
    rule="Of the directions of both row spaces, the share whose nearest neighbor in the map is of the same space; the "
    "same for the null spaces. Holds if the first is above 0.8, the second below 0.8, and random spaces differ from it "
    "by more than 0.1 somewhere; in part if random spaces give the same map.",
    command="headspan similarity {model} --head L0H0 --figures DIR",
)
def sampled(at_hand: AtHand) -> Shown:
    """Purity of neighbors in the map, and in that of random spaces."""
    result, model = _similarity(at_hand)
    data = result.dataset()
    own, random = (neighbor_shares(data[name]) for name in ("sample_tsne", "sample_tsne_null"))
    number = (
        f"Nearest neighbors are of the same row space for {percent(own[0])} of directions (random spaces "
        f"{percent(random[0])}), "
        f"and of the same null space for {percent(own[1])} (random spaces {percent(random[1])}; half by guessing)."
    )
    seen = own[0] > 0.8 and own[1] < 0.8
    same = all(abs(a - b) <= CLOSE for a, b in zip(own, random, strict=True))
    outcome: Outcome = "does not hold" if not seen else "holds in part" if same else "holds"
    return Shown(outcome, number, model.source, {"Sampled directions": result.figures["Sampled directions"]})


def neighbor_shares(points: xr.DataArray) -> tuple[float, float]:
    """Share of row-space (and of null-space) directions whose nearest neighbor among them is of the same space."""
    found = []
    for pair in (("R_Q", "R_K"), ("N_Q", "N_K")):
        both = np.concatenate([points.sel(subspace=name).values for name in pair])
        owner = np.repeat([0, 1], len(both) // 2)
        gaps = np.linalg.norm(both[:, None] - both[None], axis=-1)
        np.fill_diagonal(gaps, np.inf)
        found.append(float((owner[gaps.argmin(1)] == owner).mean()))
    return found[0], found[1]


@EXHIBITS.add(
    "Figure 4",
    sentence="Distances between the attention spaces of a layer's heads show how diverse these heads are.",
    rule="Holds if the mean distance differs from that of random spaces by 4 standard deviations in at least half of "
    "the layers; in part if it does in any.",
    command="headspan similarity {model} --figures DIR",
    claims=("S0.8",),
)
def distances(at_hand: AtHand) -> Shown:
    """Diversity of every layer against random spaces."""
    result, model = _similarity(at_hand)
    data = result.dataset()
    z = data["diversity_z"].values
    far = int((np.abs(z) >= FAR).sum())
    first = data.isel(layer=0)
    number = (
        f"Mean Grassmann distance in layer {int(first['layer'])}: {float(first['diversity']):.2f} (random spaces "
        f"{float(first['diversity_null']):.2f}); {far} of {len(z)} layers differ by 4 standard deviations or more, all "
        f"z between {np.nanmin(z):.0f} and {np.nanmax(z):.0f}."
    )
    outcome: Outcome = "holds" if far * 2 >= len(z) else "holds in part" if far else "does not hold"
    names = [name for name in ("Distances within layers", "Map of heads") if name in result.figures]
    return Shown(outcome, number, model.source, {name: result.figures[name] for name in names})


@EXHIBITS.add(
    "Last paragraph",
    sentence="Heads whose attention spaces are close should attend alike; the document leaves the test for later.",
    rule="Holds if Grassmann distance and Jensen-Shannon divergence of attention patterns correlate within layers "
    "(Mantel test, p < 0.05) with a positive sign.",
    command="headspan validate {model}",
)
def behavior(at_hand: AtHand) -> Shown:
    """Geometry against behavior, on the first model that runs."""
    model, result = _validated(at_hand)
    own = result.dataset("distance")
    mean, p = float(own["mean_spearman"]), float(own["mean_spearman_p"])
    clear = int((own["spearman_p"] < 0.05).sum())
    number = (
        f"Rank correlation of distance and divergence {mean:+.2f} within layers (expected 0, Mantel p = {p:.2g}); "
        f"p < 0.05 in {clear} of {own.sizes['layer']} layers."
    )
    drawn = {"Distance against behavior": result.figures["Distance against behavior"]}
    return Shown("holds" if p < 0.05 and mean > 0 else "does not hold", number, model.source, drawn)


@EXHIBITS.add(
    "Question: joining query and key space",
    sentence="A head's query and key space are joined to one by their sum; other ways may tell more about behavior.",
    rule="Rank correlation within layers of the divergence of attention patterns with the Grassmann distance of heads, "
    "by their sums and by the leading directions of W_QK (d_head / 4 on each side). Holds for the sum if it is "
    "significant (Mantel test, p < 0.05) and the larger one; in part if it is significant and the smaller one. "
    "Intersections are empty in general and have no distance. (Written after the numbers of two models were seen.)",
    command="headspan similarity {model} --space qk; headspan validate {model}",
)
def joined_spaces(at_hand: AtHand) -> Shown:
    """Which way of joining predicts behavior better."""
    model, result = _validated(at_hand)
    behaviors = _by_layer(result.dataset("distance")["pattern_divergence"])
    found = {}
    for space in ("sum", "qk"):
        distances = at_hand.result("similarity", model, space=space, maps=False, across_layers=False)
        test = mantel(_by_layer(distances.dataset()["layer_distance"]), behaviors, 999, at_hand.seed)
        found[space] = float(test["mean_spearman"]), float(test["mean_p_value"])
    (whole, p), (leading, p_leading) = found["sum"], found["qk"]
    number = (
        f"Rank correlation with divergence: sum {whole:+.2f} (p = {p:.2g}), leading directions of W_QK {leading:+.2f} "
        f"(p = {p_leading:.2g}); expected 0."
    )
    outcome: Outcome = "does not hold" if p >= 0.05 or whole <= 0 else "holds" if whole >= leading else "holds in part"
    drawn = {"Distance against behavior": result.figures["Distance against behavior"]}
    return Shown(outcome, number, model.source, drawn)


def _validated(at_hand: AtHand) -> tuple[Model, Result]:
    """Distances and patterns of the first model that runs."""
    model = at_hand.first("validate")
    options = {"count": 4, "length": 32, "strong": 1, "random": 1, "permutations": 999}
    result = at_hand.result("validate", model, **options)
    if "distance" not in result:
        raise ArgumentError(str(result.attrs.get("distance_obstacle", "distances cannot be compared")))
    return model, result


def _by_layer(table: xr.DataArray) -> list[np.ndarray]:
    """A table [head, peer] over all layers as one [head, peer] for each."""
    side = table.sizes["peer"]
    return list(table.values.reshape(-1, side, side))
