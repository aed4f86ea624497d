"""Pictures of the report for these pages: `python -m docs.make_report_shots [FOLDER]`.

Reports of GPT-2's attention and of the demo model are written to FOLDER (a temporary one by default), or taken from it
where they are there already, and photographed in chromium.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import headspan
from docs.make_figures import GPT2, IMAGES, few_colors, model
from tests.browser.chromium import opened, running_browser

SHOTS = {
    "report-wiring": ("gpt2", "head=L4H11", None),
    "report-beside": ("gpt2", "beside=1&layers=3-9", ".diagram"),
    "report-card": ("demo", "head=L0H3", ".card"),
}
"""File name -> page, view, and the part to show (the first screen by default)."""


def page(name: str, folder: Path) -> Path:
    """The report of a model, written if it is not there."""
    path = folder / f"{name}.html"
    if not path.is_file():
        headspan.report(model(GPT2) if name == "gpt2" else name, path)
    return path


def main(folder: Path) -> None:
    """Take every picture."""
    with running_browser() as browser:
        for file, (name, view, part) in SHOTS.items():
            with opened(browser, page(name, folder), view, 1440, 900, device_scale_factor=1.5) as shown:
                shown.settle()
                target = shown.page if part is None else shown.locator(part)
                (IMAGES / f"{file}.png").write_bytes(few_colors(target.screenshot()))
                sys.stdout.write(f"{file}.png\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
