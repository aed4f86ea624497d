"""The worked examples of "how to add": their code is run as the pages say, file by file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headspan.checkpoint.families import FAMILIES
from tests.docs.pages import DOCS, blocks, run_page

FILES = ("__init__.py", "schema.py", "measurement.py")
MOST_LINES = 60


def test_the_described_family_reproduces_its_model() -> None:
    try:
        run_page(DOCS / "developing" / "family.md", {})
    finally:
        FAMILIES.pop("pocket", None)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's lens as a package of its own, registered by its entry point and by nothing else."""
    site = tmp_path_factory.mktemp("site")
    code = [block.text for block in blocks((DOCS / "developing" / "lens.md").read_text()) if block.language == "python"]
    files = dict(zip(FILES, code, strict=False))
    package = site / "headspan_echo"
    package.mkdir()
    for name, text in files.items():
        (package / name).write_text(text)
    (site / "test_echo.py").write_text(code[-1])
    about = site / "headspan_echo-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: headspan-echo\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[headspan.lenses]\necho = headspan_echo\n")
    return site


def with_echo(site: Path, *command: str) -> str:
    """What a command prints where the example is installed."""
    paths = [str(site), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, cwd=site)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_lens_is_short(installed: Path) -> None:
    lines = [line for name in FILES for line in (installed / "headspan_echo" / name).read_text().splitlines()]
    assert len([line for line in lines if line.strip()]) < MOST_LINES


def test_the_example_lens_passes_its_own_tests(installed: Path) -> None:
    told = with_echo(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_echo.py")
    assert "4 passed" in told


def test_the_example_lens_has_a_command(installed: Path) -> None:
    assert "echo" in with_echo(installed, "-m", "headspan", "--help")
    document = json.loads(with_echo(installed, "-m", "headspan", "echo", "demo", "--json"))
    assert document["schema"] == "headspan.echo/1"
    assert len(document["heads"]) == 16
    assert {"head", "echo", "echo_null", "echo_z", "echo_p"} <= set(document["heads"][0])
    with_echo(installed, "-m", "headspan", "echo", "demo", "-o", "echo.csv")
    assert (installed / "echo.csv").read_text().startswith("head,head_layer,head_index,echo,")


def test_the_example_lens_is_a_function_of_headspan(installed: Path) -> None:
    code = "import headspan; r = headspan.echo('demo'); print(list(r.top(3)), r['echo'].attrs['null'])"
    told = with_echo(installed, "-c", code)
    assert "['head', 'score', 'expected', 'z', 'p'] Independent random subspaces" in told


@pytest.mark.slow
def test_the_example_lens_is_in_the_report(installed: Path) -> None:
    with_echo(installed, "-m", "headspan", "report", "demo", "-o", "echo.html", "--fresh")
    page = (installed / "echo.html").read_text()
    assert 'id="echo"' in page
    assert '"title":"Echo","column":"echo.echo"' in page


@pytest.mark.slow
def test_the_example_lens_is_swept(installed: Path) -> None:
    with_echo(installed, "-m", "headspan", "sweep", "demo", "-o", "store", "--lenses", "echo", "--quiet")
    code = "from headspan.sweeps import open_store; print(open_store('store')['demo/echo'].echo.sizes['head'])"
    assert with_echo(installed, "-c", code).strip() == "16"
