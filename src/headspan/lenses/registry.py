"""Every lens, by name: what it needs of a checkpoint, and where its code is.

The command line, the report and sweeps find analyses here and nowhere else. The registry itself loads nothing heavy; a
lens's module is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headspan.checkpoint import Checkpoint, StoredStack
from headspan.errors import HeadspanError
from headspan.runtime import run_obstacle

if TYPE_CHECKING:
    import xarray as xr

    from headspan.heads import Heads
    from headspan.runtime import RunnableModel


@dataclass(frozen=True)
class Lens:
    """One analysis. Its computation is `headspan.lenses.<name>.compute`, its file or folder of that name."""

    name: str
    title: str
    summary: str
    needs: frozenset[str]
    any_of: frozenset[str] = frozenset()
    """At least one of these; the lens says itself what it leaves out for lack of the others."""
    min_layers: int = 1
    one_stream: bool = False
    """Queries and keys are held against each other, so they must read the same stream."""
    runs: bool = False
    """The model is run: `compute` takes a RunnableModel in place of heads."""
    without_running: frozenset[str] = frozenset()
    """Parts that do in place of a run, for a lens that runs the model where it can: `compute` takes it as `running`."""
    on_request: bool = False
    """It takes minutes: a report leaves it out unless it is asked for."""

    def compute(self, heads: Heads | RunnableModel, **options: Any) -> xr.Dataset | xr.DataTree:
        """The lens's labelled result for these heads, or for the running model where it `runs`."""
        result: xr.Dataset | xr.DataTree = import_module(f"headspan.lenses.{self.name}").compute(heads, **options)
        return result

    def obstacle(self, stored: StoredStack) -> str | None:
        """Why this lens does not apply to a stack, in one line; None where it does."""
        for part in sorted(self.needs - stored.parts):
            if part == "W_pos" and stored.stack.position_table is None:
                return f"no learned position table: {stored.stack.positions} positions"
            return f"{part} is not in this checkpoint"
        if self.any_of and not self.any_of & stored.parts:
            return f"none of {', '.join(sorted(self.any_of))} is in this checkpoint"
        if len(stored.attention_layers) < self.min_layers:
            shared = f", run through {stored.stack.repeats} times" if stored.stack.repeats > 1 else ""
            return f"nothing composes: the model has {stored.stack.n_layers} layer{shared}"
        if self.one_stream and stored.stack.reads_memory:
            return "in cross-attention queries and keys read different streams"
        return None


ATTENTION = frozenset({"W_Q", "W_K", "W_V", "W_O"})

LENSES: Mapping[str, Lens] = {
    lens.name: lens
    for lens in (
        Lens(
            name="ranks",
            title="Rank of every head",
            summary="how many dimensions each head really reads and writes",
            needs=ATTENTION,
        ),
        Lens(
            name="affinity",
            title="Which heads can talk to which",
            summary="how much of what one head writes another can read, beside what chance would give",
            needs=ATTENTION,
            min_layers=2,
        ),
        Lens(
            name="similarity",
            title="Heads as subspaces",
            summary="how query and key spaces, and the spaces of different heads, lie to one another, beside chance",
            needs=frozenset({"W_Q", "W_K"}),
            one_stream=True,
        ),
        Lens(
            name="positions",
            title="Positions and tokens",
            summary="how the position and token tables lie to each other and to what every layer reads and writes",
            needs=ATTENTION,
            any_of=frozenset({"W_E", "W_pos"}),
            one_stream=True,
        ),
        Lens(
            name="spectra",
            title="Spectra of the weights",
            summary="the singular values of every weight matrix, and whether queries look for keys like themselves, "
            "beside random matrices",
            needs=ATTENTION,
        ),
        Lens(
            name="attention",
            title="What heads attend to",
            summary="attention maps of the running model on a text, and what sums up heads, beside uniform attention",
            needs=ATTENTION,
            runs=True,
        ),
        Lens(
            name="detect",
            title="Which heads do what",
            summary="previous-token, duplicate-token, induction, identity and first-token heads, found by running the "
            "model on random tokens said twice",
            needs=ATTENTION,
            runs=True,
        ),
        Lens(
            name="gaussian",
            title="Is it Gaussian?",
            summary="what means and covariances alone predict of every head's logits and attention, beside what is "
            "measured",
            needs=frozenset({"W_Q", "W_K"}),
            one_stream=True,
            without_running=frozenset({"W_E"}),
        ),
        Lens(
            name="intervene",
            title="What happens when weights change",
            summary="attention, perplexity and continuation with the spectra of queries and keys scaled and with "
            "random weights, beside the unmodified model",
            needs=ATTENTION,
            runs=True,
        ),
        Lens(
            name="validate",
            title="Does geometry predict behaviour?",
            summary="null spaces, distances of heads and messages between them, each held against what the running "
            "model does",
            needs=ATTENTION,
            one_stream=True,
            runs=True,
            on_request=True,
        ),
    )
}


def lens(name: str) -> Lens:
    """The lens of that name."""
    if name not in LENSES:
        raise HeadspanError(f"there is no lens {name!r}; lenses are {', '.join(LENSES)}")
    return LENSES[name]


def obstacles(checkpoint: Checkpoint, stack: str | None = None) -> dict[str, str | None]:
    """For every lens, None if it applies to the checkpoint, else the reason why not."""
    stored = checkpoint.stack(stack)
    running = run_obstacle(checkpoint, stack)
    return {name: lens.obstacle(stored) or _hindered(lens, stored, running) for name, lens in LENSES.items()}


def _hindered(lens: Lens, stored: StoredStack, running: str | None) -> str | None:
    """What keeps a lens from what it needs of a running model, given what keeps the model from running."""
    lacking = sorted(lens.without_running - stored.parts)
    if running is None or not (lens.runs or lacking):
        return None
    return running if lens.runs else f"{running}; nor is {lacking[0]} in it, which would do in part"
