"""`headspan similarity`: heads compared as subspaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headspan.command import Command, Option, Rows
from headspan.lenses.similarity.schema import DISTANCES

if TYPE_CHECKING:
    import xarray as xr

    from headspan.result import Result

SHOWN = 10
CLASS = 10
"""Degrees in a class of angles, as printed."""
COLUMNS = {
    "head": ("head", "{}"),
    "projection_kernel": ("kernel", "{:.2f}"),
    "projection_kernel_null": ("expected", "{:.2f}"),
    "projection_kernel_z": ("z", "{:+.1f}"),
    "projection_kernel_p": ("p", "{:.0e}"),
    "grassmann": ("Grassmann", "{:.2f}"),
    "grassmann_null": ("expected", "{:.2f}"),
    "smallest_angle": ("angles", "{:.1f}°"),
    "largest_angle": ("to", "{:.1f}°"),
}
PAIR_COLUMNS = {
    "closest_src": ("src", "{}"),
    "closest_dst": ("dst", "{}"),
    "closest_distance": ("distance", "{:.2f}"),
    "closest_distance_null": ("expected", "{:.2f}"),
    "closest_distance_z": ("z", "{:+.1f}"),
}

COMMAND = Command(
    "Compare heads as subspaces: query space against key space, head against head.",
    options={
        "space": Option("The space of a head: sum (query and key space together), intersection, or qk."),
        "distance": Option(
            f"Distance of two spaces: {', '.join(DISTANCES[:-1])} or {DISTANCES[-1]}.", names=("--distance", "--metric")
        ),
        "across_layers": Option(
            "Compare heads of different layers too, or not; by default up to 400 heads.",
            bool,
            names=("--across-layers/--within-layers",),
        ),
        "angle_tolerance": Option("For intersection: the largest angle in radians that counts as common.", float),
        "qk_rank": Option("For qk: how many singular vectors of each side; by default d_head / 4.", int),
        "head": Option("One head by itself, such as L4H7: its angles, and its spaces in the map.", str),
        "samples": Option("How many directions of each space are sampled for the map."),
        "maps": Option("Make maps of heads and directions, for figures and .nc files.", names=("--maps/--no-maps",)),
    },
)


def prepare(options: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Maps take seconds, and of all outputs only netCDF and figures hold them."""
    output = given["output"]
    wanted = given["figures"] is not None or (output is not None and output.suffix == ".nc")
    return {**options, "maps": options["maps"] and wanted}


def show(result: Result) -> Iterator[Rows | str]:
    """One head where it was asked for; the heads furthest from the null; the pairs of heads that are closest."""
    heads = result.table("heads")
    if "chosen_angle_count" in result:
        yield from _chosen(result)
    defined = heads[heads["projection_kernel_z"].notna()]
    order = defined["projection_kernel_z"].abs().sort_values(ascending=False, kind="stable").index[:SHOWN]
    title = f"Query and key spaces furthest from the null, {len(order)} of {len(heads)} heads"
    yield Rows.of_columns(title, COLUMNS, defined.loc[order].to_dict("records"))
    if len(defined) < len(heads):
        yield f"{len(heads) - len(defined)} heads have no z-score: no query or key space, or nothing that can vary."
    pairs = result.table("closest_pairs")
    yield Rows.of_columns("Closest attention spaces", PAIR_COLUMNS, pairs.head(SHOWN).to_dict("records"))


def _chosen(result: Result) -> Iterator[Rows | str]:
    """One head: its four families of angles beside those of random spaces, in classes of 10 degrees."""
    label, data = result.attrs["sample_head"], result.dataset()
    rows = []
    for name in data["combination"].values:
        here = data.sel(combination=name)
        pairs = zip(_classes(here["chosen_angle_count"]), _classes(here["chosen_angle_count_null"]), strict=True)
        rows.append([str(name).replace("_", " and "), f"{float(here['chosen_forced_zeros']):g}", *map(_beside, pairs)])
    columns = ["spaces", "0° by dimension", *(f"{low} to {low + CLASS}°" for low in range(0, 90, CLASS))]
    yield Rows(f"Principal angles of {label}, random spaces of the same dimensions in brackets", columns, rows)


def _classes(counts: xr.DataArray) -> list[float]:
    """Angles per class of 10 degrees; a bin belongs where its middle lies."""
    return [float(counts.sel(bin=slice(low, low + CLASS)).sum()) for low in range(0, 90, CLASS)]


def _beside(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.0f} ({pair[1]:.1f})"
