"""Models inside TransformerLens' bridge or nnsight's wrapper open with exactly the weights that these tools have."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.golden import transformer_lens_bridges as script
from tests.golden import transformer_lens_oracle as oracle

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("transformer_lens")]  # one environment, built once

NEEDED = ("nnsight==0.8.1", "scipy", "threadpoolctl", "msgspec", "xarray")
"""What headspan needs there to open a model, and nnsight."""
FAMILIES = {"bridge": "llama", "nnsight": "llama", "processed": "hooked_transformer"}


@pytest.fixture(scope="module")
def lines(stories: Path) -> dict[tuple[str, str], tuple[float, str]]:
    try:
        python = oracle.environment(NEEDED)
    except oracle.NoOracle as reason:
        pytest.skip(str(reason))
    run = subprocess.run(
        [str(python), str(Path(script.__file__)), str(stories)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **oracle.OFFLINE},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    rows = [line.split() for line in run.stdout.splitlines()]
    return {(label, name): (float(worst), family) for label, name, worst, family in rows}


@pytest.mark.parametrize("label", FAMILIES)
def test_weights_of_a_wrapped_model_are_those_of_the_tool(
    lines: dict[tuple[str, str], tuple[float, str]], label: str
) -> None:
    found = {name: row for (one, name), row in lines.items() if one == label}
    assert len(found) == 6
    assert all(row == (0.0, FAMILIES[label]) for row in found.values()), found


def test_the_comparison_page_says_what_transformer_lens_has(lines: dict[tuple[str, str], tuple[float, str]]) -> None:
    found = {name: wrong for (label, name), (wrong, _) in lines.items() if label == "claim"}
    assert len(found) == 7
    assert not [name for name, wrong in found.items() if wrong], found
