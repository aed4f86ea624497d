"""Reading a store: a tree of models and lenses, every variable with the dims `model` and `step`."""

from __future__ import annotations

import warnings
from pathlib import Path

import xarray as xr

from headspan.errors import DamagedFile, HeadspanError, StoreError
from headspan.input_files import file_text, read_json
from headspan.labels import indexed
from headspan.lenses.catalog import lenses
from headspan.seal import FOLDER_SEAL, folder_digest
from headspan.sweeps.checkpoints import kept_description
from headspan.sweeps.cluster import TO_READ, require
from headspan.sweeps.groups import Gathering, series_tree
from headspan.sweeps.store import Store
from headspan.sweeps.tasks import plan


def group_origin(place: Path) -> str:
    """Which parts a group was made from; nothing where there is no group."""
    try:
        return str(read_json(place / ".zattrs")["made_from"])
    except (HeadspanError, KeyError):
        return ""


def is_intact(place: Path) -> bool:
    """Whether a group's files are as they were written; one of an older version says nothing of itself."""
    try:
        seal = place / FOLDER_SEAL
        return not seal.exists() or file_text(seal).strip() == folder_digest(place)
    except (OSError, HeadspanError):
        return False


def contents(store: Store) -> dict[tuple[str, str], Gathering]:
    """What is finished in a store, by model and lens."""
    settings, found = store.settings(), {}
    names = [name for name in store.manifest()["lenses"] if name in lenses()]
    for series in store.series():
        known = {step: kept_description(source, settings, store.checkpoints) for step, source in series.sources.items()}
        described = {step: one for step, one in known.items() if one is not None}
        planned = plan(series.model, described, names, settings)
        for lens in names:
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
        `/<model>/<lens>/<node>`, every variable with leading dims `model` and `step`; heads are labels, as in a lens's
        result. Groups that are up to date are read lazily from Zarr; what an interrupted sweep finished after them is
        joined from its parts.
    """
    require(TO_READ)
    store = Store.found(Path(path))
    trees: dict[str, xr.Dataset] = {}
    for (model, lens), gathering in contents(store).items():
        place = store.group(model, lens)
        tree = _intact_group(place) if group_origin(place) == gathering.made_from else None
        tree = series_tree(gathering) if tree is None else tree
        heads_per_kv = int(tree.attrs.get("n_heads", 1)) // max(int(tree.attrs.get("n_kv_heads", 1)), 1)
        for node in tree.subtree:
            dataset = indexed(node.to_dataset(inherit=False), heads_per_kv)
            trees[f"{place.parent.name}/{lens}/{node.path.strip('/')}".rstrip("/")] = dataset
    if not trees:
        raise HeadspanError(_emptiness(store))
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs={"store": str(store.path)}), **trees})


def _emptiness(store: Store) -> str:
    """Why there is nothing to read in a store."""
    if store.older_format is None:
        return f"the store '{store.path}' holds no finished result yet; run the sweep again"
    by = store.manifest().get("headspan_version", "an unknown version")
    return (
        f"the results in the store '{store.path}' are in the older format {store.older_format}, with other names; read "
        f"them with headspan {by}, or run the sweep again: it computes them anew and deletes nothing"
    )


def _intact_group(place: Path) -> xr.DataTree | None:
    """A group as it was written; None, with a warning, where it is damaged: its parts hold the same."""
    reason = "its content is not what its checksum says"
    try:
        if is_intact(place):
            return _group_tree(place)
    except StoreError as problem:
        reason = str(problem)
    warnings.warn(
        f"the group '{place}' is damaged ({reason}); it is joined from the kept results, and the next sweep writes it "
        "again",
        DamagedFile,
        stacklevel=3,
    )
    return None


def _group_tree(place: Path) -> xr.DataTree:
    try:
        return xr.open_datatree(place, engine="zarr", chunks=None, consolidated=True)
    except (OSError, ValueError, KeyError) as problem:
        raise StoreError(
            f"the group '{place}' is damaged ({problem}); delete it and run the sweep again, which gathers it anew"
        ) from problem
