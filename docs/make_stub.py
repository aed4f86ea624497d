"""Write `src/headspan/__init__.pyi`, which tells editors and type checkers what `import headspan` offers.

The package itself loads its parts when they are used, so that nothing static could find them. Run by `make stub`; a
test compares the file with what this makes.
"""

from __future__ import annotations

from pathlib import Path

import headspan
from headspan.lenses.catalog import lenses

STUB = Path(headspan.__file__).with_suffix(".pyi")


def stub() -> str:
    """The text of the stub: every public name imported from where it is."""
    places = {name: place.partition(":")[::2] for name, place in headspan.VERBS.items()}
    places |= {name: (lens.package, name) for name, lens in lenses().items() if lens.package.startswith("headspan.")}
    places["HeadspanError"] = ("headspan.errors", "HeadspanError")
    lines = sorted(f"from {module} import {own} as {name}" for name, (module, own) in places.items())
    head = '"""Made by docs/make_stub.py from the verbs and the lenses; do not edit."""\n'
    return "\n".join([head, *lines, "", "VERBS: dict[str, str]", "__version__: str", ""])


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
