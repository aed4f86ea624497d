"""A callback of `transformers`' Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from headspan.callbacks.follower import Follower


class TrainerFollower(TrainerCallback):
    """A `Follower` for `Trainer(callbacks=[TrainerFollower(folder, every=500)])`.

    Takes what `Follower` takes. It begins with training, looks also at the last step, and is closed at the end.
    """

    def __init__(self, folder: str | Path, **options: Any) -> None:
        self.folder, self.options = folder, options
        self.follower: Follower | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        """Begin, on the main process only."""
        if state.is_world_process_zero:
            self.follower = Follower(self.folder, **self.options)
            self.follower(model, int(state.global_step))

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        """Look if it is time to."""
        if self.follower is not None:
            self.follower(model, int(state.global_step))

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Wait for the last results."""
        if self.follower is not None:
            self.follower.close()
