"""Reading results back: files of this version and of older ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import xarray as xr

from headspan._version import __version__
from headspan.errors import HeadspanError
from headspan.frames import nodes_of
from headspan.input_files import user_path
from headspan.labels import labeled
from headspan.lenses.catalog import lenses
from headspan.lenses.run import reopened
from headspan.result import Lens, Result
from headspan.storage import read_netcdf


def load(path: str | Path) -> Result:
    """A result that `Result.save` wrote as netCDF.

    Files of older versions are read too: their variables get today's names.

    >>> import headspan, tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "ranks.nc"
    >>> headspan.load(headspan.ranks("demo").save(file))["rank_Q"].sizes["head"]
    16
    """
    place = user_path(path)
    if place.suffix != ".nc":
        raise HeadspanError(f"'{place.name}' is not netCDF; load reads files that save wrote with the ending .nc")
    if not place.is_file():
        raise HeadspanError(f"'{place}' is not there")
    tree = read_netcdf(place)
    attrs: dict[str, Any] = {str(name): value for name, value in tree.attrs.items()}
    lens = _lens(attrs, place)
    nodes = nodes_of(tree)
    version = int(str(attrs.get("schema", "/1")).rpartition("/")[2])
    if version > lens.schema.version:
        raise HeadspanError(
            f"'{place.name}' is a {lens.name} result of version {version}; headspan {__version__} reads up to "
            f"{lens.schema.version}: update headspan"
        )
    if version < lens.schema.version:
        nodes, attrs = upgraded(lens, nodes, attrs)
    return reopened(lens, nodes, attrs)


def _lens(attrs: dict[str, Any], place: Path) -> Lens:
    name = str(attrs.get("lens", ""))
    if name not in lenses():
        made_by = attrs.get("headspan_version", "an unknown version")
        raise HeadspanError(
            f"'{place.name}' holds no result that headspan {__version__} knows: its lens is {name!r}, written by "
            f"headspan {made_by}; lenses are {', '.join(lenses())}"
        )
    return lenses()[name]


def upgraded(
    lens: Lens, nodes: dict[str, xr.Dataset], attrs: dict[str, Any]
) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    """Nodes of version 1, which were grids under other names, as this version writes them."""
    older = lens.part("older")
    group = int(attrs.get("n_heads", 1)) // max(int(attrs.get("n_kv_heads", attrs.get("n_heads", 1))), 1)
    grids: dict[str, xr.Dataset] = {}
    for name, dataset in nodes.items():
        changed = _renamed(dataset, lens.schema.renamed)
        today = changed if older is None else older.upgraded(changed)
        # A node may have become several: then they lie below it.
        parts = (
            {f"{name}/{part}".strip("/"): one for part, one in today.items()} if type(today) is dict else {name: today}
        )
        for path, part in parts.items():
            # What lay in a node that is no longer declared lies in the root now.
            place = path if any(fnmatchcase(path, pattern) for pattern in lens.schema.nodes) else ""
            grids[place] = part if place not in grids else grids[place].merge(part, combine_attrs="no_conflicts")
    found = {name: labeled(dataset, group) for name, dataset in grids.items()}
    own = found[""].attrs if "" in found else {}
    return found, {**own, **attrs, "schema": f"headspan.{lens.name}/{lens.schema.version}", "written_as": "version 1"}


def _renamed(dataset: xr.Dataset, renamed: Mapping[str, str]) -> xr.Dataset:
    """The dataset under today's names; a variable whose new name holds an axis becomes one for each of its labels."""
    there = {old: new for old, new in renamed.items() if old in dataset.variables}
    split = {old: re.findall(r"{(\w+)}", new)[0] for old, new in there.items() if "{" in new}
    plain = dataset.drop_vars([*split, *split.values()]).rename(
        {old: new for old, new in there.items() if old not in split}
    )
    for old, dim in split.items():
        for label in dataset[dim].values:
            plain[there[old].format(**{dim: label})] = dataset[old].sel({dim: label}, drop=True)
    return plain
