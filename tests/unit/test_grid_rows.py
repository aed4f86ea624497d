"""Tables made from whole arrays say of every head what selecting that head says, also for 32 layers of 32 heads."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from headspan.dims import head_axis
from headspan.lenses import positions
from headspan.lenses.grid_rows import grid_rows

COORDS = {
    "layer": list(range(32)),
    "head": list(range(32)),
    "kv_head": list(range(8)),
    "matrix": ["Q", "K", "V", "O", "in", "out"],
    "table": ["P", "E"],
}
PLACES = [(0, 0), (0, 31), (1, 0), (17, 5), (31, 31)]


def grid(**variables: tuple[str, ...]) -> xr.Dataset:
    """Random numbers over the dims that each variable names."""
    draw = np.random.default_rng(0)
    dims = {dim for over in variables.values() for dim in over}
    data = {name: (over, draw.standard_normal([len(COORDS[dim]) for dim in over])) for name, over in variables.items()}
    return xr.Dataset(data, coords={dim: COORDS[dim] for dim in dims})


def row(table: pd.DataFrame, /, **where: object) -> pd.Series:
    """The only row with these values."""
    found = table[np.logical_and.reduce([table[name] == value for name, value in where.items()])]
    assert len(found) == 1
    return found.iloc[0]


def test_rows_are_in_the_order_of_nested_loops() -> None:
    values = grid(score=("head", "layer"))
    rows = grid_rows(values, ["score"], ("layer", "head"))
    by_hand = [
        (layer, head, float(values["score"].sel(layer=layer, head=head))) for layer in range(32) for head in range(32)
    ]
    assert list(rows.itertuples(index=False, name=None)) == by_hand


def test_a_variable_repeats_along_a_dim_that_it_lacks() -> None:
    values = grid(score=("layer", "matrix"), chance=("matrix",), bound=())
    rows = grid_rows(values, ["score", "chance", "bound"], ("layer", "matrix"))
    assert rows["chance"].tolist() == values["chance"].values.tolist() * 32
    assert rows["bound"].tolist() == [float(values["bound"])] * 32 * 6


def test_a_variable_with_a_further_dim_has_no_row() -> None:
    with pytest.raises(ValueError, match="head"):
        grid_rows(grid(score=("layer", "head")), ["score"], ("layer",))


def test_single_precision_and_whole_numbers_become_what_python_calls_them() -> None:
    values = grid(score=("layer",)).astype("float32").assign(rank=("layer", np.arange(32)))
    rows = grid_rows(values, ["score", "rank"], ("layer",))
    assert [dtype.name for dtype in rows.dtypes] == ["int64", "float64", "int64"]
    assert rows["score"].tolist() == [float(value) for value in values["score"]]


@pytest.fixture(scope="module")
def aligned() -> xr.Dataset:
    """What the positions lens says of alignments, with eight kv heads to 32 heads."""
    over = dict.fromkeys(("alignment", "energy_alignment"), ("layer", "matrix", "table"))
    over |= {f"head_alignment_{role}": ("layer", head_axis(role), "table") for role in "QKVO"}
    values = grid(**{name + part: dims for name, dims in over.items() for part in ("", "_chance", "_z", "_log_p")})
    return values.map(lambda each: -abs(each) if str(each.name).endswith("_log_p") else each)


def test_positions_of_1024_heads_are_those_of_each_head(aligned: xr.Dataset) -> None:
    table = positions.table(aligned)
    assert len(table) == 32 * 2 * (6 + 32 + 8 + 8 + 32)
    for layer, head in PLACES:
        for role, label, place in [("O", f"L{layer}H{head}", head), ("K", f"L{layer}K{head % 8}", head % 8)]:
            here = aligned.sel({"layer": layer, head_axis(role): place, "table": "E"})
            found = row(table, layer=layer, matrix=role, head=label, table="E")
            for part in ("", "_chance", "_z"):
                assert found[f"alignment{part}"] == float(here[f"head_alignment_{role}{part}"])
            assert found["alignment_p_value"] == math.exp(here[f"head_alignment_{role}_log_p"])
            assert math.isnan(found["energy_alignment"])


def test_positions_of_whole_matrices_are_those_of_each_matrix(aligned: xr.Dataset) -> None:
    table = positions.table(aligned)
    for layer, place in PLACES:
        matrix = COORDS["matrix"][place % 6]
        here = aligned.sel(layer=layer, matrix=matrix, table="P")
        found = row(table, layer=layer, matrix=matrix, head="all", table="P")
        for name in ("alignment", "energy_alignment"):
            assert [found[name + part] for part in ("", "_chance", "_z")] == [
                float(here[name + part]) for part in ("", "_chance", "_z")
            ]
            assert found[f"{name}_p_value"] == math.exp(here[f"{name}_log_p"])
