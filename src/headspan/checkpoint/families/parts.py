"""The pieces a stack is described with: its shape, matrices, which of their rows are whose, norms, tables.

Names are relative to the model's root and hold `{layer}` where the layer's key stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headspan.checkpoint.config import MAX_HEADS, MAX_LAYERS, MAX_WIDTH, Config
from headspan.errors import CheckpointError

Stored = Literal["out_in", "in_out"]
"""Axis order of a stored matrix: `out_in` as torch's Linear keeps it, `in_out` as GPT-2's Conv1D does."""

NormKind = Literal["layernorm", "rmsnorm"]


@dataclass(frozen=True)
class Shape:
    """The numbers every family takes from its config, checked."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    d_value: int

    def __post_init__(self) -> None:
        if self.n_heads % self.n_kv_heads:
            raise CheckpointError(
                f"{self.n_heads} heads cannot share {self.n_kv_heads} kv heads evenly; check the config"
            )

    @classmethod
    def of(
        cls,
        config: Config,
        layers: str = "num_hidden_layers",
        heads: str = "num_attention_heads",
        width: str = "hidden_size",
        kv_heads: str = "num_key_value_heads",
        head_width: str = "head_dim",
    ) -> Shape:
        n_heads = config.integer(heads, "num_attention_heads", most=MAX_HEADS)
        d_model = config.integer(width, "hidden_size", most=MAX_WIDTH)
        if config.get(head_width) is None and d_model % n_heads:
            raise CheckpointError(
                f"{config.place}: '{width}' = {d_model} is not divisible by '{heads}' = {n_heads}, "
                f"and there is no '{head_width}'"
            )
        d_head = config.integer(head_width, most=MAX_WIDTH, default=max(d_model // n_heads, 1))
        return cls(
            n_layers=config.integer(layers, "num_hidden_layers", most=MAX_LAYERS),
            n_heads=n_heads,
            n_kv_heads=config.integer(kv_heads, most=n_heads, default=n_heads),
            d_model=d_model,
            d_head=d_head,
            d_value=d_head,
        )


@dataclass(frozen=True)
class Rows:
    """Which of a projection's output features belong to which head.

    The features form `n_groups` equal groups of `group_rows`; in each group, `per_group` heads of `d_head` features
    lie from `start` on, one after another. A plain projection is one group. A
    fused tensor that keeps query, key and value of a head together has one group per head.
    """

    n_groups: int
    group_rows: int
    start: int
    per_group: int
    d_head: int

    @classmethod
    def plain(cls, n_heads: int, d_head: int) -> Rows:
        return cls(1, n_heads * d_head, 0, n_heads, d_head)

    @property
    def n_heads(self) -> int:
        return self.n_groups * self.per_group

    @property
    def n_features(self) -> int:
        """Output features of the whole stored tensor."""
        return self.n_groups * self.group_rows


@dataclass(frozen=True)
class Linear:
    """A stored matrix with its bias; `bias_required` is False where only the file knows whether there is one."""

    weight: str
    bias: str | None = None
    bias_required: bool = False
    stored: Stored = "out_in"

    @classmethod
    def named(cls, name: str, bias_required: bool = False) -> Linear:
        """A torch Linear under its module's name."""
        return cls(f"{name}.weight", f"{name}.bias", bias_required)

    def at(self, key: str) -> Linear:
        """With the layer's key written into its names."""
        bias = None if self.bias is None else self.bias.format(layer=key)
        return Linear(self.weight.format(layer=key), bias, self.bias_required, self.stored)


@dataclass(frozen=True)
class Norm:
    """A LayerNorm or RMSNorm. Alternative names cover older spellings; the gain is `offset` + the stored weight.

    No name at all means a norm without parameters (OLMo). Layers in `absent` have no such norm (the first of
    ModernBERT): there the stream is read as it is.
    """

    kind: NormKind
    weight: tuple[str, ...]
    bias: tuple[str, ...] = ()
    eps: float = 1e-5
    offset: float = 0.0
    absent: tuple[int, ...] = ()


@dataclass(frozen=True)
class Latent:
    """A narrow space between the stream and the heads: the first `width` features of `linear`, then `norm`.

    The norm's gain is part of a head's effective matrix; its division by the latent's size is not, since that differs
    from token to token.
    """

    linear: Linear
    n_features: int
    width: int
    norm: Norm


@dataclass(frozen=True)
class Projection:
    """One role of one layer: a matrix, and the part of it that is this role's. For O the rows count input features.

    With `latent`, the matrix reads that instead of the stream.
    """

    linear: Linear
    rows: Rows
    latent: Latent | None = None


@dataclass(frozen=True)
class HeadNorm:
    """A norm of queries or keys, before positions turn them.

    Parameters
    ----------
    span
        `head`: each head is normed by itself, all with the same gain. `each head`: the same with a gain of its own,
        stored as one matrix or, if the name holds `{head}`, one by one. `all heads`: one norm over all features.
    """

    kind: NormKind
    weight: str
    bias: str | None = None
    eps: float = 1e-6
    offset: float = 0.0
    span: Literal["head", "each head", "all heads"] = "head"


@dataclass(frozen=True)
class MLP:
    """The matrices that read the stream (one, or gate and up), the one that writes it, and the norm before them.

    With `fused`, one stored matrix holds gate and up, one after the other.
    """

    reads: tuple[Linear, ...]
    write: Linear
    width: int
    norm: Norm | None = None
    fused: bool = False


@dataclass(frozen=True)
class Table:
    """An embedding table; `unused_rows` at its top are never looked up and are dropped.

    Where its rows are narrower than the stream, `through` is the matrix between the two and `width` the rows' length.
    """

    names: tuple[str, ...]
    unused_rows: int = 0
    through: Linear | None = None
    width: int | None = None


@dataclass(frozen=True)
class Entry:
    """What a family does to token plus position before its first layer, where that is more than the layer's own norm.

    A LayerNorm of the sum, a table whose first row is added to every token, and a field of the config for a scale. Only
    families with an added position table need one: elsewhere nothing is added to a token.

    Parameters
    ----------
    norm
        Name of the norm, relative to the model's root; with `{stack}` where encoder and decoder have their own.
    constant
        Name of the table whose row 0 joins the sum (BERT's token types: a single text is all of type 0).
    root_scale
        The config's flag for tokens times sqrt(d_model) (BART).
    """

    norm: str
    constant: str | None = None
    root_scale: str | None = None


def layer_norm(name: str, eps: float) -> Norm:
    """A LayerNorm under its torch names, or the `gamma` and `beta` of early BERT files."""
    return Norm("layernorm", (f"{name}.weight", f"{name}.gamma"), (f"{name}.bias", f"{name}.beta"), eps)


def rms_norm(name: str, eps: float, offset: float = 0.0) -> Norm:
    """An RMSNorm; Gemma stores its gain less one, which is `offset=1`."""
    return Norm("rmsnorm", (f"{name}.weight",), (), eps, offset)
