"""Running a model: what its attention does on given tokens, beside what its weights could do.

`open_runnable` opens a model, `encoded` turns text or token ids into a prompt, `forward` runs it once and keeps its
attention and states, `continuation` lets it write on.
"""

from headspan.runtime.forward import Forward, forward
from headspan.runtime.generation import continuation
from headspan.runtime.model import RunnableModel, obstacle_to_running, open_runnable
from headspan.runtime.prompt import Prompt, encoded, token_ids

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
