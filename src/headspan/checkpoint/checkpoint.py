"""An opened checkpoint: what it is at once, its tensors when they are asked for.

What a checkpoint's headers tell, as a plain record: the answer of `headspan inspect`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from headspan._version import __version__
from headspan.checkpoint.config import Config
from headspan.checkpoint.families import Shape
from headspan.checkpoint.formats.tensors import CODES, TensorInfo, TensorStore, check_readable, packed_format
from headspan.checkpoint.stored_stack import StoredStack, check_shape
from headspan.dims import Fold
from headspan.errors import ArgumentError, CheckpointError

if TYPE_CHECKING:
    import torch

    from headspan.heads import Heads


Folder = Path | Callable[[], Path] | None
"""A folder, or a function that fetches one when it is asked for."""


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """A model's weights, opened but not read: `headspan.open(...).checkpoint`.

    >>> import headspan
    >>> headspan.open("demo").checkpoint
    Checkpoint('demo', llama, decoder: 2 layers x 8 heads)
    """

    source: str
    config: Config
    store: TensorStore
    stacks: Mapping[str, StoredStack]
    revision: str | None = None
    beside: Folder = None
    """What `folder` gives, not yet fetched."""

    def __repr__(self) -> str:
        shapes = "; ".join(
            f"{name}: {stored.stack.n_layers} layers x {stored.stack.n_heads} heads"
            for name, stored in self.stacks.items()
        )
        return f"Checkpoint({self.source!r}, {self.family}, {shapes})"

    @cached_property
    def folder(self) -> Path | None:
        """Where the files beside the weights lie (a tokenizer), fetched if need be; None for a model in memory."""
        return self.beside() if callable(self.beside) else self.beside

    @property
    def family(self) -> str:
        return self.config.model_type

    @cached_property
    def packing(self) -> str | None:
        """The method by which some of the weights are quantized, if they are."""
        return packed_format(self.config, self.store.infos)

    @cached_property
    def unread(self) -> list[TensorInfo]:
        """Tensors that are quantized in a way that headspan does not read; masks (`attn.bias`) are not meant."""
        return [info for info in self.store.infos.values() if info.dtype in CODES and not info.name.endswith("bias")]

    def stack(self, name: str | None = None) -> StoredStack:
        """The stack of that name, or the only one."""
        if name is None and len(self.stacks) == 1:
            return next(iter(self.stacks.values()))
        if name is None or name not in self.stacks:
            asked = "no stack was named" if name is None else f"there is no stack {name!r}"
            raise ArgumentError(
                f"{asked}; this {self.family} has: {', '.join(self.stacks)}; name one with --stack (stack=...)"
            )
        return self.stacks[name]

    def take(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
        """Read tensors by stored name, checked: the shape expected, numbers not packed, all of them finite."""
        import torch

        for name, shape in shapes.items():
            check_readable(self.store.infos[name], self.packing)
            check_shape(self.store.infos[name], shape)
        tensors = self.store.read(list(shapes))
        for name, tensor in tensors.items():
            if tuple(tensor.shape) != shapes[name]:
                raise CheckpointError(
                    f"tensor '{name}' was {shapes[name]} when opened and is {tuple(tensor.shape)} now"
                )
            # A sum is the quickest pass over the memory; it is not finite if an entry is not, or if it overflows.
            if not isfinite(tensor.sum().item()) and not bool(torch.isfinite(tensor).all()):
                raise CheckpointError(
                    f"tensor '{name}' holds NaN or Inf; the training run diverged or the file is damaged: "
                    "open an earlier checkpoint"
                )
        return tensors

    def heads(
        self,
        layers: Sequence[int] | range | None = None,
        dtype: torch.dtype | str | None = None,
        device: torch.device | str = "cpu",
        fold: Fold = "none",
        center: bool = False,
        stack: str | None = None,
        cache: int | str = "2GB",
    ) -> Heads:
        """Every head's weights, lazily: shapes now, tensors when they are asked for.

        Parameters
        ----------
        layers
            Which layers, by number; all by default.
        dtype
            What to convert to; by default as stored, half precision promoted to float32.
        device
            Where the tensors go when they are read.
        fold
            `"layernorm"` multiplies the norm before the attention into W_Q, W_K, W_V (and their biases).
        center
            Also remove from what is read and written the component that LayerNorm discards (the mean over d_model).
        stack
            Which stack, for a model with several.
        cache
            How much memory matrices that are asked for whole (`heads.W_Q`, `heads.W_E`, `heads.mlp(0)`) may take, as
            "500MB"; those not used for longest are let go of first, and 0 keeps none.
        """
        # The one place that looks down the list of layers: users ask a checkpoint for its heads (decision 0002).
        from headspan.heads import Heads, WeightReader

        return Heads.of(WeightReader.of(self, stack, dtype, device, fold, center), layers, cache)


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
    stored_as: dict[str, list[str]]
    """Attention, MLP, W_E, ... -> dtypes or packings, most frequent first."""
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
    """Dtype or packing -> number of tensors stored in it, most frequent first."""
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
        dtypes=dict(Counter(info.stored_as for info in infos).most_common()),
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
        stored_as=stored.stored_as(),
        parts=sorted(stored.parts),
        missing=stored.missing(),
        unclaimed=stored.unclaimed(),
    )
