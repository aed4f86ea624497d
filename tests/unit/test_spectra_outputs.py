"""Spectra, told: tables, JSON, files, series, findings, figures, power laws and the command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
import typer
import xarray as xr
from typer.testing import CliRunner

import headspan
from headspan.cli.lens_commands import lens_command
from headspan.errors import ArgumentError, HeadspanError
from headspan.frames import table
from headspan.lenses.catalog import lens
from headspan.lenses.series import along_steps
from headspan.lenses.spectra import law
from headspan.lenses.spectra.figures import histogram
from tests.unit.test_spectra import WIDTH, D, gpt2, tiny


def odd(layers: torch.nn.ModuleList) -> None:
    """A zero, a singular and an aligned query matrix."""
    layers[0].attn.c_attn.weight[:, :D] = 0
    layers[1].attn.c_attn.weight[:, D : D + WIDTH] = layers[1].attn.c_attn.weight[:, :WIDTH]
    layers[1].attn.c_proj.weight[0] = layers[1].attn.c_proj.weight[1]


@pytest.fixture(scope="module")
def result() -> headspan.Result:
    return headspan.spectra(gpt2())


@pytest.fixture(scope="module")
def odd_result() -> headspan.Result:
    return headspan.spectra(gpt2(odd))


def test_the_table_has_one_row_per_matrix_with_what_is_expected(result: headspan.Result) -> None:
    rows = result.table()
    assert len(rows) == 4 * 2 + 2 * 2 + 2 + 6 * 6
    assert rows[["matrix", "layer"]].iloc[:2].to_numpy().tolist() == [["W_Q", 0], ["W_Q", 1]]
    row = rows[(rows["matrix"] == "W_V_head") & (rows["kv_head"] == "L1H2")].iloc[0]
    node = result["W_V_head"].sel(kv_head="L1H2")
    assert row["ks"] == float(node["ks"])
    assert row["effective_rank_null"] == float(node["effective_rank_null"])
    assert row["ks_z"] == pytest.approx(float((node["ks"] - node["ks_null"]) / node["ks_null_sd"]))
    assert row["largest_p"] == float(node["leading_p"][0])
    assert (row["rows"], row["columns"]) == (D, WIDTH)
    assert rows[rows["matrix"] == "W_E"]["layer"].isna().all()
    for field in ("ks", "stable_rank", "effective_rank", "entropy", "energy_ratio", "spikes", "above", "log_condition"):
        assert np.isfinite(rows[f"{field}_null"].to_numpy(float)).all()


def test_the_layer_table_has_one_row_per_layer(result: headspan.Result) -> None:
    rows = result.table("layers")
    assert rows["layer"].tolist() == [0, 1]
    assert rows["trace_z"].tolist() == result["layer"]["trace_z"].values.tolist()
    whole = result.table()
    spikes = whole.loc[whole["matrix"] == "W_O", "spikes"]
    assert spikes.tolist() == result["W_O"]["spikes"].values.tolist()


def test_json_says_null_where_a_number_is_undefined(odd_result: headspan.Result) -> None:
    document = json.loads(json.dumps(odd_result.to_json(), allow_nan=False))
    assert document["schema"] == "headspan.spectra/2"
    assert {"model", "file_hash", "fold", "init", "seed", "delta", "null"} <= set(document["provenance"])
    first = document["matrices"][0]
    assert (first["matrix"], first["layer"], first["head"]) == ("W_Q", 0, None)
    assert first["effective_rank"] is None
    assert first["numerical_rank"] == 0
    assert document["heads"][0]["trace_z"] is None
    assert document["heads"][3]["head"] == "L1H0"
    assert [row["layer"] for row in document["layers"]] == [0, 1]


@pytest.mark.parametrize("ending", [".nc", ".csv", ".json", ".parquet"])
def test_a_result_survives_a_file(tmp_path: Path, ending: str) -> None:
    path, result = tmp_path / f"result{ending}", headspan.spectra(gpt2(odd), matrices="W_Q,W_E,W_QK")
    result.save(path)
    if ending == ".nc":
        read = headspan.load(path)
        xr.testing.assert_equal(read.data, result.data)
        assert read.attrs["init"] == "config: initializer_range 0.02"
        assert float(read["W_QK"].ks.sel(head="1.1")) == float(result["W_QK"].ks.sel(head="L1H1"))
    else:
        assert path.stat().st_size > 500


def test_files_of_version_1_are_read_under_todays_names(tmp_path: Path, result: headspan.Result) -> None:
    nodes = {"/": xr.Dataset(attrs={**result.attrs, "schema": "headspan.spectra/1"})}
    for name in ("W_Q", "W_QK"):
        node = result.grid(name)
        scores = [each for each in node if str(each).endswith("_z") or each == "largest_p"]
        nodes[name] = _as_version_1(node.drop_vars(scores), {"leading_p": "p_value", "leading_log_p": "log_p_value"})
    heads = result.grid("alignment")
    product = heads.sel(null="product", drop=True)
    more = {"trace_sd_product": product["trace_null_sd"], "trace_z_product": product["trace_z"]}
    tests = {"trace_p": "p_value", "trace_q": "q_value"}
    nodes["alignment"] = _as_version_1(heads.sel(null="factors", drop=True).assign(more), tests)
    nodes["layer"] = _as_version_1(result.grid("layer").drop_vars("heads_defined"), {"trace_p": "p_value"})
    xr.DataTree.from_dict(nodes).to_netcdf(tmp_path / "old.nc", engine="netcdf4")
    read = headspan.load(tmp_path / "old.nc")
    for name in ("W_Q", "W_QK"):
        xr.testing.assert_allclose(read.dataset(name), result.dataset(name))
    for name in ("trace", "trace_null_sd", "trace_z", "positive_mass_null_sd", "symmetric_share_null"):
        now = result["alignment"][name]
        xr.testing.assert_equal(read["alignment"][name].transpose(*now.dims), now)
    assert len(read.table()) == 2 + 6
    assert [finding.statement for finding in read.findings if "direction" in finding.statement]


def _as_version_1(node: xr.Dataset, names: dict[str, str]) -> xr.Dataset:
    spreads = {str(name): str(name).replace("_null_sd", "_sd") for name in node if str(name).endswith("_null_sd")}
    means = {str(name): str(name).replace("_null", "_chance") for name in node if str(name).endswith("_null")}
    return node.rename({**spreads, **means, **names})


def test_a_training_series_has_an_axis_of_steps(result: headspan.Result, odd_result: headspan.Result) -> None:
    series = along_steps({100: odd_result, 0: result})
    node = series["W_QK"]
    assert node["step"].values.tolist() == [0, 100]
    np.testing.assert_array_equal(node["ks"].sel(step=100), odd_result["W_QK"]["ks"])
    assert float(node["ks"].sel(step=100, head="1.1")) == float(odd_result["W_QK"].ks.sel(head="L1H1"))
    schema = lens("spectra").schema
    matrices, heads, layers = (table(schema, series, spec) for spec in schema.tables)
    assert len(matrices) == 2 * len(result.table())
    last = matrices[(matrices["step"] == 100) & (matrices["matrix"] == "W_QK") & (matrices["head"] == "L1H1")].iloc[0]
    assert last["ks"] == float(odd_result["W_QK"].ks.sel(head="L1H1"))
    assert layers[["step", "layer"]].to_numpy().tolist() == [[0, 0], [0, 1], [100, 0], [100, 1]]
    assert heads["head"].tolist() == ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"] * 2
    with pytest.raises(ArgumentError, match="needs the result of at least one step"):
        along_steps({})
    with pytest.raises(ArgumentError, match="step 1 holds other parts than step 0"):
        along_steps({0: result, 1: headspan.spectra(gpt2(), matrices="W_Q")})
    with pytest.raises(ArgumentError, match="the axis 'head' has other heads at some steps"):
        along_steps({0: result, 1: headspan.spectra(gpt2(n_layer=3))})


def test_findings_name_what_departs_and_what_is_expected(odd_result: headspan.Result) -> None:
    found = odd_result.findings
    text = " ".join(finding.statement for finding in found)
    assert "1 of 3 heads match queries to keys of the same direction (positive trace of W_QK, q < 0.01)" in text
    assert "the same direction most in L1H0 (+1.00)" in text
    assert "zero: L0 W_Q, L0H0 W_Q_head" in text
    assert "singular: L1 W_O" in text
    assert all(finding.expected is not None and math.isfinite(finding.value) for finding in found)
    assert all("Null" in finding.evidence for finding in found if finding.p is not None)


def test_a_random_model_aligns_with_nothing(result: headspan.Result) -> None:
    first = next(f for f in result.findings if "heads match queries" in f.statement)
    assert first.statement.startswith("0 of 6 heads match")
    assert first.weight < 0.2


def test_findings_of_a_few_matrices_and_of_cross_attention_do_without_alignment() -> None:
    few = headspan.spectra(gpt2(), matrices="W_E").findings
    crossed = headspan.spectra(tiny("t5", stack="cross")).findings
    assert few
    assert crossed
    assert not any("direction" in finding.statement for finding in (*few, *crossed))


def test_figures_show_the_numbers_of_the_result(result: headspan.Result) -> None:
    drawn = result.figures
    assert list(drawn) == [
        "Spectra by layer",
        "Singular values and the law of random matrices",
        "Squared singular values of all layers",
        "Base alignment",
        "Symmetric part of W_QK",
    ]
    bars = [
        trace for trace in drawn["Singular values and the law of random matrices"].data if isinstance(trace, go.Bar)
    ]
    assert len(bars) == 4 * 2 + 2 * 2 + 2
    np.testing.assert_array_equal(bars[1].y, histogram(result, "W_Q", 1).counts)
    node = result.grid("alignment")
    np.testing.assert_array_equal(drawn["Base alignment"].data[0].z, node["trace_z"].sel(null="factors"))
    share, mass = drawn["Symmetric part of W_QK"].data
    np.testing.assert_array_equal(share.z, node["symmetric_share"])
    np.testing.assert_array_equal(mass.z, node["positive_mass"])
    spikes = drawn["Spectra by layer"].data[0]
    np.testing.assert_allclose(np.asarray(spikes.z)[:, 1], 100 * result["W_K"]["spikes"].values / D)


def test_a_histogram_counts_every_value_and_expects_as_many(result: headspan.Result) -> None:
    found = histogram(result, "W_in", 1)
    assert found.counts.sum() + found.beyond == D
    assert found.fitted.sum() == pytest.approx(D)
    assert found.largest == float(result["W_in"]["largest"].values[1])


def test_figures_of_every_odd_result_can_be_written(odd_result: headspan.Result) -> None:
    crossed = headspan.spectra(tiny("t5", stack="cross"))
    tables = headspan.spectra(gpt2(n_positions=1), matrices="W_pos")
    assert "Base alignment" not in crossed.figures
    assert list(headspan.spectra(gpt2(), matrices="W_Q_head").figures) == []
    for found in (odd_result, crossed, tables):
        for figure in found.figures.values():
            assert figure.to_html(include_plotlyjs=False).rstrip().endswith("</html>")


# Power laws


def test_a_power_law_is_found_where_there_is_one() -> None:
    pytest.importorskip("powerlaw", reason="the package powerlaw is not installed")
    generator = np.random.default_rng(0)
    squares = generator.pareto(2.0, size=4000) + 1
    alpha, _, distance, count, ratio = law.tail_fit(np.sqrt(np.sort(squares)[::-1]))
    assert alpha == pytest.approx(3.0, abs=0.2)
    assert distance < 0.05
    assert count > 300
    assert math.isfinite(ratio)
    assert all(math.isnan(value) for value in law.tail_fit(np.ones(3)))


def test_power_laws_stand_in_the_table_with_their_fit_and_that_of_random_matrices() -> None:
    pytest.importorskip("powerlaw", reason="the package powerlaw is not installed")
    found = headspan.spectra(gpt2(), matrices="W_Q,W_Q_head", power_law=True)
    rows = found.table()
    fitted = rows[rows["matrix"] == "W_Q"]
    for field in ("alpha", "ks", "values", "over_lognormal"):
        assert np.isfinite(fitted[f"power_law_{field}"].to_numpy(float)).all()
        assert np.isfinite(fitted[f"power_law_{field}_null"].to_numpy(float)).all()
    assert rows[rows["matrix"] == "W_Q_head"]["power_law_alpha"].isna().all()


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(law.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(HeadspanError, match=r"pip install 'headspan\[powerlaw\]'"):
        headspan.spectra(gpt2(), power_law=True)


# The command

app = typer.Typer()
app.command("spectra")(lens_command(lens("spectra")))
app.command("other")(lambda: None)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["spectra", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_prints_kinds_and_aligned_heads() -> None:
    text = run("demo")
    assert "Means over all matrices of a kind" in text
    assert "W_gate" in text
    assert "Base alignment furthest from 0, 10 of 16 heads" in text


def test_the_command_writes_json_and_files(tmp_path: Path) -> None:
    arguments = ("demo", "--json", "--matrix", "W_QK,W_E", "--delta", "1", "--fold", "layernorm")
    document = json.loads(run(*arguments, "-o", str(tmp_path / "r.nc")))
    assert document["provenance"]["delta"] == 1
    assert document["provenance"]["fold"] == "layernorm"
    assert {row["matrix"] for row in document["matrices"]} == {"W_QK", "W_E"}
    with xr.open_datatree(tmp_path / "r.nc", engine="netcdf4") as read:
        assert set(read.children) == {"W_QK", "W_E", "alignment", "layer"}
    assert "skipped: W_QK was not asked for" in run("demo", "--matrix", "W_E")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--matrix", "cube"], "'cube' is not a matrix"),
        (["--init", "cube"], "not 'cube'"),
        (["-o", "result.xls"], "cannot write 'result.xls'"),
    ],
)
def test_the_command_refuses_what_it_does_not_know(arguments: list[str], message: str) -> None:
    with pytest.raises(HeadspanError, match=message):
        run("demo", *arguments)


def test_the_demo_models_induction_heads_look_for_the_like() -> None:
    """L1H1, L1H3 and L1H6 copy: they look for the token before them by its own direction (docs/demo.md)."""
    z = headspan.spectra("demo", matrices="W_QK")["alignment"].trace_z.sel(null="factors")
    assert (z.sel(head=["L1H1", "L1H3", "L1H6"]) > 5).all()
