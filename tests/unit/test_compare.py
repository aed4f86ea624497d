"""Two checkpoints side by side: edges, spectra, findings, figures, the page and the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from typer.testing import CliRunner

import headspan
from headspan.cli.main import app
from headspan.errors import ArgumentError
from headspan.lenses.compare.command import show
from headspan.lenses.compare.parts import drift_part, edge_changes, wiring_pairings
from tests.unit.test_drift import HEADS, WIDTH, D, gpt2, noise, noisy

DRAWS = 8


def page(result: headspan.Result) -> str:
    from headspan.explorer.compare_page import compare_page

    return compare_page(result)


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
def result(pair: tuple[headspan.Heads, headspan.Heads]) -> headspan.Result:
    return headspan.compare(*pair, null="haar", draws=DRAWS)


@pytest.fixture(scope="module")
def same() -> headspan.Result:
    return headspan.compare(wide(), wide(), draws=DRAWS)


def test_kernels_are_those_of_the_affinity_lens(
    pair: tuple[headspan.Heads, headspan.Heads], result: headspan.Result
) -> None:
    for heads, name in zip(pair, ("kernel_before", "kernel_after"), strict=True):
        alone = headspan.affinity(heads, metrics="projection_kernel")
        for pairing in ("OQ", "OK", "OV"):
            xr.testing.assert_equal(
                result[f"wiring/{pairing}"][name].rename("kernel"), alone[pairing].projection_kernel.rename("kernel")
            )


def test_the_planted_edge_is_gained_and_no_random_change_explains_it(result: headspan.Result) -> None:
    first = edge_changes(result, "OK", "gained").iloc[0]
    assert (first["src"], first["dst"]) == ("L0H3", "L2H1")
    assert first["change_z"] > 5
    assert first["change_q"] < 0.01
    assert result["wiring/OK"].n_beyond_null >= 1
    assert float(result["wiring/OK"].change.sel(src="L0H3", dst="L2H1")) == first["change"]


def test_changes_of_other_edges_are_as_the_null_says(result: headspan.Result) -> None:
    table = edge_changes(result, "OQ")
    assert abs(table["change_z"].mean()) < 1
    assert (table["change_q"] > 0.01).all()
    assert set(table["status"]) <= {"absent", "kept", "gained", "lost"}


def test_status_follows_from_the_two_q_values(result: headspan.Result) -> None:
    table = edge_changes(result, "OV")
    before, after = table["kernel_before_q"] < 0.05, table["kernel_after_q"] < 0.05
    words = {(False, False): "absent", (True, True): "kept", (False, True): "gained", (True, False): "lost"}
    assert list(table["status"]) == [words[pair] for pair in zip(before, after, strict=True)]


def test_changes_back_and_forth_mirror_each_other(
    pair: tuple[headspan.Heads, headspan.Heads], result: headspan.Result
) -> None:
    back = headspan.compare(pair[1], pair[0], null="haar", draws=3)
    for pairing in ("OQ", "OK", "OV"):
        np.testing.assert_allclose(back[f"wiring/{pairing}"]["change"], -result[f"wiring/{pairing}"]["change"])
        assert back[f"wiring/{pairing}"].n_lost == result[f"wiring/{pairing}"].n_gained


def test_equal_checkpoints_have_no_change_anywhere(same: headspan.Result) -> None:
    for pairing in wiring_pairings(same):
        table = edge_changes(same, pairing)
        assert (table[["change", "change_null", "change_null_sd"]] == 0).all(axis=None)
        assert table["change_q"].isna().all()
        node = same[f"wiring/{pairing}"]
        assert (int(node.n_gained), int(node.n_lost)) == (0, 0)
        q = headspan.affinity(wide(), pairings=pairing)[pairing].projection_kernel_q.sel(null="haar")
        assert int(node.n_kept) == int((q < 0.05).sum())
    assert (same.table("matrices")["ks"] == 0).all()
    (only,) = same.findings
    assert "bit for bit" in only.statement
    assert list(same.figures) == ["Drift of every head"]


def test_spectra_are_those_of_the_matrices(
    pair: tuple[headspan.Heads, headspan.Heads], result: headspan.Result
) -> None:
    whole = [heads.W_Q[1].permute(1, 0, 2).reshape(48, 48).double().numpy() for heads in pair]
    for W, name in zip(whole, ("before", "after"), strict=True):
        values = result["spectra/W_Q"][f"singular_value_{name}"].sel(layer=1)
        np.testing.assert_allclose(values, np.linalg.svd(W)[1], rtol=1e-4, atol=1e-6)
    rows = result.table("matrices")
    assert {"W_Q", "W_QK", "W_in", "W_E"} <= set(rows["matrix"])
    assert rows.query("matrix == 'W_E'")["layer"].isna().all()
    assert set(rows.query("matrix == 'W_QK'")["head"]) >= {"L0H0", "L2H3"}


@pytest.mark.slow
def test_tables_of_another_size_are_left_out_and_named() -> None:
    result = headspan.compare(gpt2(), gpt2(noisy, vocab_size=80), draws=3)
    assert "W_E" not in result["spectra"].children
    assert "W_E is 40 x 24 before and 80 x 24 after" in result.attrs["spectra_left_out"]


def test_a_model_of_one_layer_is_compared_without_wiring() -> None:
    result = headspan.compare(gpt2(n_layer=1), gpt2(noisy, n_layer=1), draws=3)
    assert wiring_pairings(result) == []
    assert result.attrs["wiring_left_out"] == "nothing composes: there is one layer"
    assert not {"pairings", "edges"} & set(result.to_json())
    assert edge_changes(result).empty
    assert result.findings
    assert result.figures
    assert "nothing composes" in page(result)


@pytest.mark.slow
def test_a_model_of_one_head_as_wide_as_the_stream_says_nothing_of_edges() -> None:
    result = headspan.compare(gpt2(n_head=1), gpt2(noisy, n_head=1), draws=3)
    assert not [finding for finding in result.findings if "edge" in finding.statement]
    assert "Edges gained and lost" not in result.figures
    assert page(result)


def test_heads_that_lack_directions_have_no_null_of_change() -> None:
    def pruned(attention: list) -> None:
        noisy(attention)
        attention[1].c_attn.weight[:, D] = 0

    table = edge_changes(headspan.compare(gpt2(), gpt2(pruned), draws=3), "OK")
    lacking = table["dst"] == "L1H0"
    assert table[lacking]["change_z"].isna().all()
    assert table[~lacking]["change_z"].notna().all()
    assert len(table) == HEADS**2


def test_findings_name_the_planted_edge_and_rank_by_weight(result: headspan.Result) -> None:
    found = result.findings
    assert [finding.weight for finding in found] == sorted((finding.weight for finding in found), reverse=True)
    (planted_one,) = [finding for finding in found if finding.statement.startswith("L0H3 → L2H1: K-composition grew")]
    assert planted_one.value > planted_one.expected
    assert planted_one.p <= planted_one.q < 0.01


def test_only_the_changed_head_is_named() -> None:
    def one(attention: list) -> None:
        attention[1].c_attn.weight[:, 2 * WIDTH : 3 * WIDTH] += 0.1 * noise((D, WIDTH))

    found = headspan.compare(gpt2(), gpt2(one), draws=3).findings
    assert "1 of 24 head matrices changed" in found[0].statement
    assert found[0].statement.endswith("L1H2 Q.")


def test_the_diagram_draws_the_planted_edge_from_writer_to_reader(result: headspan.Result) -> None:
    arrows = [trace.meta for trace in result.figures["Edges gained and lost"].data if trace.meta]
    assert {"pairing": "OK", "src": "L0H3", "dst": "L2H1", "status": "gained"} in arrows


def test_the_heatmap_shows_shares_of_the_unrelated_distance(result: headspan.Result) -> None:
    panel = result.figures["Drift of every head"].data[0]
    node = result.grid("drift/Q")
    np.testing.assert_allclose(panel.z, node["grassmann"] / node["grassmann_unrelated"])


def test_the_page_names_both_models_as_text(result: headspan.Result) -> None:
    hostile = headspan.Result(result.lens, result.data.copy())
    hostile.data.attrs |= {"model": "x/<script>alert(1)</script>", "before_model": "a & b"}
    html = page(hostile)
    assert "<script>alert" not in html
    assert "a &amp; b and &lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "http://" not in html.split("<script>")[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 1.0}, "level=1.0: needed is a q-value"),
        ({"null": "x"}, "null='x' is unknown; nulls are two-way, reverse and haar"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        headspan.compare(gpt2(), gpt2(), **options)


def test_the_drift_of_a_comparison_is_the_drift(
    pair: tuple[headspan.Heads, headspan.Heads], result: headspan.Result
) -> None:
    alone, part = headspan.drift(*pair, draws=DRAWS), drift_part(result)
    xr.testing.assert_equal(part.data, alone.data)
    assert [finding.statement for finding in part.findings] == [finding.statement for finding in alone.findings]


def test_json_holds_the_largest_changes(result: headspan.Result) -> None:
    document = result.to_json()
    changes = [abs(edge["change"]) for edge in document["edges"]]
    assert len(changes) == 144
    assert changes == sorted(changes, reverse=True)
    assert [row["pairing"] for row in document["pairings"]] == ["OQ", "OK", "OV"]
    assert document["pairings"][1]["n_gained"] == int(result["wiring/OK"].n_gained)


def test_files_of_version_1_are_read_under_todays_names(tmp_path: Path, result: headspan.Result) -> None:
    old = {"kernel_before_q": "q_before", "kernel_after_q": "q_after", "change_p": "p_value", "change_q": "q_value"}
    nodes = {"/": xr.Dataset(attrs={**result.attrs, "schema": "headspan.compare/1"})}
    for pairing in wiring_pairings(result):
        node = result.grid(f"wiring/{pairing}")
        before, after = node["edge_before"], node["edge_after"]
        status = (before & after) + 2 * (after & ~before) + 3 * (before & ~after)
        node = node.drop_vars([name for name in node if name.startswith(("n_", "edge_"))]).assign(status=status)
        nodes[f"wiring/{pairing}"] = node.rename(old | {"change_null": "change_chance", "change_null_sd": "change_sd"})
    for kind in result["spectra"].children:
        node = result.grid(f"spectra/{kind}")
        nodes[f"spectra/{kind}"] = node.rename({name: name.replace("_null", "_chance") for name in node})
    xr.DataTree.from_dict(nodes).to_netcdf(tmp_path / "old.nc", engine="netcdf4")
    read = headspan.load(tmp_path / "old.nc")
    for path in ("wiring/OK", "spectra/W_QK", "spectra/W_E"):
        xr.testing.assert_allclose(read.dataset(path), result.dataset(path))
    assert list(edge_changes(read, "OK", "gained")["src"]) == list(edge_changes(result, "OK", "gained")["src"])


@pytest.mark.parametrize("ending", ["html", "nc"])
def test_the_command_writes_files(tmp_path: Path, ending: str) -> None:
    target = tmp_path / f"x.{ending}"
    done = CliRunner().invoke(app, ["compare", "demo", "demo", "-o", str(target)])
    assert done.exit_code == 0, done.output
    assert "bit for bit" in done.output
    if ending == "nc":
        stored = headspan.load(target)
        assert stored.lens.name == "compare"
        assert int(drift_part(stored).attrs["identical"]) == 1


def test_the_command_prints_json() -> None:
    done = CliRunner().invoke(app, ["compare", "demo", "demo", "--json"])
    document = json.loads(done.stdout)
    assert document["schema"] == "headspan.compare/2"
    assert all(head["unchanged"] for head in document["heads"])


def test_the_command_shows_what_moved_and_which_edges_turned(result: headspan.Result) -> None:
    told, heads, edges = show(result)
    assert any("L0H3 → L2H1" in statement for _, statement in told.facts)
    assert len(heads.rows) == 10
    assert edges.rows[1][:1] == ["OK"]
