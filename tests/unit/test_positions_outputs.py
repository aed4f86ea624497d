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
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import headspan
from headspan import theme
from headspan.cli.lens_commands import lens_command
from headspan.errors import ArgumentError, HeadspanError, UnsupportedModel
from headspan.lenses.positions import LENS
from headspan.lenses.positions.layer_figures import attention_overlaps
from tests.families.tiny_models import CASES
from tests.unit.positions_models import CONTEXT, VOCAB, D, basis, gpt2, made_of, set_tables, tiny

FALLING = np.geomspace(10, 0.1, D)
PARTS = {"": "", "_null": "_chance", "_z": "_z", "_log_p": "_log_p"}
"""Endings of names, and what they were in version 1."""


@pytest.fixture(scope="module")
def random() -> headspan.Result:
    return headspan.positions(gpt2())


@pytest.fixture(scope="module")
def planted() -> headspan.Result:
    """Tokens and positions on opposite ends, both with the same mean row."""
    B = basis()
    P = made_of(B[:, ::-1], FALLING, CONTEXT) + 3 * torch.as_tensor(B[:, 20])
    E = made_of(B, FALLING, VOCAB) + 3 * torch.as_tensor(B[:, 20])
    return headspan.positions(gpt2(set_tables(P, E)))


@pytest.fixture(scope="module")
def rotary() -> headspan.Result:
    return headspan.positions(tiny("llama"))


# Findings


def test_findings_of_tables_on_opposite_ends_say_so(planted: headspan.Result) -> None:
    found = planted.findings
    first = next(finding for finding in found if "last tenth" in finding.statement)
    here = planted.dataset().sel(centering="stored", k_choice="given").isel(decile=-1)
    assert (first.value, first.expected) == (float(here["decile_mass"]), float(here["decile_mass_null"]))
    assert first.p < 1e-6
    assert first.weight == 0.7
    means = next(finding for finding in found if "mean rows" in finding.statement)
    assert means.value == pytest.approx(1, abs=0.01)
    assert [f.weight for f in found] == sorted((f.weight for f in found), reverse=True)


def test_findings_of_random_tables_claim_nothing(random: headspan.Result) -> None:
    found = random.findings
    capture = next(finding for finding in found if "last tenth" in finding.statement)
    assert capture.weight == 0.2
    assert any("position directions are not sparse" in finding.statement for finding in found)
    assert any("Token embeddings do not avoid" in finding.statement for finding in found)
    assert any("Token embeddings are spread like random vectors" in finding.statement for finding in found)
    for finding in found:
        assert finding.expected is not None
        assert "Null" in finding.evidence or "null" in finding.evidence


def test_a_sparse_table_is_called_sparse_and_tokens_that_avoid_it_are_told() -> None:
    P = torch.zeros(CONTEXT, D, dtype=torch.float64)
    P[:, :5] = torch.randn(CONTEXT, 5, dtype=torch.float64)
    E = torch.randn(VOCAB, D, dtype=torch.float64)
    E[:, :5] *= 0.01
    text = " ".join(f.statement for f in headspan.positions(gpt2(set_tables(P, E)), k=5).findings)
    assert "position directions are sparse" in text
    assert "Token embeddings avoid the 5 coordinates" in text


def test_what_is_left_out_is_the_last_finding(rotary: headspan.Result) -> None:
    last = rotary.findings[-1]
    assert last.statement.startswith("Left out: position analyses: no learned position table (rotary")


# Figures


def test_figures_show_the_numbers_of_the_result(random: headspan.Result) -> None:
    drawn = random.figures
    assert list(drawn) == [
        "Spectra of the tables",
        "Capture",
        "Overlap of the tables",
        "Position directions in the stream",
        "Position directions by coordinate",
        "Position directions over positions",
        "Gains and positions",
        "Attention and the tables",
        "MLP and the tables",
        "Layers along the tables",
        "Logits of layer 0",
        "Angles between rows",
    ]
    dots = [trace for trace in drawn["Capture"].data if trace.mode == "markers"]
    np.testing.assert_array_equal(dots[0].y, random["capture"].sel(centering="stored", k_choice="given"))
    bars = drawn["Logits of layer 0"].data[3]
    shares = random["logit_share"].sel(term="position-position", head=["L0H0", "L0H1", "L0H2", "L0H3"])
    np.testing.assert_array_equal(bars.y[:-1], shares)
    panels = drawn["Attention and the tables"].data
    assert len(panels) == 8
    here = random["overlap"].sel(layer=0, matrix="K", table="E").values * D
    np.testing.assert_allclose(panels[5].customdata, here, rtol=1e-6)
    np.testing.assert_allclose(panels[5].z, np.log2(here), rtol=1e-5)


def test_the_band_of_the_null_holds_ninety_five_percent_of_random_directions(random: headspan.Result) -> None:
    band = random.figures["Capture"].data[0]
    k = random.attrs["k"]
    draws = np.linalg.qr(np.random.default_rng(0).standard_normal((4000, D, k)))[0]
    inside = (draws[:, 0] ** 2).sum(1)
    assert ((inside > band.y[0]) & (inside < band.y[2])).mean() == pytest.approx(0.95, abs=0.015)


def test_any_layer_can_be_drawn(random: headspan.Result) -> None:
    figure = attention_overlaps(random.grid(), layer=1)
    assert "Layer 1" in figure.layout.title.text
    here = random["overlap"].sel(layer=1, matrix="Q", table="P").values * D
    np.testing.assert_allclose(figure.data[0].customdata, here, rtol=1e-6)


def test_figures_of_every_odd_result_can_be_written(rotary: headspan.Result) -> None:
    constant = headspan.positions(gpt2(set_tables(P=torch.ones(CONTEXT, D))))
    one = headspan.positions(gpt2(n_positions=1))
    image = headspan.positions(tiny("vit"))
    for result in (rotary, constant, one, image):
        assert result.findings
        for figure in result.figures.values():
            assert figure.to_html(include_plotlyjs=False).rstrip().endswith("</html>")
            assert figure.layout.template.layout.font.color == theme.TEXT


# Tables and files


def test_tables_have_one_row_per_matrix_and_per_head_and_table(random: headspan.Result) -> None:
    matrices, heads, kv_heads = (random.table(name) for name in ("matrices", "heads", "kv_heads"))
    assert (len(matrices), len(heads), len(kv_heads)) == (2 * 6 * 2, 2 * 4 * 2, 2 * 4 * 2)
    row = kv_heads[(kv_heads["kv_head"] == "L1H2") & (kv_heads["table"] == "E")]
    assert row["head_alignment_V"].item() == float(random["head_alignment_V"].sel(kv_head="L1H2", table="E"))
    assert row["head_alignment_V_null"].item() == pytest.approx(random.attrs["k"] / D)
    assert row["head_alignment_V_p"].item() == np.exp(row["head_alignment_V_log_p"].item())


def test_the_strongest_matrices_have_their_null_beside_them(random: headspan.Result) -> None:
    rows = random.top(3)
    assert list(rows) == ["layer", "matrix", "table", "score", "expected", "z", "p"]
    assert rows["score"].tolist() == sorted(random["energy_alignment"].values.ravel(), reverse=True)[:3]


def test_kv_heads_of_a_grouped_model_are_labeled_as_such(rotary: headspan.Result) -> None:
    table = rotary.table("kv_heads")
    assert set(table[table["kv_head_layer"] == 0]["kv_head"]) == {"L0K0", "L0K1"}


@pytest.mark.parametrize("ending", [".nc", ".csv", ".parquet", ".json"])
def test_every_kind_of_file_holds_the_result(random: headspan.Result, tmp_path: Path, ending: str) -> None:
    path = random.save(tmp_path / f"result{ending}")
    if ending == ".nc":
        read = headspan.load(path)
        xr.testing.assert_equal(read.dataset(), random.dataset())
        assert read.attrs["null"] == random.attrs["null"]
    elif ending == ".json":
        document = json.loads(path.read_text())
        assert document["schema"] == "headspan.positions/2"
        assert len(document["deciles"]) == 40
        assert document["corners"][1]["table_corner"] == pytest.approx(float(random["table_corner"][0, 0, 1]))
        shares = {(row["head"], row["term"]): row["logit_share"] for row in document["logits"]}
        assert shares["L0H2", "constant"] == float(random["logit_share"].sel(head="L0H2", term="constant"))
        assert {head for head, _ in shares} == {"L0H0", "L0H1", "L0H2", "L0H3"}
        assert document["summary"]["mean_cosine"] == float(random["mean_cosine"])
    else:
        read = pd.read_csv(path) if ending == ".csv" else pd.read_parquet(path)
        pd.testing.assert_frame_equal(read, random.table(), check_dtype=False)


def test_files_of_version_1_are_read(random: headspan.Result, tmp_path: Path) -> None:
    renamed = {new: name for name, new in LENS.schema.renamed.items() if new != "centering"}
    stored = random.grid()
    logarithms = [name for name in stored.data_vars if str(name).endswith("_log_p")]
    stored = stored.drop_vars([f"{str(name).removesuffix('_log_p')}_p" for name in logarithms] + ["coordinate_count"])
    own = {name: stored[name].sel(layer=0).variable for name in ("logit_share", "logit_share_z", "logit_sd")}
    stored = stored.drop_vars(list(own)).assign(own)
    stored = stored.rename({name: renamed[str(name)] for name in stored.data_vars if str(name) in renamed})
    for old, new in (("decile", "decile_mass"), ("angle", "angles")):
        parts = {f"{new}{ours}": f"{old}{theirs}" for ours, theirs in PARTS.items() if f"{new}{ours}" in stored}
        moved = {name: stored[place].variable for place, name in parts.items()}
        stored = stored.drop_vars(list(parts)).assign(moved)
    stored = stored.rename(centering="centring").assign_coords(centring=["stored", "centred"])
    del stored.attrs["schema"], stored.attrs["centering"]
    stored.assign_attrs(layers_against="tables stored").to_netcdf(tmp_path / "old.nc", engine="netcdf4")
    read = headspan.load(tmp_path / "old.nc")
    xr.testing.assert_allclose(read.dataset()[list(random.dataset().data_vars)], random.dataset())
    assert [found.statement for found in read.findings] == [found.statement for found in random.findings]
    assert list(read.figures) == list(random.figures)


# The command

app = typer.Typer()
app.command("positions")(lens_command(LENS))
app.command("other")(lambda: None)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["positions", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_prints_tables_layers_and_what_is_left_out(stories: Path) -> None:
    text = run(str(stories))
    assert "Energy shared with tokens, as a multiple of what a random matrix shares" in text
    assert "Left out: position analyses: no learned position table (rotary positions)" in text


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
    assert "overlap_full" not in headspan.load(tmp_path / "r.nc")
    run(str(stories), "--full", "-o", str(tmp_path / "full.nc"))
    assert headspan.load(tmp_path / "full.nc")["overlap_full"].shape == (5, 7, 1, 64, 64)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--k", "65"], ArgumentError, r"k=65 is out of range; it is in 1\.\.64, the rank of the token table"),
        (["--centring", "cube"], ArgumentError, "centering='cube' is unknown"),
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
    reason = "needs one of W_E, W_pos; this checkpoint has none"
    assert headspan.open(tmp_path).skip_reasons()["positions"] == reason
    with pytest.raises(UnsupportedModel, match=f"positions does not apply to .*: it {reason}"):
        run(str(tmp_path))
