"""An opened checkpoint: what it is at once, its tensors when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from headspan.checkpoint.config import Config
from headspan.checkpoint.formats.quantization import check_readable, packed_format
from headspan.checkpoint.formats.tensors import TensorStore
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
        """How some of the weights are quantized, if they are; the attention itself is always plain numbers."""
        return packed_format(self.config, self.store.infos)

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
