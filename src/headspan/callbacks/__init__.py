"""Lenses that follow a training run: callbacks of `transformers` and Lightning, and a plain function for other loops.

A snapshot of the weights is written every so many steps; a second process runs the lenses on it while training goes on.
Results are a store like that of `headspan sweep`, so that `headspan evolution FOLDER` reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headspan.callbacks.follower import Follower
    from headspan.callbacks.lightning_loop import LightningFollower as LightningFollower
    from headspan.callbacks.trainer_loop import TrainerFollower as TrainerFollower

__all__ = ["Follower"]  # the other two need libraries that a star import should not ask for

_HOMES = {"Follower": "follower", "LightningFollower": "lightning_loop", "TrainerFollower": "trainer_loop"}


def __getattr__(name: str) -> Any:
    """Each needs a library of its own, which is loaded when it is used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'headspan.callbacks' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headspan.callbacks.{_HOMES[name]}"), name)
