"""What a checkpoint's headers tell, as a plain record: the answer of `headspan inspect`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, get_type_hints

from headspan._version import __version__
from headspan.checkpoint.checkpoint import Checkpoint
from headspan.checkpoint.families import Shape
from headspan.checkpoint.stored_stack import StoredStack

PLAIN_FACTS = (*get_type_hints(Shape), "name", "causal", "positions", "norm_place")
"""What a summary takes from the description as it is."""


@dataclass(frozen=True)
class StackSummary:
    """One stack's shape and what of it is stored."""

    name: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    d_value: int
    causal: bool
    positions: str
    norm: str
    norm_place: str
    notes: list[str]
    """What a reader of this stack's numbers should know besides, in words."""
    parts: list[str]
    missing: list[str]
    unclaimed: list[str]


@dataclass(frozen=True)
class Summary:
    """One checkpoint's facts."""

    model: str
    revision: str | None
    family: str
    n_parameters: int
    n_tensors: int
    dtypes: dict[str, int]
    """Dtype -> number of tensors stored in it, most frequent first."""
    bytes_on_disk: int | None
    bytes_transferred: int | None
    """Read from the Hub for this; None for a model on this machine."""
    packing: str | None
    stacks: list[StackSummary]

    def as_json(self) -> dict[str, Any]:
        """The record in the library's JSON form."""
        facts = asdict(self)
        provenance = {"model": facts.pop("model"), "revision": facts.pop("revision"), "headspan_version": __version__}
        return {"schema": "headspan.inspect/1", "provenance": provenance, **facts}


def summary(checkpoint: Checkpoint) -> Summary:
    """Facts from headers alone; no weight is read."""
    infos = checkpoint.store.infos.values()
    return Summary(
        model=checkpoint.source,
        revision=checkpoint.revision,
        family=checkpoint.family,
        n_parameters=sum(info.n_items for info in infos),
        n_tensors=len(infos),
        dtypes=dict(Counter(info.dtype for info in infos).most_common()),
        bytes_on_disk=checkpoint.store.bytes_on_disk,
        bytes_transferred=checkpoint.store.bytes_transferred,
        packing=checkpoint.packing,
        stacks=[_stack_summary(stored) for stored in checkpoint.stacks.values()],
    )


def stack_notes(stored: StoredStack) -> Iterator[str]:
    """What sets a stack apart from plain attention, in words."""
    if stored.other_layers:
        yield f"{len(stored.other_layers)} of {stored.stack.n_layers} layers are not attention and are left out"
    yield from (note for _, note in stored.stack.peculiarities())


def _stack_summary(stored: StoredStack) -> StackSummary:
    return StackSummary(
        **{name: getattr(stored.stack, name) for name in PLAIN_FACTS},
        norm=stored.stack.norm.kind,
        notes=list(stack_notes(stored)),
        parts=sorted(stored.parts),
        missing=stored.missing(),
        unclaimed=stored.unclaimed(),
    )
