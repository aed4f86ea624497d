"""What a checkpoint's headers tell, as a plain record: the answer of `headspan inspect`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from headspan._version import __version__
from headspan.checkpoint.checkpoint import Checkpoint
from headspan.checkpoint.stored_stack import StoredStack


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
        packing=checkpoint.packing,
        stacks=[_stack_summary(stored) for stored in checkpoint.stacks.values()],
    )


def _stack_summary(stored: StoredStack) -> StackSummary:
    stack = stored.stack
    return StackSummary(
        name=stack.name,
        n_layers=stack.n_layers,
        n_heads=stack.n_heads,
        n_kv_heads=stack.n_kv_heads,
        d_model=stack.d_model,
        d_head=stack.d_head,
        d_value=stack.d_value,
        causal=stack.causal,
        positions=stack.positions,
        norm=stack.norm.kind,
        norm_place=stack.norm_place,
        parts=sorted(stored.parts),
        missing=stored.missing(),
        unclaimed=stored.unclaimed(),
    )
