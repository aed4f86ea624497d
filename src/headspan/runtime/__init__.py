"""Running a model: what its attention does on given tokens, beside what its weights could do.

`run_obstacle` says why a checkpoint cannot be run, from its headers alone. `open_runnable` opens a model, `encoded`
turns text or token ids into a prompt, `forward` runs it once and keeps its attention and states, `continuation` lets it
write on. Importing this package loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from headspan.checkpoint import Checkpoint
from headspan.checkpoint.families import OWN

if TYPE_CHECKING:
    from headspan.runtime.forward_pass import Forward, forward
    from headspan.runtime.model import RunnableModel, open_runnable
    from headspan.runtime.prompt import Prompt, continuation, encoded, token_ids

__all__ = [
    "Forward",
    "Prompt",
    "RunnableModel",
    "continuation",
    "encoded",
    "forward",
    "open_runnable",
    "run_obstacle",
    "token_ids",
]

# The file is called forward_pass: a submodule `forward` would hide the function.
_HOMES = {
    "Forward": "forward_pass",
    "Prompt": "prompt",
    "RunnableModel": "model",
    "continuation": "prompt",
    "encoded": "prompt",
    "forward": "forward_pass",
    "open_runnable": "model",
    "token_ids": "prompt",
}

RUN = ("decoder", "encoder")
"""Stacks of text that run by themselves."""
LAB = "headspan-lab"
"""The family of models that the lab trains; it has a runtime of its own."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headspan.runtime' has no attribute {name!r}")
    return getattr(import_module(f"headspan.runtime.{_HOMES[name]}"), name)


def run_obstacle(checkpoint: Checkpoint, stack: str | None = None) -> str | None:
    """Why a checkpoint cannot be run, in one line; None where it most likely can."""
    if find_spec("transformers") is None:
        return "running a model needs transformers: pip install 'headspan[run]'"
    return checkpoint_obstacle(checkpoint, stack)


def checkpoint_obstacle(checkpoint: Checkpoint, stack: str | None) -> str | None:
    """What about the checkpoint itself stands in the way."""
    stored = next(iter(checkpoint.stacks.values())) if stack is None else checkpoint.stack(stack)
    if len(checkpoint.stacks) > 1 or stored.stack.name not in RUN or stored.stack.tokens is None:
        return (
            f"headspan runs causal language models and text encoders, and a {checkpoint.family} is neither "
            f"(stacks: {', '.join(checkpoint.stacks)})"
        )
    if checkpoint.family == LAB:
        return "transformers does not know models of the lab; headspan train runs them, and --report tells what they do"
    if checkpoint.family in OWN:
        return f"headspan runs models through transformers, which has no {checkpoint.family}; open the original model"
    lacking = [part for part in stored.missing() if part != "W_U"]
    if lacking:
        return f"this checkpoint has no {' and no '.join(lacking)}; open the complete one"
    if checkpoint.packing is not None and checkpoint.unread:
        return (
            f"its tensor '{checkpoint.unread[0].name}' is quantized ({checkpoint.packing}) in a way that headspan does "
            "not read; open the original checkpoint"
        )
    return None
