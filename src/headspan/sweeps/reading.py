"""Reading a store: a tree of models and lenses, every variable with the dims `model` and `step`."""

from __future__ import annotations

import json
from pathlib import Path

import xarray as xr

from headspan.errors import HeadspanError, StoreError
from headspan.sweeps.description import description_file, kept_description
from headspan.sweeps.gathering import Gathering, gathered
from headspan.sweeps.planning import plan
from headspan.sweeps.requirements import TO_READ, require
from headspan.sweeps.store import Store


def made_from(place: Path) -> str:
    """Which parts a group was made from; nothing where there is no group."""
    try:
        return str(json.loads((place / ".zattrs").read_text(encoding="utf-8"))["made_from"])
    except (OSError, ValueError, KeyError):
        return ""


def contents(store: Store) -> dict[tuple[str, str], Gathering]:
    """What is finished in a store, by model and lens."""
    manifest = store.manifest()
    settings, found = store.settings(), {}
    for series in store.series():
        known = {
            step: kept_description(description_file(store.checkpoints, source, settings))
            for step, source in series.sources.items()
        }
        described = {step: one for step, one in known.items() if one is not None}
        planned = plan(series.model, described, manifest["lenses"], settings)
        for lens in manifest["lenses"]:
            gathering = planned.gathering(lens, store.parts)
            if gathering.parts:
                found[series.model, lens] = gathering
    return found


def open_store(path: str | Path) -> xr.DataTree:
    """Everything finished in a sweep's store.

    Parameters
    ----------
    path
        The store, of a sweep that is finished, interrupted or under way.

    Returns
    -------
    DataTree
        `/<model>/<lens>/<node>`, every variable with leading dims `model` and `step`. Groups that are up to date are
        read lazily from Zarr; what an interrupted sweep finished after them is joined from its parts.
    """
    require(TO_READ)
    store = Store.found(Path(path))
    trees: dict[str, xr.Dataset] = {}
    for (model, lens), gathering in contents(store).items():
        place = store.group(model, lens)
        current = made_from(place) == gathering.made_from
        tree = _opened(place) if current else gathered(gathering)
        for node in tree.subtree:
            trees[f"{place.parent.name}/{lens}/{node.path.strip('/')}".rstrip("/")] = node.to_dataset(inherit=False)
    if not trees:
        raise HeadspanError(f"the store '{path}' holds no finished result yet; run the sweep again")
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs={"store": str(store.path)}), **trees})


def _opened(place: Path) -> xr.DataTree:
    try:
        return xr.open_datatree(place, engine="zarr", chunks=None, consolidated=True)
    except (OSError, ValueError, KeyError) as problem:
        raise StoreError(
            f"the group '{place}' is damaged ({problem}); delete it and run the sweep again, which gathers it anew"
        ) from problem
