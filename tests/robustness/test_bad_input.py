"""Broken and hostile checkpoints: one line that says what was found, exit code 2, nothing written, nothing run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from headspan.checkpoint import open_checkpoint
from headspan.cli.main import app
from headspan.errors import CheckpointError, HeadspanError
from tests.browser.page_elements import page_elements
from tests.conftest import Program
from tests.robustness import hostile, hostile_gguf

by_case = pytest.mark.parametrize("name", hostile.CASES)


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@by_case
def test_a_bad_checkpoint_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    make, message = hostile.CASES[name]
    folder = tmp_path / "model"
    folder.mkdir()
    make(folder)
    before = tree(tmp_path)
    with pytest.raises(HeadspanError, match=message) as refusal:
        open_checkpoint(folder)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500
    assert tree(tmp_path) == before


def test_the_intact_checkpoint_behind_the_cases_opens(tmp_path: Path) -> None:
    hostile.write(tmp_path)
    assert open_checkpoint(tmp_path).heads().W_Q.shape == (1, 2, 4, 2)


def test_the_intact_gguf_file_behind_the_cases_opens(tmp_path: Path) -> None:
    hostile_gguf.broken(hostile_gguf.INTACT)(tmp_path)
    heads = open_checkpoint(tmp_path).heads()
    assert heads.W_V.shape == (1, 2, 32, 16)
    assert heads.W_V[0, 0, :, 0].tolist() == [0.5 * number for number in range(32)]


def test_a_scale_that_is_no_number_is_refused_when_its_tensor_is_read(tmp_path: Path) -> None:
    tensors = (*hostile_gguf.TENSORS[:-1], hostile_gguf.NAN_SCALE)
    hostile_gguf.broken(replace(hostile_gguf.INTACT, tensors=tensors))(tmp_path)
    heads = open_checkpoint(tmp_path).heads()
    assert heads.W_Q.isfinite().all()
    with pytest.raises(CheckpointError, match=r"'model\.layers\.0\.self_attn\.v_proj\.weight' holds NaN or Inf"):
        _ = heads.W_V


@pytest.mark.parametrize(
    "name", ["truncated file", "GGUF with a list of 2^60", "code in a pickle", "config with 0 heads", "empty folder"]
)
def test_the_command_line_prints_one_line_and_exits_with_2(name: str, tmp_path: Path, program: Program) -> None:
    make, message = hostile.CASES[name]
    make(tmp_path)
    before = tree(tmp_path)
    done = program("report", str(tmp_path), "-o", str(tmp_path / "out.html"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"headspan: .+\n", done.stderr)
    assert re.search(message, done.stderr)
    assert tree(tmp_path) == before


def test_debug_shows_the_trace(tmp_path: Path, program: Program) -> None:
    done = program("--debug", "inspect", str(tmp_path))
    assert done.returncode == 2
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_reported_by_the_analysis_that_reads_them(value: float, tmp_path: Path) -> None:
    hostile.write(tmp_path, hostile.safetensors_bytes(*hostile.header_and_data(value)))
    open_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match=r"tensor 'h\.0\.attn\.c_attn\.weight' holds NaN or Inf"):
        _ = open_checkpoint(tmp_path).heads().W_Q


def test_a_file_that_shrinks_after_opening_is_reported(tmp_path: Path) -> None:
    hostile.write(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"short")
    with pytest.raises(CheckpointError, match=r"'model\.safetensors' can no longer be read"):
        _ = checkpoint.heads().W_Q


def test_a_tensor_name_with_a_newline_and_html_stays_harmless(tmp_path: Path) -> None:
    header, data = hostile.header_and_data()
    nasty = "h.0.attn.<script>alert(1)</script>\n[bold]"
    header[nasty] = {"dtype": "F32", "shape": [0], "data_offsets": [len(data), len(data)]}
    folder = tmp_path / "<img src=x onerror=alert(2)>\n[red]name"
    folder.mkdir()
    hostile.write(folder, hostile.safetensors_bytes(header, data))
    checkpoint = open_checkpoint(folder)
    assert nasty in checkpoint.stack().unclaimed()
    shown = CliRunner().invoke(app, ["inspect", str(folder)])
    assert shown.exit_code == 0
    assert "\\n[red]name" in shown.stdout.replace("\n", "").replace(" ", "")
    page = tmp_path / "report.html"
    assert CliRunner().invoke(app, ["report", str(folder), "-o", str(page)]).exit_code == 0
    html = page.read_text()
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert html.count("alert(1)") == html.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 0
    in_data = html.count('"\\u003cimg src=x onerror=alert(2)>')  # JSON that no parser of HTML takes for a tag
    assert html.count("alert(2)") == html.count("&lt;img src=x onerror=alert(2)&gt;") + in_data > in_data
    assert {"img", "iframe", "object", "link"}.isdisjoint(element.tag for element in page_elements(html))


def test_parts_that_are_quantized_but_not_the_attention_do_not_stop_anyone(tmp_path: Path) -> None:
    header, data = hostile.header_and_data()
    header["h.0.mlp.c_fc.weight"] = {"dtype": "U8", "shape": [4, 16], "data_offsets": [len(data), len(data) + 64]}
    config = {**hostile.CONFIG, "quantization_config": {"quant_method": "mxfp4"}}
    hostile.write(tmp_path, hostile.safetensors_bytes(header, data + bytes(64)), config)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.packing == "mxfp4"
    assert torch.equal(checkpoint.heads().W_Q, torch.full((1, 2, 4, 2), 0.5))
