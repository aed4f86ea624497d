"""A group is written piece by piece: the same numbers as in one piece, in memory that does not grow with the series."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from headspan.errors import StoreError
from headspan.sweeps import groups as module
from headspan.sweeps.groups import Gathering, series_tree, write_group
from headspan.sweeps.parts import Part, write_part

LARGE = 100_000
"""Numbers in a variable of a large result: 0.8 MB."""


def result(step: int) -> dict[str, xr.Dataset]:
    """Two nodes with variables of every kind; texts grow longer from step to step."""
    random = np.random.default_rng(step)
    table = random.normal(size=(3, 4))
    table[0] = np.nan
    root = xr.Dataset({"n": step, "word": ("layer", ["x" * (step + 1), "y", "z"])}, attrs={"seed": 0, "at": step})
    deep = xr.Dataset(
        {
            "table": (("layer", "head"), table, {"unit": "rad"}),
            "small": (("layer",), table[:, 0].astype(np.float32)),
            "full": (("layer", "head"), table > 0),
            "count": (("head",), random.integers(0, 9, 4)),
            "nothing": (("layer", "none"), np.zeros((3, 0))),
        },
        coords={"layer": [2, 3, 5], "which": ("head", ["a", "b", "c", "d"])},
    )
    return {"": root.assign_coords(layer=[2, 3, 5]), "deep/node": deep}


def series(folder: Path, n_steps: int) -> Gathering:
    files = {step: [folder / f"{step}.npz"] for step in range(n_steps)}
    for step, (path,) in files.items():
        write_part(path, Part(result(step)))
    return Gathering("m", "lens", files, {step: {"source": f"s{step}"} for step in files})


def opened(place: Path) -> xr.DataTree:
    return xr.open_datatree(place, engine="zarr", chunks=None, consolidated=True).load()


@pytest.mark.parametrize("at_once", [1, 9_000, 10**9], ids=["a step", "some steps", "all steps"])
def test_a_group_is_the_same_in_however_many_pieces_it_is_written(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_CHUNK", 64)
    made_of = series(tmp_path, 7)
    assert 7 * (tmp_path / "0.npz").stat().st_size > 9_000 > 2 * (tmp_path / "0.npz").stat().st_size
    assert write_group(made_of, str(tmp_path / "group"), at_once) == []
    kept, joined = opened(tmp_path / "group"), series_tree(made_of)
    xr.testing.assert_identical(kept, joined)
    for step in range(7):
        for path, node in result(step).items():
            for name, variable in node.variables.items():
                here = kept[path or "/"].to_dataset().variables[str(name)]
                values = here.values[0, step] if "step" in here.dims else here.values
                np.testing.assert_array_equal(values, variable.values)
                assert here.dtype.kind == variable.dtype.kind or here.dtype.kind in "OTU"
                assert here.dtype.itemsize == variable.dtype.itemsize or variable.dtype.kind == "U"


def test_labels_are_axes_of_the_group_and_what_stands_beside_them_has_no_step(tmp_path: Path) -> None:
    files = {}
    for step in range(3):
        labels = {"head": ["L0H0", "L0H1"], "head_layer": ("head", [0, 0]), "place": ("head", [step, 1.0])}
        files[step] = [tmp_path / f"{step}.npz"]
        write_part(files[step][0], Part({"": xr.Dataset({"rank": ("head", [step, 4])}, labels)}))
    made_of = Gathering("m", "lens", files, {step: {"source": f"s{step}"} for step in files})
    write_group(made_of, str(tmp_path / "group"))
    for tree in (opened(tmp_path / "group"), series_tree(made_of)):
        assert list(tree["rank"].sel(model="m", head="L0H0").values) == [0, 1, 2]
        assert tree["head_layer"].dims == ("head",)
        assert tree["place"].dims == ("model", "step", "head")


def test_writing_a_group_again_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    made_of, place, contents = series(tmp_path, 4), tmp_path / "groups", []
    for _ in range(2):
        write_group(made_of, str(place / "group"), 1)
        contents.append({path.relative_to(place): path.read_bytes() for path in place.rglob("*") if path.is_file()})
    assert contents[0] == contents[1]
    assert [path.name for path in place.iterdir()] == ["group"]


def test_texts_of_different_length_are_joined_whole(tmp_path: Path) -> None:
    write_group(series(tmp_path, 5), str(tmp_path / "group"), 1)
    assert list(opened(tmp_path / "group")["word"].values[0, :, 0]) == ["x" * (step + 1) for step in range(5)]


def test_what_is_special_about_a_group_is_told(tmp_path: Path) -> None:
    made_of = series(tmp_path, 2)
    older = {path: node.assign_attrs(headspan_version="0.1") for path, node in result(0).items()}
    newer = {path: node.assign_attrs(headspan_version="0.2") for path, node in result(1).items()}
    newer["deep/node"] = newer["deep/node"].drop_vars("count")
    write_part(tmp_path / "0.npz", Part(older))
    write_part(tmp_path / "1.npz", Part(newer))
    told = write_group(made_of, str(tmp_path / "group"))
    assert told == ["leaves out deep/node/count", "joins results of headspan 0.1 and 0.2"]


def peak(folder: Path, n_steps: int, at_once: int) -> int:
    """Most bytes that are held while a group of large results is written."""
    files = {step: [folder / f"large-{step}.npz"] for step in range(n_steps)}
    for step, (path,) in files.items():
        if not path.exists():
            values = np.random.default_rng(step).normal(size=LARGE)
            write_part(path, Part({"": xr.Dataset({"kernel": ("pair", values), "chance": ("pair", values / 2)})}))
    made_of = Gathering("m", "lens", files, {step: {"source": f"s{step}"} for step in files})
    tracemalloc.start()
    try:
        write_group(made_of, str(folder / "group"), at_once)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_is_that_of_a_step_and_not_of_the_series(tmp_path: Path) -> None:
    a_step = 2 * 8 * LARGE
    peak(tmp_path, 2, 1)  # loads what is loaded once
    few, many = peak(tmp_path, 5, 1), peak(tmp_path, 15, 1)
    # Chunks are compressed in threads: how many steps these hold at once depends on how busy the machine is.
    assert many < few + 2 * a_step
    assert many < 6 * a_step
    # The same measure sees a whole series where the budget allows one.
    assert peak(tmp_path, 15, 10**9) > 15 * a_step


def test_where_the_new_group_cannot_take_its_place_the_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, rename = tmp_path / "group", Path.rename
    write_group(series(tmp_path, 2), str(place))
    before = opened(place)

    def refusing(self: Path, target: Path) -> Path:
        if self.name == ".part-group":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refusing)
    monkeypatch.setattr(module, "QUIET", 1)
    with pytest.raises(StoreError, match="No space left on device; all finished results are kept"):
        write_group(series(tmp_path, 3), str(place))
    xr.testing.assert_identical(opened(place), before)
    assert not list(tmp_path.glob(".part-*"))
