"""Questions that are asked of a finished run by name; each answer is kept in the run's folder as `study-NAME.nc`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import xarray as xr

from headspan.errors import ArgumentError
from headspan.lab.adapter import adapter_study
from headspan.lab.carry import carry_study
from headspan.lab.channel_course import channel_course
from headspan.lab.record import write_track
from headspan.lab.run_folder import save_model
from headspan.lab.spectral_density import density_course
from headspan.lab.study import Bench, study_file
from headspan.lab.training_studies import lengths_study, plateau_study, sparsity_study

ADAPTED = "adapted"
"""Folder of the model with its adapter, beside `model`: `headspan compare run/model run/adapted`."""


def _adapter(folder: Path) -> xr.Dataset:
    found, model = adapter_study(Bench.of(folder))
    save_model(model, folder / ADAPTED)
    return found


STUDIES: Mapping[str, Callable[[Path], xr.Dataset]] = {
    "plateau": plateau_study,
    "sparsity": sparsity_study,
    "lengths": lengths_study,
    "spectrum": lambda folder: density_course(Bench.of(folder)),
    "channels": lambda folder: channel_course(Bench.of(folder)),
    "carry": lambda folder: carry_study(Bench.of(folder)),
    "adapter": _adapter,
}


def check_study(name: str) -> str:
    """The name, if there is a study of that name."""
    if name not in STUDIES:
        raise ArgumentError(f"there is no study {name!r}; studies are {', '.join(STUDIES)}")
    return name


def keep_study(name: str, folder: Path) -> xr.Dataset:
    """A study of the run in a folder, made and kept there."""
    found = STUDIES[check_study(name)](folder)
    write_track(found, study_file(folder, name))
    return found
