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
from headspan.figures import figures_of
from headspan.findings import findings_of
from headspan.lenses.saving import save_result
from typer.testing import CliRunner

import headspan
from headspan.errors import HeadspanError, ShapeError
from headspan.lenses import spectra
from headspan.lenses.spectra import power_law
from headspan.lenses.spectra.command import spectra as command
from tests.unit.test_spectra import WIDTH, D, gpt2, tiny


def odd(layers: torch.nn.ModuleList) -> None:
    """A zero, a singular and an aligned query matrix."""
    layers[0].attn.c_attn.weight[:, :D] = 0
    layers[1].attn.c_attn.weight[:, D : D + WIDTH] = layers[1].attn.c_attn.weight[:, :WIDTH]
    layers[1].attn.c_proj.weight[0] = layers[1].attn.c_proj.weight[1]


@pytest.fixture(scope="module")
def result() -> xr.DataTree:
    return spectra.compute(gpt2())


@pytest.fixture(scope="module")
def odd_result() -> xr.DataTree:
    return spectra.compute(gpt2(odd))


def test_the_table_has_one_row_per_matrix_with_chance_beside(result: xr.DataTree) -> None:
    rows = spectra.table(result)
    assert len(rows) == 4 * 2 + 2 * 2 + 2 + 6 * 6
    assert rows["matrix"].tolist()[:2] == ["L0 W_Q", "L1 W_Q"]
    row = rows[rows["matrix"] == "L1H2 W_V_head"].iloc[0]
    node = result["W_V_head"].to_dataset().sel(layer=1, kv_head=2)
    assert row["ks"] == float(node["ks"])
    assert row["effective_rank_chance"] == float(node["effective_rank_chance"])
    assert row["ks_z"] == pytest.approx(float((node["ks"] - node["ks_chance"]) / node["ks_sd"]))
    assert row["p_value"] == float(node["p_value"][0])
    assert rows[rows["kind"] == "W_E"]["layer"].isna().all()
    for field in ("ks", "stable_rank", "effective_rank", "entropy", "energy_ratio", "spikes", "above", "log_condition"):
        assert np.isfinite(rows[f"{field}_chance"].to_numpy(float)).all()


def test_the_layer_table_has_one_row_per_layer(result: xr.DataTree) -> None:
    rows = spectra.layer_table(result)
    assert rows["layer"].tolist() == [0, 1]
    assert rows["W_O_spikes"].tolist() == result["W_O"]["spikes"].values.tolist()
    assert rows["trace_z"].tolist() == result["layer"]["trace_z"].values.tolist()


def test_json_says_null_where_a_number_is_undefined(odd_result: xr.DataTree) -> None:
    document = json.loads(json.dumps(spectra.as_json(odd_result), allow_nan=False))
    assert document["schema"] == "headspan.spectra/1"
    assert {"model", "file_hash", "fold", "init", "seed", "delta", "null"} <= set(document["provenance"])
    first = document["matrices"][0]
    assert (first["matrix"], first["layer"], first["head"]) == ("L0 W_Q", 0, None)
    assert first["effective_rank"] is None
    assert first["numerical_rank"] == 0
    assert document["heads"][0]["trace_z"] is None
    assert document["heads"][3]["label"] == "L1H0"
    assert [row["layer"] for row in document["layers"]] == [0, 1]


@pytest.mark.parametrize("ending", [".nc", ".csv", ".json", ".parquet"])
def test_a_result_survives_a_file(tmp_path: Path, ending: str) -> None:
    path, result = tmp_path / f"result{ending}", spectra.compute(gpt2(odd), matrices="W_Q,W_E,W_QK")
    save_result(result, path, table=spectra.table, as_json=spectra.as_json)
    if ending == ".nc":
        with xr.open_datatree(path, engine="h5netcdf") as read:
            xr.testing.assert_equal(read.load(), result)
            assert read.attrs["init"] == "config: initializer_range 0.02"
    else:
        assert path.stat().st_size > 500


def test_a_training_series_has_an_axis_of_steps(result: xr.DataTree, odd_result: xr.DataTree) -> None:
    series = spectra.along_steps({100: odd_result, 0: result})
    node = series["W_QK"].to_dataset()
    assert node["step"].values.tolist() == [0, 100]
    np.testing.assert_array_equal(node["ks"].sel(step=100), odd_result["W_QK"].to_dataset()["ks"])
    rows = spectra.table(series)
    assert len(rows) == 2 * len(spectra.table(result))
    last = rows[(rows["step"] == 100) & (rows["matrix"] == "L1H1 W_QK")].iloc[0]
    assert last["ks"] == float(odd_result["W_QK"].to_dataset()["ks"].sel(layer=1, head=1))
    layers = spectra.layer_table(series)
    assert layers[["step", "layer"]].to_numpy().tolist() == [[0, 0], [0, 1], [100, 0], [100, 1]]
    assert spectra.alignment_table(series)["label"].tolist() == ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"] * 2
    with pytest.raises(ShapeError, match="needs at least one result"):
        spectra.along_steps({})
    with pytest.raises(ShapeError, match="step 1 holds other matrices than step 0"):
        spectra.along_steps({0: result, 1: spectra.compute(gpt2(), matrices="W_Q")})


def test_findings_name_what_departs_and_give_chance(odd_result: xr.DataTree) -> None:
    found = findings_of("spectra", odd_result)
    text = " ".join(finding.statement for finding in found)
    assert "1 of 3 heads match queries to keys of the same direction more than chance" in text
    assert "the same direction most in L1H0 (+1.00)" in text
    assert "zero: L0 W_Q, L0H0 W_Q_head" in text
    assert "singular: L1 W_O" in text
    assert all(finding.expected is not None and math.isfinite(finding.value) for finding in found)
    assert all("Null" in finding.evidence for finding in found if finding.p is not None)


def test_a_random_model_aligns_with_nothing(result: xr.DataTree) -> None:
    first = next(f for f in findings_of("spectra", result) if "more than chance" in f.statement)
    assert first.statement.startswith("0 of 6 heads match")
    assert first.weight < 0.2


def test_findings_of_a_few_matrices_and_of_cross_attention_do_without_alignment() -> None:
    few = findings_of("spectra", spectra.compute(gpt2(), matrices="W_E"))
    crossed = findings_of("spectra", spectra.compute(tiny("t5", stack="cross")))
    assert few
    assert crossed
    assert not any("direction" in finding.statement for finding in (*few, *crossed))


def test_figures_show_the_numbers_of_the_result(result: xr.DataTree) -> None:
    drawn = figures_of("spectra", result)
    assert list(drawn) == [
        "Singular values and the law of random matrices",
        "Spectra by layer",
        "Base alignment",
        "Symmetric part of W_QK",
    ]
    bars = [
        trace for trace in drawn["Singular values and the law of random matrices"].data if isinstance(trace, go.Bar)
    ]
    assert len(bars) == 4 * 2 + 2 * 2 + 2
    np.testing.assert_array_equal(bars[1].y, spectra.histogram(result, "W_Q", 1).counts)
    np.testing.assert_array_equal(drawn["Base alignment"].data[0].z, result["alignment"]["trace_z"].values)
    share, mass = drawn["Symmetric part of W_QK"].data
    np.testing.assert_array_equal(share.z, result["alignment"]["symmetric_share"].values)
    np.testing.assert_array_equal(mass.z, result["alignment"]["positive_mass"].values)
    spikes = drawn["Spectra by layer"].data[0]
    np.testing.assert_allclose(np.asarray(spikes.z)[:, 1], 100 * result["W_K"]["spikes"].values / D)


def test_a_histogram_counts_every_value_and_expects_as_many(result: xr.DataTree) -> None:
    found = spectra.histogram(result, "W_in", 1)
    assert found.counts.sum() + found.beyond == D
    assert found.fitted.sum() == pytest.approx(D)
    assert found.largest == float(result["W_in"]["largest"].values[1])


def test_figures_of_every_odd_result_can_be_written(odd_result: xr.DataTree) -> None:
    crossed = spectra.compute(tiny("t5", stack="cross"))
    tables = spectra.compute(gpt2(n_positions=1), matrices="W_pos")
    assert "Base alignment" not in figures_of("spectra", crossed)
    assert list(figures_of("spectra", spectra.compute(gpt2(), matrices="W_Q_head"))) == []
    for found in (odd_result, crossed, tables):
        for figure in figures_of("spectra", found).values():
            assert figure.to_html(include_plotlyjs=False).rstrip().endswith("</html>")


# Power laws


def test_a_power_law_is_found_where_there_is_one() -> None:
    pytest.importorskip("powerlaw", reason="the package powerlaw is not installed")
    generator = np.random.default_rng(0)
    squares = generator.pareto(2.0, size=4000) + 1
    alpha, _, distance, count, ratio = power_law._fit(np.sqrt(np.sort(squares)[::-1]))
    assert alpha == pytest.approx(3.0, abs=0.2)
    assert distance < 0.05
    assert count > 300
    assert math.isfinite(ratio)
    assert all(math.isnan(value) for value in power_law._fit(np.ones(3)))


def test_power_laws_stand_in_the_table_with_their_fit_and_that_of_random_matrices() -> None:
    pytest.importorskip("powerlaw", reason="the package powerlaw is not installed")
    found = spectra.compute(gpt2(), matrices="W_Q,W_Q_head", power_law=True)
    rows = spectra.table(found)
    fitted = rows[rows["kind"] == "W_Q"]
    for field in ("alpha", "ks", "values", "over_lognormal"):
        assert np.isfinite(fitted[f"power_law_{field}"].to_numpy(float)).all()
        assert np.isfinite(fitted[f"power_law_{field}_chance"].to_numpy(float)).all()
    assert rows[rows["kind"] == "W_Q_head"]["power_law_alpha"].isna().all()


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_law.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(HeadspanError, match=r"pip install 'headspan\[powerlaw\]'"):
        spectra.compute(gpt2(), power_law=True)


# The command

app = typer.Typer()
app.command("spectra")(command)
app.command("other")(lambda: None)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["spectra", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_prints_kinds_and_aligned_heads() -> None:
    text = run("demo")
    assert "Means over all matrices of a kind" in text
    assert "W_gate" in text
    assert "Base alignment furthest from chance, 10 of 16 heads" in text


def test_the_command_writes_json_and_files(tmp_path: Path) -> None:
    arguments = ("demo", "--json", "--matrix", "W_QK,W_E", "--delta", "1", "--fold", "layernorm")
    document = json.loads(run(*arguments, "-o", str(tmp_path / "r.nc")))
    assert document["provenance"]["delta"] == 1
    assert document["provenance"]["fold"] == "layernorm"
    assert {row["kind"] for row in document["matrices"]} == {"W_QK", "W_E"}
    with xr.open_datatree(tmp_path / "r.nc", engine="h5netcdf") as read:
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
    node = spectra.compute(headspan.open("demo").heads(), matrices="W_QK")["alignment"].to_dataset()
    assert (node["trace_z"].sel(layer=1, head=[1, 3, 6]) > 5).all()
