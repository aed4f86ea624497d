"""A family as one record: the names of its tensors and of its config's fields.

The defaults are those of Llama, so that its many relatives are short. A record says nothing twice: whether a bias is
stored may be said by the family (True), by a field of the config (its name), or by the file alone (False). What
depends on the config in any other way is put right by `variant`, which returns the record for the config at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from headspan.checkpoint.config import MAX_WIDTH, Config, with_defaults
from headspan.checkpoint.families.description import Stack, StackName
from headspan.checkpoint.families.logits import Rotary, Scale, inverse_root_scale, rotations
from headspan.checkpoint.families.parts import (
    MLP,
    Entry,
    HeadNorm,
    Linear,
    Norm,
    NormKind,
    Projection,
    Rows,
    Shape,
    Stored,
    Table,
    layer_norm,
    rms_norm,
)
from headspan.dims import Positions, Role
from headspan.errors import CheckpointError

Bias = bool | str


def _as_is(layout: Layout, config: Config) -> Layout:
    return layout


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Names and config fields of one stack of a family. What is not given is as in Llama.

    >>> import headspan
    >>> headspan.Layout(model_type="mine", output="self_attn.dense").norm
    'input_layernorm'
    """

    model_type: str
    stack: StackName = "decoder"
    causal: bool | None = None
    """None: a decoder is, an encoder is if its config says `is_decoder`."""
    config_field: str | None = None
    """The part of the config that describes this stack, in a model with several."""
    config_type: str | None = None
    """The type of that part, where it does not say so itself."""
    shape: Callable[[Config], Shape] = Shape.of
    """Numbers of layers and heads, and widths, from a config."""
    variant: Callable[[Layout, Config], Layout] = _as_is
    """The record for the config at hand, where it depends on more than a field's value."""

    layer: str = "layers.{layer}."
    """What stands before the names of a layer's tensors; names below are relative to it."""
    attention: str = "self_attn."
    """Where all attention tensors of a layer are, so that none is overlooked."""
    query_key_value: tuple[str, str, str] | str = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    """Three matrices, or one that holds all three."""
    blocks: int | Literal["kv heads"] = 1
    """The one matrix is so many blocks, each with an equal share of the query, key and value heads, in `order`."""
    order: str = "QKV"
    output: str = "self_attn.o_proj"
    qkv_bias: Bias = False
    output_bias: Bias = False
    stored: Stored = "out_in"
    buffers: tuple[str, ...] = ("rotary_emb.inv_freq",)
    """Under `attention`, but no weights."""
    position_terms: tuple[str, ...] = ()
    """Under `attention`, for relative positions."""

    positions: Positions = "rotary"
    rotary_share: float = 1.0
    """Where the config is silent: the share of a head's features that turn."""
    rotary_theta: tuple[float, float] = (10_000.0, 10_000.0)
    """Where the config is silent: the base frequency of full and of sliding-window layers."""
    interleaved: bool = False
    """Neighbouring features turn together, not those half a head apart."""
    full_every: int = 1
    """Every so many layers, the last of them attends to everything, where the config does not say."""
    scale: Scale = inverse_root_scale
    softcap_field: str | None = None
    """The config's field for a cap on logits."""
    clip_field: str | None = None
    """The config's field for a bound on queries, keys and values."""
    sinks: str | None = None
    head_norms: tuple[str, str] | None = None
    """Norms of queries and of keys."""
    head_norm_kind: NormKind = "rmsnorm"
    head_norm_span: Literal["head", "each head", "all heads"] = "head"

    norm_kind: NormKind = "rmsnorm"
    norm: str | None = "input_layernorm"
    """The norm at the attention, None where there is none; the others below are of its kind."""
    bare_norms: bool = False
    """Norms have no parameters."""
    norm_place: Literal["before", "after"] = "before"
    norm_eps: tuple[str, float] = ("rms_norm_eps", 1e-6)
    """The config's field, and what holds without it."""
    norm_offset: float = 0.0
    """What is added to the stored gain; Gemma stores it less one."""
    norm_absent: tuple[int, ...] = ()
    """Layers without the norm at the attention."""
    write_norm: str | None = None
    """A norm of what the attention writes."""
    reads_memory: bool = False
    """Cross-attention."""
    memory_norm: str | None = None
    """The norm behind which keys and values read the encoder's output."""

    mlp_layer: str | None = None
    """Where the MLP's tensors are, if not with the attention's."""
    mlp_reads: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    mlp_fused: bool = False
    """One matrix holds gate and up."""
    mlp_write: str = "mlp.down_proj"
    mlp_bias: Bias = False
    mlp_norm: str | None = "post_attention_layernorm"
    mlp_width: str = "intermediate_size"
    has_mlp: bool = True
    """False where another stack of the same layers hands it out."""
    parallel: bool = False
    """Attention and MLP of a layer read the same stream, side by side."""
    experts: bool = False
    """The MLP is a mixture of experts."""

    tokens: tuple[str, ...] = ("embed_tokens.weight",)
    token_width: str | None = None
    """The config's field for the width of the tables, where it may be narrower than the stream."""
    tokens_through: str | None = None
    positions_through: str | None = None
    unembedding_through: str | None = None
    """The matrices between narrower tables and the stream."""
    position_table: str | None = None
    unused_positions: int | Literal["up to padding"] = 0
    """Rows at the top of the position table that no position uses; RoBERTa counts on from its padding index."""
    unembedding: tuple[str, ...] = ("lm_head.weight",)
    """Empty where the logits are not a linear function of a norm of the stream."""
    tied: bool = False
    final_norm: str | None = "norm"
    entry: Entry | None = None
    """What is done to token plus position before the first layer."""


def describe(layout: Layout, config: Config) -> Stack:
    """The stack that `layout` describes, with the numbers of `config`."""
    if layout.config_field is not None:
        config = with_defaults(config.part(layout.config_field, layout.config_type))
    layout = layout.variant(layout, config)
    shape = layout.shape(config)
    queries, keys = _head_norms(layout, config)
    return Stack(
        **vars(shape),
        name=layout.stack,
        causal=layout.stack == "decoder" or config.flag("is_decoder") if layout.causal is None else layout.causal,
        positions=layout.positions,
        rotary=_rotary(layout, config, shape),
        scale=layout.scale(config, shape),
        softcap=config.optional(layout.softcap_field),
        clip=config.optional(layout.clip_field),
        attention=layout.layer + layout.attention,
        projections=_projections(layout, config, shape),
        query_norm=queries,
        key_norm=keys,
        sinks=None if layout.sinks is None else layout.layer + layout.sinks,
        position_terms=layout.position_terms,
        buffers=layout.buffers,
        norm=_attention_norm(layout, config, shape),
        norm_place=layout.norm_place,
        write_norm=None if layout.write_norm is None else _norm(layout, config, layout.layer + layout.write_norm),
        reads_memory=layout.reads_memory,
        memory_norm=_optional_norm(layout, config, layout.memory_norm),
        mlp=None if layout.experts or not layout.has_mlp else _mlp(layout, config, shape),
        experts=layout.experts,
        parallel=layout.parallel,
        tokens=_table(layout, config, shape, layout.tokens, layout.tokens_through),
        position_table=_position_table(layout, config, shape),
        unembedding=_table(layout, config, shape, layout.unembedding, layout.unembedding_through),
        tied=config.flag("tie_word_embeddings", default=layout.tied),
        final_norm=_optional_norm(layout, config, layout.final_norm),
        entry=layout.entry,
    )


def _rotary(layout: Layout, config: Config, shape: Shape) -> tuple[Rotary, ...]:
    if layout.positions != "rotary":
        return ()
    return rotations(
        config,
        shape.d_head,
        shape.n_layers,
        share=layout.rotary_share,
        interleaved=layout.interleaved,
        theta=layout.rotary_theta,
        full_every=layout.full_every,
    )


def _linear(layout: Layout, name: str, bias: Bias, config: Config) -> Linear:
    required = config.flag(bias) if isinstance(bias, str) else bias
    return replace(Linear.named(name, required), stored=layout.stored)


def _projections(layout: Layout, config: Config, shape: Shape) -> dict[Role, Projection]:
    writer = _linear(layout, layout.layer + layout.output, layout.output_bias, config)
    out = Projection(writer, Rows.plain(shape.n_heads, shape.d_value))
    if isinstance(layout.query_key_value, str):
        packed = _linear(layout, layout.layer + layout.query_key_value, layout.qkv_bias, config)
        rows = fused_rows(layout, shape)
        return {**{role: Projection(packed, rows[role]) for role in rows}, "O": out}
    query, key, value = (
        _linear(layout, layout.layer + name, layout.qkv_bias, config) for name in layout.query_key_value
    )
    return {
        "Q": Projection(query, Rows.plain(shape.n_heads, shape.d_head)),
        "K": Projection(key, Rows.plain(shape.n_kv_heads, shape.d_head)),
        "V": Projection(value, Rows.plain(shape.n_kv_heads, shape.d_value)),
        "O": out,
    }


def fused_rows(layout: Layout, shape: Shape) -> dict[Role, Rows]:
    """Where queries, keys and values lie in one fused matrix."""
    blocks = shape.n_kv_heads if layout.blocks == "kv heads" else layout.blocks
    if shape.n_kv_heads % blocks:
        raise CheckpointError(
            f"a {layout.model_type} keeps its heads in {blocks} equal blocks, which {shape.n_kv_heads} do not fill"
        )
    heads: dict[Role, int] = {
        "Q": shape.n_heads // blocks,
        "K": shape.n_kv_heads // blocks,
        "V": shape.n_kv_heads // blocks,
    }
    width, start, rows = sum(heads.values()) * shape.d_head, 0, {}
    for role in sorted(heads, key=layout.order.index):
        rows[role] = Rows(blocks, width, start, heads[role], shape.d_head)
        start += heads[role] * shape.d_head
    return {role: rows[role] for role in heads}


def _head_norms(layout: Layout, config: Config) -> tuple[HeadNorm | None, HeadNorm | None]:
    if layout.head_norms is None:
        return None, None
    field, default = layout.norm_eps
    query, key = (
        HeadNorm(
            kind=layout.head_norm_kind,
            weight=f"{layout.layer}{name}.weight",
            bias=f"{layout.layer}{name}.bias" if layout.head_norm_kind == "layernorm" else None,
            eps=config.number(field, default=default),
            offset=layout.norm_offset,
            span=layout.head_norm_span,
        )
        for name in layout.head_norms
    )
    return query, key


def _norm(layout: Layout, config: Config, name: str) -> Norm:
    field, default = layout.norm_eps
    eps = config.number(field, default=default)
    if layout.bare_norms:
        return Norm(layout.norm_kind, (), eps=eps)
    return layer_norm(name, eps) if layout.norm_kind == "layernorm" else rms_norm(name, eps, layout.norm_offset)


def _attention_norm(layout: Layout, config: Config, shape: Shape) -> Norm:
    """The norm at the attention; a layout without one has it in no layer."""
    if layout.norm is None:
        return replace(_norm(replace(layout, bare_norms=True), config, ""), absent=tuple(range(shape.n_layers)))
    return replace(_norm(layout, config, layout.layer + layout.norm), absent=layout.norm_absent)


def _optional_norm(layout: Layout, config: Config, name: str | None) -> Norm | None:
    return None if name is None else _norm(layout, config, name)


def _mlp(layout: Layout, config: Config, shape: Shape) -> MLP:
    home = layout.layer if layout.mlp_layer is None else layout.mlp_layer
    return MLP(
        reads=tuple(_linear(layout, home + name, layout.mlp_bias, config) for name in layout.mlp_reads),
        write=_linear(layout, home + layout.mlp_write, layout.mlp_bias, config),
        width=config.integer(layout.mlp_width, most=MAX_WIDTH, default=4 * shape.d_model),
        norm=None if layout.mlp_norm is None else _norm(layout, config, home + layout.mlp_norm),
        fused=layout.mlp_fused,
    )


def _table(layout: Layout, config: Config, shape: Shape, names: tuple[str, ...], through: str | None) -> Table | None:
    """A table, with the matrix between its rows and the stream where the two differ in width."""
    if not names:
        return None
    width = shape.d_model
    if layout.token_width is not None and through is not None:
        width = config.integer(layout.token_width, most=MAX_WIDTH, default=shape.d_model)
    if through is None or width == shape.d_model:
        return Table(names)
    return Table(names, through=Linear.named(through), width=width)


def _position_table(layout: Layout, config: Config, shape: Shape) -> Table | None:
    names = () if layout.position_table is None else (layout.position_table,)
    table = _table(layout, config, shape, names, layout.positions_through)
    if table is None:
        return None
    unused = layout.unused_positions
    rows = (
        config.integer("pad_token_id", least=0, most=MAX_WIDTH, default=1) + 1 if unused == "up to padding" else unused
    )
    return replace(table, unused_rows=rows)
