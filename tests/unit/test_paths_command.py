"""`headspan paths`: the average divergence is a cosine, for parameters of any kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headspan.cli.main import app


def test_the_average_is_near_its_law_and_the_page_is_written(tmp_path: Path) -> None:
    arguments = ["paths", "--size", "20", "--radius", "1", "--radius", "4", "--pairs", "300", "--angle", "60"]
    done = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "paths.html")])
    assert done.exit_code == 0, done.output
    assert "300 pairs of 20 entries at 60 degrees" in done.output
    assert "KL along great circles" in (tmp_path / "paths.html").read_text()


@pytest.mark.parametrize("wrong", [["--angle", "180"], ["--radius", "0"], ["--radius", "-1"], ["--angle", "nan"]])
def test_impossible_parameters_are_refused(wrong: list[str]) -> None:
    done = CliRunner().invoke(app, ["paths", *wrong])
    assert done.exit_code != 0
    assert "an angle lies between 0 and 180 degrees" in str(done.exception)
