"""Build the distributions, install the wheel into a fresh environment without constraints.txt, and use it.

    python .github/check_wheel.py newest|oldest [--torch VERSION] [--folder DIR] [--tests]

1. The wheel alone, with the newest versions that the ranges of pyproject.toml allow, or with the lowest ones.
2. The same with the extra `run`, at its own newest or lowest version; it may raise what the core has.
3. With `--tests`, unit tests out of the unpacked source distribution, against the installed wheel.

`--torch` pins torch, whose newest build may bring gigabytes. The environment stays in the folder, to look into a
failure.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = (
    ["headspan", "--version"],
    ["headspan", "inspect", "demo", "--json"],
    ["headspan", "affinity", "demo", "--json", "-o", "affinity.nc"],
    ["headspan", "spectra", "demo", "--json"],
    ["headspan", "similarity", "demo", "--json"],
    ["headspan", "vocabulary", "demo", "--json"],
    ["headspan", "report", "demo", "-o", "report.html"],
    ["python", "-c", "import headspan as hs; r = hs.load('affinity.nc'); r.top(3), r.figures, r.to_networkx()"],
)
RUNNING = (["headspan", "detect", "demo", "--json"], ["headspan", "report", "demo", "-o", "running.html"])
TESTS = ("statistics", "subspaces", "distributions", "test_affinity.py", "test_result.py", "test_figures_affinity.py")


def lowest(extra: str | None = None) -> list[str]:
    """Requirements of the core, or of one extra, at the lowest versions that their ranges allow."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    bounds = [re.fullmatch(r"([A-Za-z0-9_.-]+)>=([0-9.]+).*", one) for one in asked]
    return [f"{bound[1]}~={_three(bound[2])}" for bound in bounds if bound is not None]


def _three(version: str) -> str:
    """A version of three numbers, so that `~=` admits its bug fixes and nothing else."""
    return ".".join([*version.split("."), "0", "0"][:3])


def use(scripts: Path, commands: tuple[list[str], ...], folder: Path) -> None:
    """Run commands of the environment; the first that fails ends the check."""
    for command in commands:
        sys.stdout.write(f"$ {' '.join(command)}\n")
        sys.stdout.flush()
        subprocess.run([scripts / command[0], *command[1:]], check=True, cwd=folder, stdout=subprocess.DEVNULL)


def run_tests(scripts: Path, pip: list[str], folder: Path) -> None:
    """Unit tests of the source distribution; its own `src` is put aside, so that the wheel is what is tested."""
    (packed,) = (folder / "dist").glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    source = folder / packed.name.removesuffix(".tar.gz")
    (source / "src").rename(folder / "src")
    subprocess.run([*pip, "beartype", "hypothesis", "ipython", "nbformat", "pytest<9.2"], check=True)
    chosen = [f"tests/unit/{name}" for name in TESTS]
    subprocess.run(
        [scripts / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen], check=True, cwd=source
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", choices=("newest", "oldest"))
    parser.add_argument("--torch", default="")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--tests", action="store_true")
    given = parser.parse_args()
    folder, old = given.folder or Path(tempfile.mkdtemp()), given.versions == "oldest"
    venv.create(folder / "env", with_pip=True)
    scripts = folder / "env" / "bin"
    pip = [str(scripts / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "build"], check=True)
    subprocess.run([scripts / "python", "-m", "build", "--outdir", folder / "dist", ROOT], check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    torch = [f"torch=={given.torch}"] if given.torch else []
    pins = [pin for pin in (lowest() if old else []) if not (torch and pin.startswith("torch~"))]
    subprocess.run([*pip, str(wheel), *pins, *torch], check=True)
    use(scripts, CORE, folder)
    subprocess.run([*pip, f"{wheel}[run]", *(lowest("run") if old else []), *torch], check=True)
    use(scripts, RUNNING, folder)
    if given.tests:
        run_tests(scripts, pip, folder)
    sys.stdout.write(f"the wheel works with the {given.versions} versions\n")


if __name__ == "__main__":
    main()
