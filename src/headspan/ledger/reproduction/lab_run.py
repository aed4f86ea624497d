"""The training run that a page about learning is drawn from: one that was given, or one trained for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import plotly.graph_objects as go
import xarray as xr

from headspan.errors import HeadspanError, UnsupportedModel
from headspan.lab.channel_course import channel_course
from headspan.lab.figures import figures
from headspan.lab.recipe import preset
from headspan.lab.session import run_once
from headspan.lab.study import Bench, study
from headspan.ledger.lab_numbers import NEEDED, Numbers, kept_runs, numbers_in, run_folder
from headspan.ledger.reproduction.exhibit import AtHand

OWN = "a run of the preset smoke, random seed 0, trained for this page"
SHOWN_EXPERIMENTS = (*NEEDED, "path", "sensitivity")


@dataclass(frozen=True)
class LabRun:
    """A training run: what it is called, what was asked of it, and its numbers."""

    name: str
    tree: xr.DataTree
    channels: xr.Dataset | str
    """Channels over training, or why there are none."""

    @property
    def numbers(self) -> Numbers:
        return numbers_in(self.tree)

    @property
    def track(self) -> xr.Dataset:
        return self.tree.to_dataset()

    def node(self, name: str) -> xr.Dataset:
        """What one experiment found; refused with the reason where the run does not allow it."""
        if name not in self.tree.children:
            raise UnsupportedModel(f"{self.name}: {self.tree.attrs.get(f'{name}_left_out', 'it was not asked')}")
        return self.tree.children[name].to_dataset(inherit=False)

    def drawn(self, *names: str) -> dict[str, go.Figure]:
        """Those of the run's figures that it has the numbers for."""
        found = figures(self.tree)
        return {name: found[name] for name in names if name in found}

    def beside_kept(self, columns: Sequence[str]) -> list[list[str]]:
        """Numbers of this run and of the kept ones, as a table."""
        rows = [("this run", self.numbers)]
        rows += [(f"{name}, seed {row['seed']:.0f}", row) for name, those in kept_runs().items() for row in those]
        header = ["run", *(name.replace("_", " ") for name in columns)]
        return [header, *([name, *(f"{row[column]:.3g}" for column in columns)] for name, row in rows)]


def lab_run(at_hand: AtHand) -> LabRun:
    """The run that a page is about, opened once."""
    found: LabRun = at_hand.once(("lab run",), lambda: _opened(at_hand))
    return found


def _opened(at_hand: AtHand) -> LabRun:
    """The first given model that a run ended in; a new run without one."""
    for model in at_hand.given:
        try:
            folder = run_folder(model.checkpoint)
        except HeadspanError:
            continue
        return _studied(folder, model.source)
    with TemporaryDirectory() as place:
        run_once(preset("smoke"), Path(place) / "run")
        return _studied(Path(place) / "run", OWN)


def _studied(folder: Path, name: str) -> LabRun:
    bench = Bench.of(folder)
    try:
        course: xr.Dataset | str = channel_course(bench)
    except HeadspanError as reason:
        course = str(reason)
    return LabRun(name, study(folder, SHOWN_EXPERIMENTS), course)
