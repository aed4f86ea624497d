"""The data of a page: the store, tables, methods, and links between findings and figures."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import headspan
from headspan.explorer.html import linked_text
from headspan.explorer.methods import formula, methods
from headspan.explorer.page_tables import PageTable, grid_rows, pair_table, table_record
from headspan.explorer.reports import Settings, skip_reasons
from headspan.explorer.store import Store
from headspan.labels import labeled
from headspan.lenses.catalog import lenses
from tests.browser.page_elements import page_elements


def blocks(store: Store) -> dict[str, tuple[str, bytes]]:
    """What a browser makes of the archive on a page: dtype and bytes by id."""
    index, packed = page_elements("".join(map(str, store.blocks("core"))))
    whole, found, at = gzip.decompress(base64.b64decode(packed.text)), {}, 0
    for name, dtype, length in json.loads(index.text):
        found[name], at = (dtype, whole[at : at + length]), at + length
    return found


def read(store: Store, reference: dict[str, str]) -> np.ndarray:
    """What a browser makes of a reference."""
    dtype, content = blocks(store)[reference["@"]]
    rows = np.frombuffer(content, np.uint8).reshape(int(dtype[1]), -1).T
    flat = np.frombuffer(rows.tobytes(), dtype=f"<{dtype}")
    return flat.reshape([int(size) for size in reference["shape"].split(",")]) if "shape" in reference else flat


@pytest.mark.parametrize(
    "values",
    [
        np.array([1.5, np.nan, -np.inf]),
        np.array([[1, 2], [3, 300]]),
        np.array([-1, 70_000], dtype=np.int64),
        np.array([True, False]),
        np.arange(6, dtype=">f8").reshape(1, 2, 3),
        np.array([], dtype=np.float32),
        np.array([2**40, 1]),
    ],
)
def test_an_array_comes_out_as_it_went_in(values: np.ndarray) -> None:
    store = Store()
    assert np.array_equal(read(store, store.array(values)), values, equal_nan=values.dtype.kind == "f")


def test_the_same_numbers_are_kept_once() -> None:
    store = Store()
    first, second = store.array(np.arange(5.0)), store.array(np.arange(5.0))
    assert first == second
    assert len(store) == 1
    assert store.array(np.arange(5)) != first


def test_text_in_the_store_cannot_leave_its_block() -> None:
    store = Store()
    store.value(["</script><script>alert(1)</script>"] * 9)
    assert [found.tag for found in page_elements("".join(map(str, store.blocks("core"))))] == ["script", "script"]


def test_what_is_there_first_is_not_kept_again() -> None:
    first = Store()
    later = Store(first)
    assert first.array(np.arange(3.0)) == later.array(np.arange(3.0))
    assert (len(first), len(later)) == (1, 0)
    assert later.blocks("figures") == []


def test_long_lists_and_arrays_of_a_figure_become_references() -> None:
    store, text = Store(), ["L0H0"] * 200
    figure = store.figure({"data": [{"x": {"dtype": "f8", "bdata": "AAAA"}, "text": text, "mode": "lines"}] * 2})
    assert set(figure["data"][0]["x"]) == set(figure["data"][0]["text"]) == {"@"}
    assert figure["data"][0]["mode"] == "lines"
    assert len(store) == 2


def test_a_column_that_repeats_itself_loses_nothing() -> None:
    values = np.repeat([0.1, np.nan, 2 / 3], 400)
    frame = pd.DataFrame(
        {"p": values, "label": ["L0H0", None, 'a"b'] * 400, "n": pd.array([1, None, 3] * 400, "Int64")}
    )
    store = Store()
    p, label, n = table_record(PageTable("t", "T", frame), store)["columns"]
    assert np.array_equal(read(store, p["values"])[read(store, p["codes"])], values, equal_nan=True)
    assert read(store, p["codes"]).dtype == np.uint8 or read(store, p["codes"]).dtype == np.int8
    assert blocks(store)[label["values"]["@"]][1].decode() == '["L0H0",null,"a\\"b"]'
    whole = read(store, n["values"])[read(store, n["codes"])]
    assert np.array_equal(whole, [1, np.nan, 3] * 400, equal_nan=True)


def test_a_grid_becomes_rows_with_labels() -> None:
    grid = xr.Dataset(
        {"a": (("layer", "kv_head"), [[1.0, 2.0]]), "null": 0.5, "b": (("layer", "kv_head"), [[7, 8]])},
        coords={"layer": [3]},
    )
    table = grid_rows(labeled(grid, group=2), ["a", "null", "b"])
    assert table.to_dict("list") == {
        "kv_head": ["L3K0", "L3K1"],
        "kv_head_layer": [3, 3],
        "kv_head_index": [0, 1],
        "a": [1.0, 2.0],
        "null": [0.5, 0.5],
        "b": [7, 8],
    }
    assert list(grid_rows(labeled(grid), ["a"])["kv_head"]) == ["L3H0", "L3H1"]


def test_axes_in_another_order_keep_their_numbers() -> None:
    dataset = xr.Dataset({"a": (("x", "y"), [[1, 2], [3, 4]]), "b": (("y", "x"), [[1, 3], [2, 4]])})
    table = grid_rows(dataset, ["a", "b"])
    assert list(table["a"]) == list(table["b"]) == [1, 2, 3, 4]


def test_pairs_are_those_of_the_result() -> None:
    result = headspan.affinity("demo")
    table = pair_table(result)
    row = table[(table["pairing"] == "OK") & (table["src"] == "L0H3") & (table["dst"] == "L1H6")].iloc[0]
    here = result.dataset("OK").sel(src="L0H3", dst="L1H6")
    assert row["projection_kernel"] == float(here["projection_kernel"])
    assert row["composition_score_q_reverse"] == float(here["composition_score_q"].sel(null="reverse"))
    strongest = pair_table(result, most=30)
    assert strongest.groupby("pairing").size().to_dict() == {"OK": 10, "OQ": 10, "OV": 10}
    assert strongest["projection_kernel"].max() == table["projection_kernel"].max()
    assert strongest["composition_score"].max() == table["composition_score"].max()


def test_heads_in_a_sentence_become_links_and_nothing_else_does() -> None:
    found = page_elements(str(linked_text("L0H3 and L1K2, not XL1H2 or L1H; <b>")))
    assert [(each.tag, each.text, each.attributes["href"]) for each in found] == [
        ("a", "L0H3 and ", "#head=L0H3"),
        ("a", "L1K2, not XL1H2 or L1H; <b>", "#head=L1K2"),
    ]


def test_every_lens_of_a_report_has_a_chapter_and_a_method() -> None:
    shown = [lenses()[name] for name in skip_reasons(headspan.open("demo"), Settings())]
    assert all(lens.chapter != "Further analyses" for lens in shown)
    assert all(list(methods(lens)) for lens in shown)


def test_every_formula_is_well_formed() -> None:
    for lens in lenses().values():
        for method in methods(lens):
            if method.formula:
                ElementTree.fromstring(str(formula(method.formula)))


def test_a_formula_binds_its_scripts_and_fractions() -> None:
    inner = "<mfrac><mi>p</mi><mrow><msubsup><mi>d</mi><mi>i</mi><mn>2</mn></msubsup><mo>&lt;</mo></mrow></mfrac>"
    assert str(formula("frac p {d_i^2 <}")) == f'<math display="block"><mrow>{inner}</mrow></math>'


def test_figures_that_findings_name_are_drawn() -> None:
    source = Path(headspan.__file__).parent / "lenses"
    for name in lenses():
        said, drawn = source / name / "findings.py", [*(source / name).glob("*figure*.py")]
        named = set(re.findall(r'figure="([^"]+)"', said.read_text())) if said.is_file() else set()
        text = "".join(path.read_text() for path in drawn)
        assert all(f'"{figure}"' in text for figure in named)
