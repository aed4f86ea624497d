"""Archives: what goes in comes out, the same bytes for the same result, and no code; netCDF of older versions."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import headspan
from headspan import storage
from headspan.errors import HeadspanError
from headspan.frames import nodes_of
from headspan.storage import json_text, read_archive, without_nan, write_archive


def written(nodes: dict[str, xr.Dataset], **header: object) -> bytes:
    file = io.BytesIO()
    write_archive(file, nodes, **header)
    return file.getvalue()


def test_a_result_comes_out_as_it_went_in(tmp_path: Path) -> None:
    nodes = nodes_of(headspan.affinity("demo", pairings="OK", draws=5).data)
    write_archive(tmp_path / "a.npz", nodes, note="kept")
    again, header = read_archive(tmp_path / "a.npz")
    assert header == {"note": "kept"}
    assert set(again) == set(nodes)
    for name, node in nodes.items():
        for key, variable in node.variables.items():
            found = again[name].variables[key]
            assert (found.dims, found.attrs) == (variable.dims, variable.attrs)
            np.testing.assert_array_equal(found.values.astype(variable.dtype), variable.values)


def test_the_same_result_is_the_same_bytes() -> None:
    node = xr.Dataset({"a": ("x", np.arange(4.0))}, coords={"x": list("abcd")}, attrs={"n": np.int64(3)})
    assert written({"": node}) == written({"": node.copy(deep=True)})


def test_a_netcdf_file_that_h5netcdf_wrote_is_read() -> None:
    """Up to version 0.1 netCDF files were written by h5netcdf; one of them, of a synthetic model, is kept here."""
    old = headspan.load(Path(__file__).parent / "ranks_by_h5netcdf.nc")
    now = headspan.ranks("synthetic:tiny")
    assert list(old.data.variables) == list(now.data.variables)
    for name, variable in now.data.variables.items():
        assert (old.data[name].dims, old.data[name].attrs) == (variable.dims, variable.attrs)
        np.testing.assert_array_equal(old.data[name].values.astype(variable.dtype), variable.values)


def test_several_threads_may_write_and_read_netcdf_at_once(tmp_path: Path) -> None:
    result = headspan.ranks("synthetic:tiny")
    with ThreadPoolExecutor(4) as pool:
        saved = list(pool.map(lambda n: result.save(tmp_path / f"{n}.nc"), range(12)))
        again = list(pool.map(headspan.load, saved))
    assert all(one.data.identical(again[0].data) for one in again)


def test_objects_are_refused() -> None:
    with pytest.raises(HeadspanError, match="the variable '/a' holds Python objects"):
        written({"": xr.Dataset({"a": ("x", np.array([object()], dtype=object))})})
    with pytest.raises(HeadspanError, match="an attribute holds a object"):
        written({"": xr.Dataset(attrs={"a": object()})})


def test_json_has_null_for_what_is_no_number() -> None:
    assert without_nan({"a": [np.float64("nan"), np.int64(2)], "b": (float("inf"),)}) == {"a": [None, 2], "b": [None]}
    assert '"a": null' in json_text({"a": float("nan")})


def test_a_flipped_bit_in_a_netcdf_file_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    path = headspan.ranks("demo").save(tmp_path / "ranks.nc")
    content = path.read_bytes()
    for place in range(7, len(content) - 81, len(content) // 40):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(HeadspanError, match="its content is not what its checksum says"):
            headspan.load(path)


def test_netcdf_files_of_any_size_carry_a_checksum_that_other_programs_pass_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = headspan.ranks("demo")
    monkeypatch.setattr(storage, "IN_MEMORY", 0)
    large = result.save(tmp_path / "large.nc")
    monkeypatch.undo()
    small = result.save(tmp_path / "small.nc")
    for path in (large, small):
        assert path.read_bytes()[-81:].startswith(b"headspan sha256 ")
        with xr.open_datatree(path) as found:
            assert set(found.children) == set(result.data.children)
        xr.testing.assert_identical(headspan.load(path).data, result.data)


def test_a_netcdf_file_without_a_checksum_is_read(tmp_path: Path) -> None:
    path = headspan.ranks("demo").save(tmp_path / "ranks.nc")
    content = path.read_bytes()
    path.write_bytes(content[:-3])  # of which a part is left
    with pytest.raises(HeadspanError, match="checksum"):
        headspan.load(path)
    path.write_bytes(content[:-81])
    xr.testing.assert_identical(headspan.load(path).data, headspan.ranks("demo").data)
