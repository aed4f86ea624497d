"""Two checkpoints side by side: edges, spectra, findings, figures, the page and the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from headspan.figures import figures_of
from headspan.findings import findings_of
from headspan.lenses.affinity.edges import edges
from typer.testing import CliRunner

import headspan
from headspan.cli.main import app
from headspan.errors import ShapeError
from headspan.explorer.compare_page import compare_page
from headspan.lenses import affinity, compare
from headspan.lenses.compare.tables import turnover
from tests.unit.test_drift import HEADS, WIDTH, D, gpt2, noise, noisy

DRAWS = 8


def wide(change: Callable | None = None, **settings) -> headspan.Heads:
    return gpt2(change, **{"n_embd": 48, "n_head": 4, "n_layer": 3, **settings})


def planted(attention: list) -> None:
    """Noise everywhere, and the keys of L2H1 turned towards what L0H3 writes."""
    noisy(attention)
    written = torch.linalg.qr(attention[0].c_proj.weight[3 * 12 :].mT).Q
    fused = attention[2].c_attn.weight
    fused[:, 48 + 12 : 48 + 24] += 3 * fused.std() * written @ noise((12, 12))


@pytest.fixture(scope="module")
def pair() -> tuple[headspan.Heads, headspan.Heads]:
    return wide(), wide(planted)


@pytest.fixture(scope="module")
def result(pair: tuple[headspan.Heads, headspan.Heads]) -> xr.DataTree:
    return compare.compute(*pair, draws=DRAWS)


@pytest.fixture(scope="module")
def same() -> xr.DataTree:
    return compare.compute(wide(), wide(), draws=DRAWS)


def test_kernels_are_those_of_the_affinity_lens(
    pair: tuple[headspan.Heads, headspan.Heads], result: xr.DataTree
) -> None:
    for heads, name in zip(pair, ("kernel_before", "kernel_after"), strict=True):
        alone = affinity.compute(heads, metrics=("pk",))
        for pairing in ("OQ", "OK", "OV"):
            np.testing.assert_array_equal(
                result[f"wiring/{pairing}"][name], alone[pairing]["projection_kernel"], strict=False
            )


def test_the_planted_edge_is_gained_and_no_random_change_explains_it(result: xr.DataTree) -> None:
    first = compare.edge_changes(result, "OK", "gained").iloc[0]
    assert (first["src"], first["dst"]) == ("L0H3", "L2H1")
    assert first["change_z"] > 5
    assert first["q_value"] < 0.01
    assert turnover(result, "OK")["beyond_null"] >= 1


def test_changes_of_other_edges_are_as_chance_says(result: xr.DataTree) -> None:
    table = compare.edge_changes(result, "OQ")
    assert abs(table["change_z"].mean()) < 1
    assert (table["q_value"] > 0.01).all()
    assert set(table["status"]) <= {"absent", "kept", "gained", "lost"}


def test_status_follows_from_the_two_q_values(result: xr.DataTree) -> None:
    table = compare.edge_changes(result, "OV")
    before, after = table["q_before"] < 0.05, table["q_after"] < 0.05
    words = {(False, False): "absent", (True, True): "kept", (False, True): "gained", (True, False): "lost"}
    assert list(table["status"]) == [words[pair] for pair in zip(before, after, strict=True)]


def test_changes_back_and_forth_mirror_each_other(
    pair: tuple[headspan.Heads, headspan.Heads], result: xr.DataTree
) -> None:
    back = compare.compute(pair[1], pair[0], draws=3)
    for pairing in ("OQ", "OK", "OV"):
        np.testing.assert_allclose(back[f"wiring/{pairing}"]["change"], -result[f"wiring/{pairing}"]["change"])
        assert turnover(back, pairing)["lost"] == turnover(result, pairing)["gained"]


def test_equal_checkpoints_have_no_change_anywhere(same: xr.DataTree) -> None:
    for pairing in compare.wiring_pairings(same):
        table = compare.edge_changes(same, pairing)
        assert (table[["change", "change_chance", "change_sd"]] == 0).all(axis=None)
        assert table["q_value"].isna().all()
        counts = turnover(same, pairing)
        assert (counts["gained"], counts["lost"]) == (0, 0)
        assert counts["kept"] == (edges(affinity.compute(wide()), pairing)["q_value_haar"] < 0.05).sum()
    assert (compare.spectra_table(same)["ks"] == 0).all()
    (only,) = findings_of("compare", same)
    assert "bit for bit" in only.statement
    assert list(figures_of("compare", same)) == ["Drift of every head"]


def test_spectra_are_those_of_the_matrices(pair: tuple[headspan.Heads, headspan.Heads], result: xr.DataTree) -> None:
    whole = [heads.W_Q[1].permute(1, 0, 2).reshape(48, 48).double().numpy() for heads in pair]
    for W, name in zip(whole, ("before", "after"), strict=True):
        values = result["spectra/W_Q"][f"singular_value_{name}"].sel(layer=1)
        np.testing.assert_allclose(values, np.linalg.svd(W)[1], rtol=1e-4, atol=1e-6)
    rows = compare.spectra_table(result)
    assert {"W_Q", "W_QK", "W_in", "W_E"} <= set(rows["kind"])
    assert (rows.query("kind == 'W_E'")["layer"] == -1).all()


def test_tables_of_another_size_are_left_out_and_named() -> None:
    result = compare.compute(gpt2(), gpt2(noisy, vocab_size=80), draws=3)
    assert "W_E" not in result["spectra"].children
    assert "W_E is 40 x 24 before and 80 x 24 after" in result.attrs["spectra_left_out"]


def test_a_model_of_one_layer_is_compared_without_wiring() -> None:
    result = compare.compute(gpt2(n_layer=1), gpt2(noisy, n_layer=1), draws=3)
    assert compare.wiring_pairings(result) == []
    assert result.attrs["wiring_left_out"] == "nothing composes: there is one layer"
    assert "nothing composes" in compare_page(result)
    assert compare.as_json(result)["wiring"] == {}
    assert findings_of("compare", result)


def test_a_model_of_one_head_as_wide_as_the_stream_says_nothing_of_edges() -> None:
    result = compare.compute(gpt2(n_head=1), gpt2(noisy, n_head=1), draws=3)
    assert not [finding for finding in findings_of("compare", result) if "edge" in finding.statement]
    assert "Edges gained and lost" not in figures_of("compare", result)
    assert compare_page(result)


def test_heads_that_lack_directions_have_no_null_of_change() -> None:
    def pruned(attention: list) -> None:
        noisy(attention)
        attention[1].c_attn.weight[:, D] = 0

    table = compare.edge_changes(compare.compute(gpt2(), gpt2(pruned), draws=3), "OK")
    lacking = table["dst"] == "L1H0"
    assert table[lacking]["change_z"].isna().all()
    assert table[~lacking]["change_z"].notna().all()
    assert len(table) == HEADS**2


def test_findings_name_the_planted_edge_and_rank_by_weight(result: xr.DataTree) -> None:
    found = findings_of("compare", result)
    assert [finding.weight for finding in found] == sorted((finding.weight for finding in found), reverse=True)
    (planted_one,) = [
        finding for finding in found if "L0H3" in finding.statement and "keys of L2H1" in finding.statement
    ]
    assert planted_one.value > planted_one.chance
    assert planted_one.p_value < 0.01


def test_only_the_changed_head_is_named() -> None:
    def one(attention: list) -> None:
        attention[1].c_attn.weight[:, 2 * WIDTH : 3 * WIDTH] += 0.1 * noise((D, WIDTH))

    found = findings_of("compare", compare.compute(gpt2(), gpt2(one), draws=3))
    assert "1 of 24 head matrices changed" in found[0].statement
    assert found[0].statement.endswith("L1H2 Q.")


def test_the_diagram_draws_the_planted_edge_from_writer_to_reader(result: xr.DataTree) -> None:
    arrows = [trace.meta for trace in figures_of("compare", result)["Edges gained and lost"].data if trace.meta]
    assert {"pairing": "OK", "src": "L0H3", "dst": "L2H1", "status": "gained"} in arrows


def test_the_heatmap_shows_shares_of_the_unrelated_distance(result: xr.DataTree) -> None:
    panel = figures_of("compare", result)["Drift of every head"].data[0]
    node = result["drift"].to_dataset()
    np.testing.assert_allclose(panel.z, node["grassmann_Q"] / node["grassmann_unrelated_Q"])


def test_the_page_names_both_models_as_text(result: xr.DataTree) -> None:
    hostile = result.copy()
    hostile.attrs |= {"model": "x/<script>alert(1)</script>", "before_model": "a & b"}
    html = compare_page(hostile)
    assert "<script>alert" not in html
    assert "a &amp; b and &lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "http://" not in html.split("<script>")[0]


@pytest.mark.parametrize(
    ("options", "message"), [({"level": 1.0}, "level is a q-value"), ({"null": "x"}, "null needs to be one of haar")]
)
def test_options_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        compare.compute(gpt2(), gpt2(), **options)


def test_the_command_writes_page_json_and_netcdf(tmp_path: Path) -> None:
    for ending in ("html", "nc"):
        done = CliRunner().invoke(app, ["compare", "demo", "demo", "-o", str(tmp_path / f"x.{ending}")])
        assert done.exit_code == 0, done.output
        assert "bit for bit" in done.output
    stored = xr.open_datatree(tmp_path / "x.nc", engine="h5netcdf")
    assert stored.attrs["lens"] == "compare"
    assert int(stored["drift"].attrs["identical"]) == 1
    stored.close()
    done = CliRunner().invoke(app, ["compare", "demo", "demo", "--json"])
    document = json.loads(done.stdout)
    assert document["schema"] == "headspan.compare/1"
    assert all(head["unchanged"] for head in document["heads"])
