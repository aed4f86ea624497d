"""Every attention head of a stack: shapes at once, weights when they are asked for.

Read in blocks (`for block in heads.blocks(memory="1GB")`), and a model of any size fits; or, for a small model, take a
role whole (`heads.W_Q`). `W_Q W_K W_V W_O`, `W_E W_pos W_U` and `mlp(layer)` are read from the file once and kept, up
to a number of bytes (`heads.cache.limit`); `heads.release()` lets go of them. They are shared: copy one before you
change it. What is read in any other way is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan._version import __version__
from headspan.checkpoint import Checkpoint
from headspan.checkpoint.families import Projection, Stack
from headspan.checkpoint.formats.tensors import InMemory
from headspan.dims import ROLES, Fold, Positions, Role
from headspan.errors import ArgumentError, FoldError, MemoryBudgetError, MissingTensor
from headspan.heads import embeddings
from headspan.heads.block import HeadBlock, block_bytes, read_block, role_roundoff
from headspan.heads.memory import T, TensorCache, layers_that_fit, memory_bytes
from headspan.heads.norms import HeadNormWeights, NormWeights, checked_fold, fold_label
from headspan.heads.reader import WeightReader, checked_dtype, checked_layers, checked_roles, span_text
from headspan.progress import current_step
from headspan.subspaces.rank import numerical_rank


@dataclass(frozen=True, repr=False)
class Heads:
    """The heads of one stack in one fold state. Made by `headspan.open(...).heads(...)`.

    >>> import headspan
    >>> heads = headspan.open("demo").heads()
    >>> heads.W_O.shape, heads.layer(1).W_Q.shape
    (torch.Size([2, 8, 16, 128]), torch.Size([1, 8, 128, 16]))
    """

    reader: WeightReader
    layers: tuple[int, ...]
    cache: TensorCache = field(compare=False)
    """What is kept of these heads and of the same ones in another precision or fold state."""

    @classmethod
    def of(cls, reader: WeightReader, layers: Sequence[int] | range | None, cache: int | str) -> Heads:
        """The heads of some layers, all by default, that keep whole matrices up to `cache` bytes."""
        return cls(reader, checked_layers(layers, reader.stored), TensorCache(cache))

    def __repr__(self) -> str:
        return (
            f"Heads({self.checkpoint.source!r}, {self.n_layers} layers x {self.n_heads} heads, d_model={self.d_model}, "
            f"d_head={self.d_head}, {self.dtype}, fold={fold_label(self.fold, self.center)!r})"
        )

    @property
    def checkpoint(self) -> Checkpoint:
        return self.reader.checkpoint

    @property
    def stack(self) -> Stack:
        """The description of the stack these heads belong to."""
        return self.reader.stored.stack

    @property
    def dtype(self) -> torch.dtype:
        return self.reader.dtype

    @property
    def device(self) -> torch.device:
        return self.reader.device

    @property
    def fold(self) -> Fold:
        return self.reader.fold

    @property
    def center(self) -> bool:
        return self.reader.center

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    @property
    def n_heads(self) -> int:
        return self.stack.n_heads

    @property
    def n_kv_heads(self) -> int:
        return self.stack.n_kv_heads

    @property
    def d_model(self) -> int:
        return self.stack.d_model

    @property
    def d_stream(self) -> int:
        """Dimension of the space that read and write spaces lie in: `d_model`, one less where means are removed."""
        return self.d_model - self.center

    @property
    def d_head(self) -> int:
        """Width of queries and keys."""
        return self.stack.d_head

    @property
    def d_value(self) -> int:
        """Width of values; differs from `d_head` in a few families."""
        return self.stack.d_value

    @property
    def positions(self) -> Positions:
        return self.stack.positions

    def to(self, dtype: torch.dtype | str) -> Heads:
        """The same heads, to be read into another precision."""
        return replace(self, reader=replace(self.reader, dtype=checked_dtype(dtype, self.reader.stored_dtype)))

    def refolded(self, fold: str, center: bool = False) -> Heads:
        """The same heads in another fold state, refused where that would change the model."""
        checked = checked_fold(self.reader.stored, fold, center, self.checkpoint.family)
        return replace(self, reader=replace(self.reader, fold=checked, center=center))

    def folded(self) -> Heads:
        """The same heads with the norms folded in, centered too behind a LayerNorm; as they are where none can be.

        Products of matrices of different layers are then those of the running model, up to the sizes that norms divide
        by. Heads that are folded already stay in their state.
        """
        if self.fold != "none":
            return self
        for center in (True, False):
            try:
                return self.refolded("layernorm", center)
            except FoldError:
                continue
        return self

    def unrolled(self) -> Heads:
        """The heads pass by pass: those of a layer that the model runs through several times, once for each time.

        Itself where no layer is shared. Else `layers` are passes, in order, and reading one reads its shared layer.
        """
        stack, passes = self.stack, self.stack.passes
        if not passes:
            return self
        once = replace(
            stack,
            n_layers=len(passes),
            layer_keys=tuple(stack.key(layer) for layer in passes),
            scale=tuple(stack.scale[layer] for layer in passes),
            repeats=1,
            passes=(),
        )
        layers = tuple(number for number, layer in enumerate(passes) if layer in self.layers)
        stored = replace(self.reader.stored, stack=once)
        return Heads(replace(self.reader, stored=stored), layers, TensorCache(self.cache.limit))

    def shape(self, role: Role) -> tuple[int, int, int, int]:
        """Shape of a role's weights over all these layers."""
        rows = self.stack.projections[role].rows
        inner = (rows.d_head, self.d_model) if role == "O" else (self.d_model, rows.d_head)
        return (self.n_layers, rows.n_heads, *inner)

    def blocks(self, memory: int | str = "1GB", roles: Sequence[str] = ROLES) -> Iterator[HeadBlock]:
        """The heads in blocks of consecutive layers, as many at a time as fit into `memory`.

        The budget covers the block and what reading it takes; a block is released when the caller lets go of it.
        """
        wanted = checked_roles(roles)
        projections = self._projections(wanted)
        step = layers_that_fit(memory, *block_bytes(self.reader, projections))
        for start in range(0, self.n_layers, step):
            current_step(f"layer {self.layers[start]} of {self.n_layers}")
            yield read_block(self.reader, self.layers[start : start + step], projections)

    def block_bytes(self, roles: Sequence[str] = ROLES) -> tuple[int, int]:
        """Bytes that each layer of a block takes, and bytes that reading a block takes once."""
        return block_bytes(self.reader, self._projections(checked_roles(roles)))

    def layer(self, layer: int, roles: Sequence[str] = ROLES) -> HeadBlock:
        """The heads of one layer, by its number in the model."""
        self._check_layer(layer)
        return read_block(self.reader, (layer,), self._projections(checked_roles(roles)))

    def rotary_parts(self, layer: int) -> HeadBlock | None:
        """The matrices for Q and K that positions turn, where latent attention keeps them apart from W_Q and W_K.

        A logit is then q k + q' R_delta k', with the turned features q' and k'; all heads share one k'.
        """
        self._check_layer(layer)
        return read_block(self.reader, (layer,), self.stack.apart) if self.stack.apart else None

    def head_norm(self, role: Literal["Q", "K"], layer: int) -> HeadNormWeights | None:
        """The norm of a layer's queries or keys; None in most families."""
        self._check_layer(layer)
        return self.reader.head_norm(role, layer)

    def sinks(self, layer: int) -> Float[Tensor, " head"] | None:
        """One logit per head that takes part in the softmax and is dropped; None in most families."""
        self._check_layer(layer)
        return None if self.stack.sinks is None else self.reader.vector(self.stack.sinks, layer, (self.n_heads,))

    def whole(self, role: str) -> Float[Tensor, "layer heads _ _"]:
        """One role of every layer in one tensor, read now and not kept."""
        (wanted,) = checked_roles((role,))
        return read_block(self.reader, self.layers, self._projections((wanted,))).weight(wanted)

    def table(self, name: str) -> Float[Tensor, "_ _"]:
        """W_E, W_pos or W_U, read now and not kept."""
        return embeddings.read_table(self.reader, name)

    def table_rows(self, name: str, memory: int | str = "1GB") -> Iterator[Float[Tensor, "_ d_model"]]:
        """The rows of W_E or W_pos, or of W_U transposed, in blocks of about `memory` bytes; none is kept."""
        return embeddings.table_rows(self.reader, name, memory_bytes(memory))

    @property
    def widened_together(self) -> bool:
        """Whether one matrix widens the rows of W_E and W_pos to d_model (ALBERT, ELECTRA)."""
        return embeddings.widened_together(self.reader)

    def narrow_table(self, name: str) -> Float[Tensor, "_ _"]:
        """W_E or W_pos before that matrix, read now and not kept."""
        return embeddings.narrow_table(self.reader, name)

    @property
    def W_Q(self) -> Float[Tensor, "layer head d_model d_head"]:
        return self._matrix("W_Q")

    @property
    def W_K(self) -> Float[Tensor, "layer kv_head d_model d_head"]:
        return self._matrix("W_K")

    @property
    def W_V(self) -> Float[Tensor, "layer kv_head d_model d_value"]:
        return self._matrix("W_V")

    @property
    def W_O(self) -> Float[Tensor, "layer head d_value d_model"]:
        return self._matrix("W_O")

    @property
    def W_E(self) -> Float[Tensor, "token d_model"]:
        return self._matrix("W_E")

    @property
    def W_pos(self) -> Float[Tensor, "position d_model"]:
        return self._matrix("W_pos")

    @property
    def W_U(self) -> Float[Tensor, "d_model token"]:
        return self._matrix("W_U")

    def _matrix(self, name: str) -> Tensor:
        role = name.removeprefix("W_")
        return self.keep(name, lambda: (self.whole(role) if role in ROLES else self.table(name),))[0]

    def keep(self, name: Hashable, read: Callable[[], T]) -> T:
        """What `read` returns, read or made once of these heads; each time where the model is in memory and may change.

        Lenses keep small tables here that others want too. They are shared: copy one before you change it.
        """
        if isinstance(self.checkpoint.store, InMemory):
            return read()
        form = (self.layers, self.dtype, self.device, fold_label(self.fold, self.center))
        return self.cache.tensors((name, *form), read)

    def release(self) -> None:
        """Let go of the matrices that are kept; they are read again when they are asked for."""
        self.cache.clear()

    def require_room_for(self, table: str, memory: int) -> None:
        """Refuse to read W_E, W_pos or W_U where `memory` bytes do not hold it."""
        needed = embeddings.table_bytes(self.reader, table)
        if needed > memory:
            raise MemoryBudgetError(
                f"{table} takes {needed:,} bytes, and of the working memory {memory:,} are for it; raise the budget by "
                f"{needed - memory:,} bytes or more"
            )

    def mlp(self, layer: int) -> embeddings.MLPWeights:
        """The MLP matrices of one layer."""
        linears = self.keep(f"MLP of layer {layer}", lambda: tuple(chain(*embeddings.mlp_linears(self.reader, layer))))
        return embeddings.MLPWeights.of(linears)

    def roundoff(self, table: str) -> float:
        """Error that storing left in an entry of W_E, W_pos or W_U, over the rms of its entries."""
        return embeddings.table_roundoff(self.reader, table)

    def attention_roundoff(self) -> float:
        """The same for the attention matrices of these layers; that of the coarsest."""
        projections = self._projections(ROLES).values()
        return max(role_roundoff(self.reader, self.layers, projection) for projection in projections)

    def mlp_roundoff(self, layer: int) -> float:
        """The same for the MLP of one layer."""
        return embeddings.mlp_roundoff(self.reader, layer)

    def mlp_matrices(self, layer: int) -> Iterator[Float[Tensor, "_ _"]]:
        """The same matrices one after the other, without biases: what is read (gate and up, or one), then W_out.

        Each is read when the one before has been dealt with; none is kept.
        """
        for weight, _ in embeddings.mlp_linears(self.reader, layer):
            yield weight
            del weight

    def norm(self, layer: int) -> NormWeights:
        """The norm before the attention of one layer (after it, in a post-norm model), as stored."""
        return self.reader.norm(self.stack.norm, layer)

    def final_norm(self) -> NormWeights:
        """The norm before the unembedding, as stored."""
        norm = self.stack.final_norm
        if norm is None:
            raise MissingTensor(f"a {self.checkpoint.family} has no norm before its unembedding")
        return self.reader.norm(norm)

    @property
    def kv_head_of(self) -> Int[Tensor, " head"]:
        """The kv head that each query head reads: h // group."""
        return torch.arange(self.n_heads, device=self.device) // (self.n_heads // self.n_kv_heads)

    def per_query_head(self, kv: Float[Tensor, "layer kv_head *rest"]) -> Float[Tensor, "layer head *rest"]:
        """Something of each kv head, repeated for every query head that reads it: head h reads kv head h // group."""
        return kv.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)

    def rank(self, role: Role, tolerance: float | None = None, memory: int | str = "1GB") -> Int[Tensor, "layer heads"]:
        """Numerical rank of each head's matrix of one role, in [0, d_head]; d_head for random weights.

        Decided in double precision. A singular value counts if it exceeds the noise of the dtype that the weights were
        stored in (`headspan.subspaces.rank`), or `tolerance` times the head's largest where that is given.
        """
        ranks, budget, (per_layer, once) = [], memory_bytes(memory), self.block_bytes((role,))
        # A factorization takes two copies of what it is given, and a copy in double precision is twice as large.
        for block in self.blocks(min(budget, max(budget // 8, per_layer + once)), (role,)):
            W = block.weight(role)
            noise = block.noise(role).double() if tolerance is None else 0.0
            ranks.append(numerical_rank((W.mT if role == "O" else W).double(), tolerance, noise))
        return torch.cat(ranks)

    def rank_rule(self, tolerance: float | None) -> float | str:
        """How ranks are decided, for provenance: the tolerance, or the format whose noise does."""
        return f"noise of {self.reader.stored_as}" if tolerance is None else tolerance

    def _projections(self, roles: Sequence[Role]) -> dict[Role, Projection]:
        return {role: self.stack.projections[role] for role in roles}

    def _check_layer(self, layer: int) -> None:
        if layer not in self.layers:
            raise ArgumentError(f"layer {layer} is not among these heads' layers {span_text(self.layers)}")

    def provenance(self) -> dict[str, str]:
        """Where a result computed from these heads comes from, as flat attributes of a Dataset."""
        return {
            "model": self.checkpoint.source,
            "revision": self.checkpoint.revision or "",
            "file_hash": self.checkpoint.store.content_hash(),
            "family": self.checkpoint.family,
            "stack": self.stack.name,
            "fold": fold_label(self.fold, self.center),
            "dtype": str(self.dtype).removeprefix("torch."),
            "stored_dtype": self.reader.stored_as,
            "headspan_version": __version__,
        }
