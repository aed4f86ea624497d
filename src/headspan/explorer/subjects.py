"""What a report's lenses look at: the weights, and the running model where a lens needs it, opened once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from headspan.errors import HeadspanError, UnsupportedModel
from headspan.heads import Heads

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint
    from headspan.runtime import RunnableModel

MOST_PARAMETERS = 1_000_000_000
"""Larger models are not run without being asked for: it would take hours, or more memory than there is."""


class NotRun(HeadspanError):
    """The model is not run for a report or a sweep; the message says why."""


def obstacle_to_running_unasked(checkpoint: Checkpoint) -> str | None:
    """Why a model that can be run is run by the lens's own command alone; None where it is small and at hand."""
    n_parameters = sum(prod(info.shape) for info in checkpoint.store.infos.values())
    if n_parameters > MOST_PARAMETERS:
        return f"models of more than {MOST_PARAMETERS:,} parameters are run by the lens's own command alone"
    if checkpoint.store.bytes_transferred is not None:
        return "to be run, the model would have to be fetched from the Hub whole; use the lens's own command for that"
    return None


@dataclass(frozen=True)
class Subjects:
    """Heads of a checkpoint, and the checkpoint as a running model."""

    heads: Heads

    @cached_property
    def running(self) -> RunnableModel:
        """The model, ready to run; a `NotRun` where it is too large, not at hand, or cannot be run."""
        from headspan.runtime import open_runnable, run_obstacle

        checkpoint = self.heads.checkpoint
        obstacle = run_obstacle(checkpoint, self.heads.stack.name)
        if obstacle is not None:
            raise NotRun(obstacle)
        unasked = obstacle_to_running_unasked(checkpoint)
        if unasked is not None:
            raise NotRun(unasked)
        try:
            return open_runnable(checkpoint, stack=self.heads.stack.name)
        except UnsupportedModel as reason:
            raise NotRun(str(reason)) from reason
