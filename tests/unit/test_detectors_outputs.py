"""Detectors, told: files, findings, figures, the command, and labels for affinity."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import headspan
from headspan.cli.main import app
from headspan.errors import HeadspanError
from headspan.labels import labeled
from headspan.lenses.detect.schema import DETECTORS, REPEATED, SCHEMA
from headspan.lenses.run import reopened
from headspan.result import Result
from headspan.runtime import RunnableModel, encoded, forward, open_runnable
from headspan.runtime.detectors import detect as scores_of
from tests.unit.running_models import TEXT, running


@pytest.fixture(scope="module")
def demo() -> Result:
    return headspan.detect("demo")


@pytest.fixture(scope="module")
def encoder() -> Result:
    return headspan.detect(running("word-piece", causal=False), text=TEXT * 12, length=10, seeds=3)


@pytest.mark.parametrize("ending", [".nc", ".csv", ".json", ".parquet"])
def test_a_result_survives_a_file(tmp_path: Path, ending: str, encoder: Result) -> None:
    path = encoder.save(tmp_path / f"result{ending}")
    if ending == ".nc":
        xr.testing.assert_equal(headspan.load(path).dataset(), encoder.dataset())
    else:
        assert path.stat().st_size > 500


def test_files_of_version_1_are_read(tmp_path: Path, encoder: Result) -> None:
    """There detectors were an axis."""
    grid = encoder.grid()
    old = {"score": "", "standard_error": "_se", "chance": "_null", "label": "_label"}
    made = {name: xr.concat([grid[one + part] for one in DETECTORS], "detector") for name, part in old.items()} | {
        f"identity_weights{a}": grid[f"identity_weights{b}"]
        for a, b in (("", ""), ("_chance", "_null"), ("_sd", "_null_sd"))
    }
    coords = {"detector": np.array(list(DETECTORS), dtype=object)}
    attrs = {**encoder.attrs, "schema": "headspan.detect/1"}
    xr.Dataset(made, coords=coords, attrs=attrs).to_netcdf(tmp_path / "old.nc", engine="netcdf4")
    read = headspan.load(tmp_path / "old.nc")
    xr.testing.assert_equal(read.dataset(), encoder.dataset().drop_vars("identity_weights_z"))
    assert [one.statement for one in read.findings] == [one.statement for one in encoder.findings]


def test_rows_of_1024_heads_are_those_of_each_head() -> None:
    draw = np.random.default_rng(0)
    dims, prompts = ("prompt", "layer", "head"), ["repeated", "text"]
    made = {
        name: (dims, draw.standard_normal((2, 32, 32)))
        for name, one in SCHEMA.declared("").items()
        if one.dims == ("head", "prompt") and not name.endswith("_null")
    }
    result = xr.Dataset(made, coords={"layer": np.arange(32), "prompt": prompts})
    result["identity_weights"] = (dims[1:], draw.standard_normal((32, 32)))
    table = reopened(headspan.detect("demo", weights_only=True).lens, {"": labeled(result)}, {}).table()
    assert len(table) == 1024 * 2
    for layer, head in ((0, 0), (0, 31), (1, 0), (17, 5), (31, 31)):
        start, here = 2 * (32 * layer + head), result.isel(layer=layer, head=head)
        rows = table.iloc[start : start + 2]
        assert set(rows["head"]) == {f"L{layer}H{head}"}
        assert rows["prompt"].tolist() == prompts
        for name in made:
            assert rows[name].tolist() == here[name].values.tolist()
        assert set(rows["identity_weights"]) == {float(here["identity_weights"])}


def test_findings_name_the_heads(demo: Result) -> None:
    text = " ".join(finding.statement for finding in demo.findings)
    assert "L0H3 is the only previous-token head of 16: it attends to the previous token, with score 0." in text
    assert "6 of 16 heads are induction heads, which attend to the token after an earlier copy" in text
    assert "No head scores above 0.4 on repeated random tokens as: duplicate token" in text
    assert "identity score -0.48 from the weights" in text
    assert all(finding.expected is not None for finding in demo.findings)


def test_figures_show_the_scores(demo: Result, encoder: Result) -> None:
    drawn, grid = demo.figures, demo.grid()
    assert list(drawn) == ["Detector scores", "Identity from the weights"]
    panels = drawn["Detector scores"].data
    np.testing.assert_array_equal(panels[0].z, grid["previous_token"].sel(prompt=REPEATED))
    assert [panels[1].x.tolist(), panels[1].y.tolist()] == [[3], [0]]
    np.testing.assert_array_equal(drawn["Identity from the weights"].data[0].z, grid["identity_weights"].values)
    assert len(encoder.figures["Detector scores"].data) == 2 * 5 * 2


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_prints_heads_per_detector_and_identity(tmp_path: Path) -> None:
    text = run("detect", "demo", "--seeds", "2", "-o", str(tmp_path / "r.nc"))
    assert "L0H3" in text
    assert "previous_token" in text
    assert "Identity from the weights, lowest and highest of 16 heads" in text
    assert (tmp_path / "r.nc").is_file()


def test_the_command_reads_text_and_writes_json(stories: Path, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("Once upon a time, there was a little girl. She had a dog, and the dog had a ball. " * 8)
    document = json.loads(run("detect", str(stories), "--text", str(file), "--json", "--seeds", "2"))
    assert document["schema"] == "headspan.detect/2"
    assert {row["prompt"] for row in document["heads"]} == {"repeated random tokens", "text"}
    assert len(document["heads"]) == 40 * 2
    assert any(row["previous_token_label"] for row in document["heads"])


def test_weights_alone_suffice_for_identity(gpt2_attention: Path) -> None:
    document = json.loads(run("detect", str(gpt2_attention), "--weights-only", "--json"))
    lowest = min(document["heads"], key=lambda row: row["identity_weights"])
    assert lowest["head"] == "L4H7"
    with pytest.raises(HeadspanError, match="cannot be run: this checkpoint has no"):
        run("detect", str(gpt2_attention))


def test_a_text_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HeadspanError, match="is not text in UTF-8"):
        run("detect", "demo", "--text", str(tmp_path / "bytes"))
    with pytest.raises(HeadspanError, match=r"cannot be read: No such file"):
        run("detect", "demo", "--text", str(tmp_path / "none"))


def test_affinity_uses_detected_labels() -> None:
    document = json.loads(run("affinity", "demo", "--labels", "detected", "--json"))
    assert document["provenance"]["labels"].startswith("detected on repeated random tokens")
    assert {row["target"] for row in document["detection"]} >= {"previous_token", "induction", "any class"}


def test_prompts_of_ids_are_scored_like_any() -> None:
    model: RunnableModel = open_runnable("demo")
    scores, chance = scores_of(forward(model, encoded(model, [1, 2, 3, 1, 2, 3]).tokens))
    assert scores.shape == (5, 2, 8)
    assert chance[0] == pytest.approx(np.mean([1 / (i + 1) for i in range(1, 6)]))
