"""What `import headspan` offers: one function per lens, the verbs, typed for editors, and quick to load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import headspan
from docs.make_stub import STUB, stub
from headspan.lenses.catalog import lenses

SOURCE = Path(headspan.__file__).parent


def test_every_public_name_is_there() -> None:
    for name in dir(headspan):
        assert getattr(headspan, name) is not None


def test_no_public_name_is_that_of_a_module() -> None:
    modules = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert not modules & {*headspan.VERBS, *lenses()}


def test_no_module_of_a_lens_bears_the_name_of_its_function() -> None:
    for lens in lenses().values():
        folder = SOURCE / "lenses" / lens.name
        assert not (folder / f"{lens.name}.py").exists()


def test_the_stub_is_what_the_package_offers() -> None:
    assert STUB.read_text(encoding="utf-8") == stub(), "run `make stub`"


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        headspan.nonsense  # noqa: B018


@pytest.mark.parametrize("command", ["import headspan; dir(headspan)", "import headspan.cli.main"])
def test_names_and_help_load_nothing_heavy(command: str) -> None:
    heavy = ("torch", "numpy", "xarray", "pandas", "plotly", "scipy", "sklearn", "networkx", "transformers")
    code = f"{command}; import sys, json; print(json.dumps([m for m in {heavy} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_numeric_lenses_import_no_library_of_drawing_graphs_or_learning() -> None:
    program = (
        "import sys, headspan\n"
        "for name in ('ranks', 'affinity', 'spectra'): getattr(headspan, name)('demo')\n"
        "sys.exit(str([one for one in ('plotly', 'networkx', 'sklearn') if one in sys.modules] or ''))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
