"""Build the wheel, install it into a fresh environment without constraints.txt, and use it.

    python .github/check_wheel.py newest|oldest [--torch VERSION] [--folder DIR]

`newest` takes the newest versions that the ranges of pyproject.toml allow, `oldest` the lowest ones. `--torch` pins
torch, whose newest build may bring gigabytes. The environment stays in the folder, to look into a failure.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
USES = (
    ["headspan", "--version"],
    ["headspan", "inspect", "demo", "--json"],
    ["headspan", "affinity", "demo", "--json", "-o", "affinity.nc"],
    ["headspan", "report", "demo", "-o", "report.html"],
    ["python", "-c", "import headspan as hs; print(hs.load('affinity.nc').top(3))"],
)


def lowest(extras: tuple[str, ...] = ("run",)) -> list[str]:
    """Every requirement of the package at the lowest version that its range allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]
    bounds = [re.fullmatch(r"([A-Za-z0-9_.-]+)>=([0-9.]+).*", one) for one in asked]
    return [f"{bound[1]}~={_three(bound[2])}" for bound in bounds if bound is not None]


def _three(version: str) -> str:
    """A version of three numbers, so that `~=` admits its bug fixes and nothing else."""
    return ".".join([*version.split("."), "0", "0"][:3])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", choices=("newest", "oldest"))
    parser.add_argument("--torch", default="")
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp())
    venv.create(folder / "env", with_pip=True)
    scripts = folder / "env" / "bin"
    pip = [str(scripts / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "build"], check=True)
    subprocess.run([scripts / "python", "-m", "build", "--outdir", folder / "dist", ROOT], check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    pins = lowest() if given.versions == "oldest" else []
    if given.torch:
        pins = [*(pin for pin in pins if not pin.startswith("torch")), f"torch=={given.torch}"]
    subprocess.run([*pip, f"{wheel}[run]", *pins], check=True)
    for use in USES:
        sys.stdout.write(f"$ {' '.join(use)}\n")
        sys.stdout.flush()
        subprocess.run([scripts / use[0], *use[1:]], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    sys.stdout.write(f"the wheel works with the {given.versions} versions\n")


if __name__ == "__main__":
    main()
