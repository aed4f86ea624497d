"""A part is there whole or not at all, the same bytes for the same result, and comes back as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import headspan
from headspan.errors import HeadspanError, StoreError
from headspan.lenses.catalog import lens as lens_of
from headspan.lenses.run import run
from headspan.sweeps.checkpoints import blocks
from headspan.sweeps.groups import Gathering, series_tree
from headspan.sweeps.parts import Part, is_finished, part_nodes, read_part, write_part


def small(shift: float = 0.0) -> xr.Dataset:
    values = np.array([[1.0, np.nan, np.inf]]) + shift
    names = np.array(["a", "bc", "d"], dtype=object)
    return xr.Dataset(
        {"x": (("layer", "head"), values, {"unit": "rad"}), "n": 3, "name": ("head", names)},
        coords={"layer": [4], "which": ("head", [True, False, True])},
        attrs={"model": "here", "revision": "r", "seed": np.int64(2), "note": float("nan"), "parts": ["p", "q"]},
    )


def nodes(dataset: xr.Dataset) -> dict[str, xr.Dataset]:
    return part_nodes(xr.DataTree(dataset))


def test_a_part_comes_back_as_it_was_without_the_name_of_its_source(tmp_path: Path) -> None:
    tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs={"model": "m", "k": 1}), "deep/node": small()})
    write_part(tmp_path / "part.npz", Part(part_nodes(tree), warnings=["careful"]))
    part = read_part(tmp_path / "part.npz")
    assert (part.left_out, list(part.warnings)) == ("", ["careful"])
    assert part.nodes[""].attrs == {"k": 1}
    kept, given = part.nodes["deep/node"], small().drop_attrs(deep=False)
    assert kept.attrs.pop("note") != 0
    assert kept.attrs == {"seed": 2, "parts": ["p", "q"]}
    xr.testing.assert_identical(kept.drop_attrs(deep=False), given)


def test_the_same_result_makes_the_same_bytes_wherever_the_weights_lie(tmp_path: Path) -> None:
    write_part(tmp_path / "a.npz", Part(nodes(small())))
    write_part(tmp_path / "b.npz", Part(nodes(small().assign_attrs(model="elsewhere", revision="other"))))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize("cut", [0, 1, 50, -1])
def test_a_part_that_lost_bytes_is_not_finished(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "part.npz"
    write_part(path, Part(nodes(small())))
    assert is_finished(path)
    path.write_bytes(path.read_bytes()[:cut])
    assert not is_finished(path)
    with pytest.raises(StoreError, match=r"part.npz' is damaged .*run the sweep again"):
        read_part(path)
    assert not is_finished(tmp_path / "none.npz")


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "part.npz"
    write_part(path, Part(nodes(small())))
    before = path.read_bytes()

    def full(*arguments: object, **arrays: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(StoreError, match=r"cannot write '.*part.npz': No space left on device"):
        write_part(path, Part(nodes(small(1.0))))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_kept_is_refused_by_name(tmp_path: Path) -> None:
    objects = xr.Dataset({"thing": ("x", np.array([object()], dtype=object))})
    with pytest.raises(HeadspanError, match=r"the variable '/thing' holds Python objects"):
        write_part(tmp_path / "part.npz", Part({"": objects}))
    with pytest.raises(HeadspanError, match=r"an attribute holds a set"):
        write_part(tmp_path / "part.npz", Part({"": xr.Dataset(attrs={"a": {1}})}))


def gathering(tmp_path: Path, *parts: Part) -> Gathering:
    files = {}
    for step, part in enumerate(parts):
        files[step] = [tmp_path / f"{step}.npz"]
        write_part(files[step][0], part)
    return Gathering("m", "lens", files, {step: {"source": f"s{step}"} for step in files})


def test_steps_are_joined_along_two_leading_axes(tmp_path: Path) -> None:
    joined = series_tree(gathering(tmp_path, Part(nodes(small())), Part(nodes(small(1.0)))))
    assert joined["x"].dims == ("model", "step", "layer", "head")
    assert joined["n"].dims == ("model", "step")
    np.testing.assert_array_equal(joined["x"].sel(model="m", step=1), small(1.0)["x"])
    assert list(joined["source"].sel(model="m").values) == ["s0", "s1"]


def test_steps_whose_axes_differ_are_not_joined(tmp_path: Path) -> None:
    other = small().assign_coords(layer=[5])
    with pytest.raises(StoreError, match=r"steps 0 and 1 cannot be joined: '/layer' differs"):
        series_tree(gathering(tmp_path, Part(nodes(small())), Part(nodes(other))))


def test_a_variable_of_another_shape_is_left_out_and_named(tmp_path: Path) -> None:
    other = small().drop_vars("n").assign(extra=1.0)
    joined = series_tree(gathering(tmp_path, Part(nodes(small())), Part(nodes(other))))
    assert joined.attrs["left_out_variables"] == "extra, n"
    assert "x" in joined


def test_a_step_at_which_the_lens_had_nothing_to_say_is_left_out_with_its_reason(tmp_path: Path) -> None:
    joined = series_tree(gathering(tmp_path, Part(left_out="a zero head"), Part(nodes(small()))))
    assert list(joined["step"].values) == [1]
    assert joined.attrs["left_out"] == "step 0: a zero head"


@pytest.mark.parametrize("lens", ["affinity", "spectra"])
def test_blocks_together_give_what_the_lens_gives_at_once(lens: str, tmp_path: Path) -> None:
    # To rounding: pairings computed together are parts of larger matrix products.
    heads = headspan.open("demo").heads()
    assert list(blocks(lens_of(lens), heads)) == ["all"]
    assert list(blocks(lens_of("ranks"), heads, above=0)) == ["all"]
    divided = blocks(lens_of(lens), heads, above=0)
    assert len(divided) >= 3
    files = []
    for block, options in divided.items():
        files.append(tmp_path / f"{block}.npz")
        write_part(files[-1], Part(part_nodes(run(lens_of(lens), [heads], options, {}).data)))
    united = series_tree(Gathering("m", lens, {0: files}, {0: {}}))
    whole = run(lens_of(lens), [heads], {}, {})
    for name, node in whole.data.children.items():
        kept = united[name].to_dataset().sel(model="m", step=0).drop_vars(["model", "step"])
        xr.testing.assert_allclose(kept, node.to_dataset(), rtol=1e-9, atol=1e-12)
        assert set(kept.variables) == set(node.to_dataset().variables)
        assert all(variable.attrs["long_name"] for variable in kept.data_vars.values())


def test_what_blocks_do_not_agree_on_is_left_out(tmp_path: Path) -> None:
    first, second, third = (xr.Dataset({"n": 2, "mean": value}, {"head": ["L0H0"]}) for value in (1.0, 2.0, 1.0))
    files = []
    for block, root in enumerate((first, second, third)):
        files.append(tmp_path / f"{block}.npz")
        write_part(files[-1], Part({"": root, f"block-{block}": root}))
    joined = series_tree(Gathering("m", "lens", {0: files}, {0: {}}))
    assert set(joined.data_vars) == {"n"}
    assert [float(joined[f"block-{block}"]["mean"].item()) for block in range(3)] == [1.0, 2.0, 1.0]
