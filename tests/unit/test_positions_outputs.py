"""The positions lens outward: findings, figures, tables, files and the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import typer
import xarray as xr
from headspan.figures import figures_of, theme
from headspan.findings import findings_of
from headspan.lenses.saving import save_result
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import headspan
from headspan.errors import HeadspanError, ShapeError, UnsupportedModel
from headspan.lenses import obstacles, positions
from headspan.lenses.positions.command import positions as command
from headspan.lenses.positions.overlap_figures import attention_overlaps, table_overlaps
from tests.families.tiny_models import CASES
from tests.unit.positions_models import CONTEXT, VOCAB, D, basis, gpt2, made_of, set_tables, tiny

FALLING = np.geomspace(10, 0.1, D)


@pytest.fixture(scope="module")
def random() -> xr.Dataset:
    return positions.compute(gpt2())


@pytest.fixture(scope="module")
def planted() -> xr.Dataset:
    """Tokens and positions on opposite ends, both with the same mean row."""
    B = basis()
    P = made_of(B[:, ::-1], FALLING, CONTEXT) + 3 * torch.as_tensor(B[:, 20])
    E = made_of(B, FALLING, VOCAB) + 3 * torch.as_tensor(B[:, 20])
    return positions.compute(gpt2(set_tables(P, E)))


@pytest.fixture(scope="module")
def rotary() -> xr.Dataset:
    return positions.compute(tiny("llama"))


# Findings


def test_findings_of_tables_on_opposite_ends_say_so(planted: xr.Dataset) -> None:
    found = findings_of("positions", planted)
    first = next(finding for finding in found if "last tenth" in finding.statement)
    mass, chance = (planted[name].sel(centring="stored", k_choice="given")[-1] for name in ("decile", "decile_chance"))
    assert (first.value, first.chance) == (float(mass), float(chance))
    assert first.p_value < 1e-6
    assert first.weight == 0.7
    means = next(finding for finding in found if "mean rows" in finding.statement)
    assert means.value == pytest.approx(1, abs=0.01)
    assert [f.weight for f in found] == sorted((f.weight for f in found), reverse=True)


def test_findings_of_random_tables_claim_nothing(random: xr.Dataset) -> None:
    found = findings_of("positions", random)
    capture = next(finding for finding in found if "last tenth" in finding.statement)
    assert capture.weight == 0.2
    assert any("are not sparse in the stream" in finding.statement for finding in found)
    assert any("Tokens do not keep off" in finding.statement for finding in found)
    assert any("Token rows lie like random points" in finding.statement for finding in found)
    for finding in found:
        assert finding.expected is not None
        assert "Null" in finding.evidence or "null" in finding.evidence


def test_a_sparse_table_is_called_sparse_and_tokens_that_keep_off_are_told() -> None:
    P = torch.zeros(CONTEXT, D, dtype=torch.float64)
    P[:, :5] = torch.randn(CONTEXT, 5, dtype=torch.float64)
    E = torch.randn(VOCAB, D, dtype=torch.float64)
    E[:, :5] *= 0.01
    text = " ".join(f.statement for f in findings_of("positions", positions.compute(gpt2(set_tables(P, E)), k=5)))
    assert "first directions are sparse in the stream" in text
    assert "Tokens keep off the 5 coordinates" in text


def test_what_is_left_out_is_the_last_finding(rotary: xr.Dataset) -> None:
    last = findings_of("positions", rotary)[-1]
    assert last.statement.startswith("Left out: everything about positions: no learned position table, rotary")


# Figures


def test_figures_show_the_numbers_of_the_result(random: xr.Dataset) -> None:
    drawn = figures_of("positions", random)
    assert list(drawn) == [
        "Spectra of the tables",
        "Capture",
        "Overlap of the tables",
        "Position directions in the stream",
        "Position directions over positions",
        "Attention and the tables",
        "MLP and the tables",
        "Layers along the tables",
        "Logits of layer 0",
        "Angles between rows",
    ]
    dots = [trace for trace in drawn["Capture"].data if trace.mode == "markers"]
    np.testing.assert_array_equal(dots[0].y, random["capture"].sel(centring="stored", k_choice="given"))
    bars = drawn["Logits of layer 0"].data[3]
    np.testing.assert_array_equal(bars.y[:-1], random["logit_share"].sel(term="position-position"))
    panels = drawn["Attention and the tables"].data
    assert len(panels) == 8
    here = random["overlap"].sel(layer=0, matrix="K", table="E").values * D
    np.testing.assert_allclose(panels[5].customdata, here, rtol=1e-6)
    np.testing.assert_allclose(panels[5].z, np.log2(here), rtol=1e-5)


def test_the_chance_band_holds_ninety_five_percent_of_random_directions(random: xr.Dataset) -> None:
    band = figures_of("positions", random)["Capture"].data[0]
    k = random.attrs["k"]
    draws = np.linalg.qr(np.random.default_rng(0).standard_normal((4000, D, k)))[0]
    inside = (draws[:, 0] ** 2).sum(1)
    assert ((inside > band.y[0]) & (inside < band.y[2])).mean() == pytest.approx(0.95, abs=0.015)


def test_smoothing_is_for_the_eye_only(random: xr.Dataset) -> None:
    plain, smooth = table_overlaps(random), table_overlaps(random, smooth=True)
    assert smooth.data[0].zsmooth == "best"
    np.testing.assert_array_equal(plain.data[0].z, smooth.data[0].z)


def test_any_layer_can_be_drawn(random: xr.Dataset) -> None:
    figure = attention_overlaps(random, layer=1)
    assert "Layer 1" in figure.layout.title.text
    here = random["overlap"].sel(layer=1, matrix="Q", table="P").values * D
    np.testing.assert_allclose(figure.data[0].customdata, here, rtol=1e-6)


def test_figures_of_every_odd_result_can_be_written(rotary: xr.Dataset) -> None:
    constant = positions.compute(gpt2(set_tables(P=torch.ones(CONTEXT, D))))
    one = positions.compute(gpt2(n_positions=1))
    image = positions.compute(tiny("vit"))
    for result in (rotary, constant, one, image):
        assert findings_of("positions", result)
        for figure in figures_of("positions", result).values():
            assert figure.to_html(include_plotlyjs=False).rstrip().endswith("</html>")
            assert figure.layout.template.layout.font.color == theme.TEXT


# Tables and files


def test_the_table_has_one_row_per_layer_matrix_head_and_table(random: xr.Dataset) -> None:
    table = positions.table(random)
    assert len(table) == 2 * 2 * (6 + 4 * 4)
    row = table[(table["layer"] == 1) & (table["matrix"] == "V") & (table["head"] == "L1H2") & (table["table"] == "E")]
    assert row["alignment"].item() == float(random["head_alignment_V"].sel(layer=1, kv_head=2, table="E"))
    assert row["alignment_chance"].item() == pytest.approx(random.attrs["k"] / D)


def test_kv_heads_of_a_grouped_model_are_labelled_as_such(rotary: xr.Dataset) -> None:
    table = positions.table(rotary)
    assert set(table[(table["matrix"] == "K") & (table["layer"] == 0)]["head"]) == {"all", "L0K0", "L0K1"}


@pytest.mark.parametrize("ending", [".nc", ".csv", ".parquet", ".json"])
def test_every_kind_of_file_holds_the_result(random: xr.Dataset, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"result{ending}"
    save_result(random, path, table=positions.table, as_json=positions.as_json)
    if ending == ".nc":
        with xr.open_dataset(path, engine="h5netcdf") as read:
            np.testing.assert_array_equal(read["overlap"], random["overlap"])
            assert read.attrs["null"] == random.attrs["null"]
    elif ending == ".json":
        document = json.loads(path.read_text())
        assert document["schema"] == "headspan.positions/1"
        assert len(document["deciles"]) == 40
        assert document["corners"][1]["mass"] == pytest.approx(float(random["table_corner"][0, 0, 1]))
        assert document["logits"]["heads"][2]["constant"] == float(random["logit_share"][2, 4])
    else:
        read = pd.read_csv(path) if ending == ".csv" else pd.read_parquet(path)
        pd.testing.assert_frame_equal(read, positions.table(random))


# The command

app = typer.Typer()
app.command("positions")(command)
app.command("other")(lambda: None)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["positions", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_prints_tables_layers_and_what_is_left_out(stories: Path) -> None:
    text = run(str(stories))
    assert "Energy shared with tokens, as a multiple of chance" in text
    assert "Left out: everything about positions: no learned position table, rotary positions" in text


def test_the_command_prints_deciles_and_logits_where_both_tables_are_there(tmp_path: Path) -> None:
    model = next(case for case in CASES if case.name == "gpt2").model()
    model.float().save_pretrained(tmp_path / "model")
    text = run(str(tmp_path / "model"), "--k", "3")
    assert "Mass of the top position directions on the first and last tenth" in text
    assert "Logits of layer 0" in text
    assert "Left out" not in text


def test_the_command_writes_json_and_files(stories: Path, tmp_path: Path) -> None:
    document = json.loads(run(str(stories), "--json", "--k", "5", "--fold", "layernorm", "-o", str(tmp_path / "r.nc")))
    assert document["provenance"]["k"] == 5
    assert document["provenance"]["fold"] == "layernorm"
    assert {row["table"] for row in document["matrices"]} == {"E"}
    with xr.open_dataset(tmp_path / "r.nc", engine="h5netcdf") as read:
        assert "overlap_full" not in read
    run(str(stories), "--full", "-o", str(tmp_path / "full.nc"))
    with xr.open_dataset(tmp_path / "full.nc", engine="h5netcdf") as read:
        assert read["overlap_full"].shape == (5, 7, 1, 64, 64)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--k", "65"], ShapeError, r"k needs to be in 1..64, the rank of the token table, found 65"),
        (["--centring", "cube"], ShapeError, "centring 'cube' is unknown"),
        (["-o", "result.xls"], HeadspanError, "cannot write 'result.xls'"),
    ],
)
def test_the_command_refuses_what_it_does_not_know(
    stories: Path, arguments: list[str], error: type[HeadspanError], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(str(stories), *arguments)


def test_a_checkpoint_without_any_table_is_refused_in_one_line(stories: Path, tmp_path: Path) -> None:
    tensors = load_file(stories / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if "embed" not in name and "lm_head" not in name}
    assert len(kept) < len(tensors)
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((stories / "config.json").read_text())
    assert obstacles(headspan.open(tmp_path))["positions"] == "none of W_E, W_pos is in this checkpoint"
    with pytest.raises(UnsupportedModel, match=r"does not apply to .*: none of W_E, W_pos is in this checkpoint"):
        run(str(tmp_path))
