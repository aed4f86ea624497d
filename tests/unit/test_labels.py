"""Heads as labels: grids to labels and back, every spelling of a head, and what is said where one is not there."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from headspan.errors import ArgumentError
from headspan.labels import HeadIndex, gridded, labeled


def grid(layers: list[int], n_heads: int, n_kv_heads: int) -> xr.Dataset:
    """Something of every head, kv head, layer and pair, in a model of this shape."""
    shape, kv = (len(layers), n_heads), (len(layers), n_kv_heads)
    pairs = ("null", "src_layer", "src_head", "dst_layer", "dst_head")
    return xr.Dataset(
        {
            "of_head": (("layer", "head"), np.arange(np.prod(shape)).reshape(shape)),
            "of_kv_head": (("layer", "kv_head"), np.arange(np.prod(kv)).reshape(kv)),
            "curve": (("head", "angle", "layer"), np.arange(3 * np.prod(shape)).reshape(n_heads, 3, len(layers))),
            "of_layer": ("layer", np.arange(len(layers))),
            "of_pair": (pairs, np.arange(2 * np.prod(shape) * np.prod(kv)).reshape(2, *shape, *kv)),
            "number": 3.0,
        },
        coords={"layer": layers, "src_layer": layers, "dst_layer": layers, "null": ["a", "b"]},
        attrs={"src_kv": 0, "dst_kv": int(n_kv_heads < n_heads), "note": "kept"},
    )


shapes = st.tuples(st.integers(1, 4), st.sampled_from([(1, 1), (3, 3), (4, 2), (6, 1)]), st.integers(0, 7))


@given(shapes)
def test_labels_and_grids_are_two_views_of_one_result(shape: tuple[int, tuple[int, int], int]) -> None:
    n_layers, (n_heads, n_kv_heads), first = shape
    before = grid(list(range(first, first + n_layers)), n_heads, n_kv_heads)
    after = gridded(labeled(before, n_heads // n_kv_heads))
    after = after.drop_vars([name for name in after.coords if name not in before.coords])
    xr.testing.assert_identical(after.transpose(*before.dims), before.transpose(*before.dims))


@pytest.fixture
def result() -> xr.Dataset:
    return labeled(grid([4, 5], 4, 2), group=2)


@pytest.mark.parametrize("spelled", ["L5H1", "l5h1", "5.1", (5, 1), " L5H1 "])
def test_a_head_has_several_spellings(result: xr.Dataset, spelled: object) -> None:
    assert int(result["of_head"].sel(head=spelled)) == 5


def test_several_heads_are_chosen_at_once(result: xr.Dataset) -> None:
    assert result["of_head"].sel(head=["L4H0", "5.3"]).values.tolist() == [0, 7]
    assert result["of_pair"].sel(src="L4H1", dst=["L5K0"], null="b").values.shape == (1,)


def test_beside_a_label_stand_the_numbers_of_layer_and_head(result: xr.Dataset) -> None:
    here = result.sel(head="L5H3", kv_head="L5K1", src="L4H0", dst="L5K1")
    assert [int(here[f"{dim}_layer"]) for dim in ("head", "kv_head", "src", "dst")] == [5, 5, 4, 5]
    assert [int(here[f"{dim}_index"]) for dim in ("head", "kv_head", "src", "dst")] == [3, 1, 0, 1]
    assert result["of_layer"].dims == ("layer",)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"dst": "L5H3"}, "dst='L5H3': this axis has kv heads, and L5H3 reads L5K1; write dst='L5K1'"),
        ({"kv_head": "5.0"}, "L5H0 reads L5K0"),
        ({"head": "L9H0"}, "head='L9H0' is not on this axis, which has L4H0 to L5H3"),
        ({"src": "L4K0"}, "src='L4K0' is not on this axis"),
        ({"head": "nonsense"}, "is not a head; write it like L4H7"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(result: xr.Dataset, choice: dict[str, str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        result.sel(choice)


def test_labels_survive_arithmetic_selection_and_copies(result: xr.Dataset) -> None:
    for one in (result + result, result.isel(head=[0, 1]), pickle.loads(pickle.dumps(result)), result.copy(deep=True)):
        assert isinstance(one.xindexes["head"], HeadIndex)
        assert one["of_head"].sel(head="4.1").size == 1


def test_a_part_of_the_heads_is_no_grid(result: xr.Dataset) -> None:
    with pytest.raises(ArgumentError, match="the axis 'head' is not a whole grid"):
        gridded(result.isel(head=[0, 1, 2, 5, 6, 7]))
