"""A callback of Lightning's Trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback

from headspan.callbacks.follower import Follower


class LightningFollower(Callback):
    """A `Follower` for `lightning.Trainer(callbacks=[LightningFollower(folder, every=500)])`.

    Parameters
    ----------
    folder, options
        As for `Follower`.
    model
        From the LightningModule to the model that headspan opens; by default its attribute `model`, or itself.
    """

    def __init__(self, folder: str | Path, *, model: Callable[[Any], Any] | None = None, **options: Any) -> None:
        self.folder, self.options = folder, options
        self.inner = model or (lambda module: getattr(module, "model", module))
        self.follower: Follower | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin, on the main process only."""
        if trainer.is_global_zero:
            self.follower = Follower(self.folder, **self.options)
            self.follower(self.inner(pl_module), int(trainer.global_step))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *rest: Any) -> None:
        """Look if it is time to."""
        if self.follower is not None and trainer.global_step:
            self.follower(self.inner(pl_module), int(trainer.global_step))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Wait for the last results."""
        if self.follower is not None:
            self.follower.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Keep what is finished."""
        self.on_train_end(trainer, pl_module)
