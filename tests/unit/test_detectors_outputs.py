"""Detectors, told: files, findings, figures, the command, and labels for affinity."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer
import xarray as xr
from headspan.figures import figures_of
from headspan.findings import findings_of
from headspan.lenses.saving import save_result
from typer.testing import CliRunner

from headspan.errors import HeadspanError
from headspan.lenses import detect
from headspan.lenses.affinity.command import affinity as affinity_command
from headspan.lenses.detect.command import detect as command
from headspan.runtime import RunnableModel, encoded, forward, open_runnable
from headspan.runtime.detectors import detect as scores_of
from tests.unit.running_models import TEXT, running


@pytest.fixture(scope="module")
def demo() -> xr.Dataset:
    return detect.compute(open_runnable("demo"))


@pytest.fixture(scope="module")
def encoder() -> xr.Dataset:
    return detect.compute(running("word-piece", causal=False), texts=[TEXT * 12], length=10, seeds=3)


@pytest.mark.parametrize("ending", [".nc", ".csv", ".json", ".parquet"])
def test_a_result_survives_a_file(tmp_path: Path, ending: str, encoder: xr.Dataset) -> None:
    path = tmp_path / f"result{ending}"
    save_result(encoder, path, table=detect.table, as_json=detect.as_json)
    if ending == ".nc":
        with xr.open_dataset(path, engine="h5netcdf") as read:
            xr.testing.assert_equal(read.load(), encoder)
    else:
        assert path.stat().st_size > 500


def test_findings_name_the_heads(demo: xr.Dataset) -> None:
    text = " ".join(finding.statement for finding in findings_of("detect", demo))
    assert "Previous-token heads, which look at the previous token: L0H3; 1 of 16." in text
    assert "Induction heads" in text
    assert "No head passes 0.4 for: duplicate token" in text
    assert "identity score -0.48 from the weights" in text
    assert all(finding.expected is not None for finding in findings_of("detect", demo))


def test_figures_show_the_scores(demo: xr.Dataset, encoder: xr.Dataset) -> None:
    drawn = figures_of("detect", demo)
    assert list(drawn) == ["Detector scores", "Identity from the weights"]
    panels = drawn["Detector scores"].data
    np.testing.assert_array_equal(panels[0].z, demo["score"].values[0, 0])
    assert [panels[1].x.tolist(), panels[1].y.tolist()] == [[3], [0]]
    np.testing.assert_array_equal(drawn["Identity from the weights"].data[0].z, demo["identity_weights"].values)
    assert len(figures_of("detect", encoder)["Detector scores"].data) == 2 * 5 * 2


app = typer.Typer()
app.command("detect")(command)
app.command("affinity")(affinity_command)


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
    assert document["schema"] == "headspan.detect/1"
    assert set(document["labelled"]) == {"repeated random tokens", "text"}
    assert len(document["heads"]) == 40 * (2 * 5 + 1)


def test_weights_alone_suffice_for_identity(gpt2_attention: Path) -> None:
    document = json.loads(run("detect", str(gpt2_attention), "--weights-only", "--json"))
    lowest = min(document["heads"], key=lambda row: row["score"])
    assert lowest["head"] == "L4H7"
    with pytest.raises(HeadspanError, match="cannot be run: the checkpoint is partial"):
        run("detect", str(gpt2_attention))


def test_a_text_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HeadspanError, match="is not text in UTF-8"):
        run("detect", "demo", "--text", str(tmp_path / "bytes"))
    with pytest.raises(HeadspanError, match=r"cannot be read: No such file"):
        run("detect", "demo", "--text", str(tmp_path / "none"))


def test_affinity_uses_detected_labels() -> None:
    document = json.loads(run("affinity", "demo", "--labels", "detected", "--json"))
    assert document["labels"]["source"].startswith("detected on repeated random tokens")
    assert {row["target"] for row in document["detection"]} >= {"previous_token", "induction", "any class"}


def test_prompts_of_ids_are_scored_like_any(demo: xr.Dataset) -> None:
    model: RunnableModel = open_runnable("demo")
    scores, chance = scores_of(forward(model, encoded(model, [1, 2, 3, 1, 2, 3]).tokens))
    assert scores.shape == (5, 2, 8)
    assert chance[0] == pytest.approx(np.mean([1 / (i + 1) for i in range(1, 6)]))
