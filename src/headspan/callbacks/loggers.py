"""Where a Follower tells what it saw: TensorBoard, Weights & Biases, or any object with the same three methods."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from headspan.callbacks.following import Done, Work
from headspan.errors import ArgumentError, HeadspanError
from headspan.lenses.catalog import lens as lens_of
from headspan.lenses.run import reopened
from headspan.sweeps.course.curves import quantity_means
from headspan.sweeps.parts import read_part


class Logger(Protocol):
    """What a Follower talks to."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers of one step, by name."""

    def figure(self, step: int, name: str, figure: Any) -> None:
        """A plotly figure of one step."""

    def close(self) -> None:
        """Nothing more comes."""


class TensorBoard:
    """Scalars and figures as TensorBoard's event files. Figures are drawn as images, which needs `headspan[images]`."""

    def __init__(self, folder: Path) -> None:
        module = _library("torch.utils.tensorboard", "tensorboard")
        self.writer = module.SummaryWriter(log_dir=str(folder))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def figure(self, step: int, name: str, figure: Any) -> None:
        image = _library("PIL.Image", "pillow").open(BytesIO(figure.to_image(format="png"))).convert("RGB")
        self.writer.add_image(name, np.asarray(image), step, dataformats="HWC")

    def close(self) -> None:
        self.writer.close()


class WeightsAndBiases:
    """Scalars and figures to the current run of Weights & Biases, or to one that is begun here."""

    def __init__(self, folder: Path) -> None:
        self.wandb = _library("wandb", "wandb")
        self.own = self.wandb.run is None
        self.run = self.wandb.init(dir=str(folder)) if self.own else self.wandb.run
        # A metric of its own: results come after the step they belong to, and W&B refuses steps that go back.
        self.run.define_metric("headspan/step")
        self.run.define_metric("headspan/*", step_metric="headspan/step")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log({"headspan/step": step, **values})

    def figure(self, step: int, name: str, figure: Any) -> None:
        self.run.log({"headspan/step": step, name: self.wandb.Plotly(figure)})

    def close(self) -> None:
        if self.own:
            self.run.finish()


KINDS: Mapping[str, Callable[[Path], Logger]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def chosen_loggers(asked: Sequence[str | Logger], folder: Path) -> list[Logger]:
    """Loggers by name, or as they were given."""
    found: list[Logger] = []
    for one in [asked] if isinstance(asked, str) else asked:
        if isinstance(one, str) and one not in KINDS:
            raise ArgumentError(
                f"logger {one!r} is not known; loggers are {', '.join(KINDS)}, or an object of your own"
            )
        if isinstance(one, str):
            place = folder / one
            place.mkdir(parents=True, exist_ok=True)
            found.append(KINDS[one](place))
        else:
            found.append(one)
    return found


def _library(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise HeadspanError(f"logging there needs {package}: pip install {package}") from problem


def tell(loggers: Sequence[Logger], work: Work, done: Done, figures: Sequence[str]) -> None:
    """Tell loggers what the lenses saw at one step."""
    if not loggers:
        return
    for name, file in done.parts.items():
        nodes = read_part(work.store / "parts" / file).nodes
        values = {f"headspan/{name}/{key}": value for key, value in quantity_means(nodes).items()}
        drawn = reopened(lens_of(name), nodes, nodes[""].attrs).figures if figures else {}
        for logger in loggers:
            logger.scalars(done.step, values)
            for title in figures:
                if title in drawn:
                    logger.figure(done.step, f"headspan/{title}", drawn[title])
