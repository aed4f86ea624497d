"""Why a checkpoint cannot be run, told from its headers alone, before anything heavy is loaded."""

from __future__ import annotations

from importlib.util import find_spec

from headspan.checkpoint import Checkpoint

RUN = ("decoder", "encoder")
"""Stacks of text that run by themselves."""
LAB = "headspan-lab"
"""The family of models that the lab trains; it has a runtime of its own."""


def obstacle_to_running(checkpoint: Checkpoint, stack: str | None = None) -> str | None:
    """Why a checkpoint cannot be run, in one line; None where it most likely can."""
    if find_spec("transformers") is None:
        return "running a model needs transformers: pip install 'headspan[run]'"
    return unrunnable(checkpoint, stack)


def unrunnable(checkpoint: Checkpoint, stack: str | None) -> str | None:
    """What about the checkpoint itself stands in the way."""
    stored = next(iter(checkpoint.stacks.values())) if stack is None else checkpoint.stack(stack)
    if len(checkpoint.stacks) > 1 or stored.stack.name not in RUN or stored.stack.tokens is None:
        return (
            f"headspan runs causal language models and text encoders, and a {checkpoint.family} is neither "
            f"(stacks: {', '.join(checkpoint.stacks)})"
        )
    if checkpoint.family == LAB:
        return "transformers does not know models of the lab; headspan train runs them, and --report tells what they do"
    lacking = [part for part in stored.missing() if part != "W_U"]
    if lacking:
        return f"the checkpoint is partial, it lacks {', '.join(lacking)}; open the complete one"
    if checkpoint.packing is not None:
        return f"its weights are quantised ({checkpoint.packing}); open the original checkpoint"
    return None
