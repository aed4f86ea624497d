"""Running a model: what its attention does on given tokens, beside what its weights could do.

`open_runnable` opens a model, `encoded` turns text or token ids into a prompt, `forward` runs it once and keeps its
attention and states, `continuation` lets it write on. Importing this package loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headspan.runtime.generation import continuation
    from headspan.runtime.model import RunnableModel, open_runnable
    from headspan.runtime.obstacles import obstacle_to_running
    from headspan.runtime.prompt import Prompt, encoded, token_ids
    from headspan.runtime.running import Forward, forward

__all__ = [
    "Forward",
    "Prompt",
    "RunnableModel",
    "continuation",
    "encoded",
    "forward",
    "obstacle_to_running",
    "open_runnable",
    "token_ids",
]

# The file is called running: a submodule `forward` would hide the function.
_HOMES = {
    "Forward": "running",
    "Prompt": "prompt",
    "RunnableModel": "model",
    "continuation": "generation",
    "encoded": "prompt",
    "forward": "running",
    "obstacle_to_running": "obstacles",
    "open_runnable": "model",
    "token_ids": "prompt",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headspan.runtime' has no attribute {name!r}")
    return getattr(import_module(f"headspan.runtime.{_HOMES[name]}"), name)
