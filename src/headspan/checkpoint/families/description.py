"""How a family of models stores its attention: the vocabulary in which every family is described.

A family is a function from a config to `Stack` descriptions. A stack says which tensor holds each role, which of its
rows belong to which head, what norm stands before the attention, and where the embeddings are. Descriptions hold names
and numbers only; reading is done elsewhere, the same way for all families. Names are relative to the model's root:
whatever a checkpoint puts before them (`transformer.`, `model.`, `bert.`) is found when it is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headspan.checkpoint.config import MAX_HEADS, MAX_LAYERS, MAX_WIDTH, Config
from headspan.dims import Positions, Role
from headspan.errors import CheckpointError

Stored = Literal["out_in", "in_out"]
"""Axis order of a stored matrix: `out_in` as torch's Linear keeps it, `in_out` as GPT-2's Conv1D does."""


@dataclass(frozen=True)
class Rows:
    """Which of a projection's output features belong to which head.

    The features form `n_groups` equal groups of `group_rows`; in each group, `per_group` heads of `d_head` features
    lie one after another from `start` on. A plain projection is one group. A fused tensor that keeps query, key and
    value of a head together has one group per head.
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


@dataclass(frozen=True)
class Projection:
    """One role of one layer: a matrix, and the part of it that is this role's. For O the rows count input features."""

    linear: Linear
    rows: Rows


@dataclass(frozen=True)
class Norm:
    """A LayerNorm or RMSNorm. Alternative names cover older spellings; the gain is `offset` + the stored weight."""

    kind: Literal["layernorm", "rmsnorm"]
    weight: tuple[str, ...]
    bias: tuple[str, ...] = ()
    eps: float = 1e-5
    offset: float = 0.0


@dataclass(frozen=True)
class MLP:
    """The matrices that read the stream (one, or gate and up), the one that writes it, and the norm before them."""

    reads: tuple[Linear, ...]
    write: Linear
    width: int
    norm: Norm | None = None


@dataclass(frozen=True)
class Rotary:
    """How positions turn queries and keys: the first `dims` features of a head, in pairs (i, i + dims/2).

    Pair i turns by `theta ** (-2 i / dims) / factor` radians per position. `kind` is the config's own word; where it is
    neither "default" nor "linear" the frequencies depend on more than this record holds.
    """

    theta: float
    dims: int
    kind: str = "default"
    factor: float = 1.0


@dataclass(frozen=True)
class Table:
    """An embedding table; `unused_rows` at its top are never looked up and are dropped."""

    names: tuple[str, ...]
    unused_rows: int = 0


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
    ) -> Shape:
        n_heads = config.integer(heads, "num_attention_heads", most=MAX_HEADS)
        d_model = config.integer(width, "hidden_size", most=MAX_WIDTH)
        if config.get("head_dim") is None and d_model % n_heads:
            raise CheckpointError(
                f"{config.place}: '{width}' = {d_model} is not divisible by '{heads}' = {n_heads}, "
                "and there is no 'head_dim'"
            )
        d_head = config.integer("head_dim", most=MAX_WIDTH, default=max(d_model // n_heads, 1))
        return cls(
            n_layers=config.integer(layers, "num_hidden_layers", most=MAX_LAYERS),
            n_heads=n_heads,
            n_kv_heads=config.integer(kv_heads, most=n_heads, default=n_heads),
            d_model=d_model,
            d_head=d_head,
            d_value=d_head,
        )


@dataclass(frozen=True, kw_only=True)
class Stack:
    """One column of attention layers and everything around it that headspan can hand out."""

    name: Literal["decoder", "encoder"]
    shape: Shape
    causal: bool
    positions: Positions
    rotary: Rotary | None = None
    scale: tuple[float, ...]
    """Factor on the logits, layer by layer."""
    attention: str
    """Template of the prefix under which a layer keeps its attention tensors; each of them is claimed by a role."""
    projections: Mapping[Role, Projection]
    buffers: tuple[str, ...] = ()
    """What is stored under `attention` but is no weight (causal masks, rotary frequencies)."""
    norm: Norm
    norm_place: Literal["before", "after"]
    """Whether the attention reads the normed stream, or the norm follows it."""
    mlp: MLP | None
    tokens: Table | None
    position_table: Table | None = None
    unembedding: Table | None = None
    tied: bool = False
    final_norm: Norm | None = None

    @property
    def n_layers(self) -> int:
        return self.shape.n_layers

    @property
    def n_heads(self) -> int:
        return self.shape.n_heads

    @property
    def n_kv_heads(self) -> int:
        return self.shape.n_kv_heads

    @property
    def d_model(self) -> int:
        return self.shape.d_model

    @property
    def d_head(self) -> int:
        return self.shape.d_head

    @property
    def d_value(self) -> int:
        return self.shape.d_value


def rotary(config: Config, d_head: int, default_share: float = 1.0) -> Rotary:
    """The rotary settings of a config, under their present and their older names."""
    nested = config.get("rope_parameters", "rope_scaling")
    settings = Config({**config.fields, **(nested if isinstance(nested, dict) else {})}, config.place)
    share = settings.number("partial_rotary_factor", "rotary_pct", default=default_share)
    kind = settings.get("rope_type", "type") or "default"
    return Rotary(
        theta=settings.number("rope_theta", "rotary_emb_base", default=10_000.0),
        dims=int(d_head * share),
        kind=str(kind),
        factor=settings.number("factor", default=1.0) if kind == "linear" else 1.0,
    )


def layer_norm(name: str, eps: float) -> Norm:
    """A LayerNorm under its torch names, or the `gamma` and `beta` of early BERT files."""
    return Norm("layernorm", (f"{name}.weight", f"{name}.gamma"), (f"{name}.bias", f"{name}.beta"), eps)


def rms_norm(name: str, eps: float, offset: float = 0.0) -> Norm:
    """An RMSNorm; Gemma stores its gain less one, which is `offset=1`."""
    return Norm("rmsnorm", (f"{name}.weight",), (), eps, offset)
