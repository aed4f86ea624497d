"""Every encoder-only family of text and images: one record each, told as the difference to a relative."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from headspan.checkpoint.config import MAX_LAYERS, Config
from headspan.checkpoint.families import logits
from headspan.checkpoint.families.description import Stack
from headspan.checkpoint.families.layout import Layout, describe
from headspan.checkpoint.families.parts import Entry, Shape


def _deberta(layout: Layout, config: Config) -> Layout:
    """Absolute positions are added to the tokens only where the config says so; heads may have a width of their own."""
    if config.flag("position_biased_input", default=True):
        return layout
    return replace(layout, position_table=None)


BERT = Layout(
    model_type="bert",
    shape=partial(Shape.of, kv_heads=""),
    stack="encoder",
    layer="encoder.layer.{layer}.",
    attention="attention.",
    query_key_value=("attention.self.query", "attention.self.key", "attention.self.value"),
    output="attention.output.dense",
    qkv_bias=True,
    output_bias=True,
    buffers=(),
    positions="learned",
    norm_kind="layernorm",
    norm="attention.output.LayerNorm",
    norm_place="after",
    norm_eps=("layer_norm_eps", 1e-12),
    mlp_reads=("intermediate.dense",),
    mlp_write="output.dense",
    mlp_bias=True,
    mlp_norm=None,
    tokens=("embeddings.word_embeddings.weight",),
    position_table="embeddings.position_embeddings.weight",
    unembedding=("cls.predictions.decoder.weight",),
    tied=True,
    final_norm=None,
    entry=Entry("embeddings.LayerNorm", constant="embeddings.token_type_embeddings.weight"),
)
ROBERTA = replace(BERT, model_type="roberta", unused_positions="up to padding", unembedding=("lm_head.decoder.weight",))
ALBERT = replace(
    BERT,
    model_type="albert",
    layer="encoder.albert_layer_groups.{layer}.",
    query_key_value=("attention.query", "attention.key", "attention.value"),
    output="attention.dense",
    norm="attention.LayerNorm",
    mlp_reads=("ffn",),
    mlp_write="ffn_output",
    token_width="embedding_size",
    tokens_through="encoder.embedding_hidden_mapping_in",
    positions_through="encoder.embedding_hidden_mapping_in",
    unembedding=(),
)
VIT = replace(
    BERT,
    model_type="vit",
    query_key_value=("attention.attention.query", "attention.attention.key", "attention.attention.value"),
    qkv_bias=False,
    norm="layernorm_before",
    norm_place="before",
    mlp_norm="layernorm_after",
    tokens=(),
    position_table="embeddings.position_embeddings",
    unembedding=(),
    final_norm="layernorm",
    entry=None,
)
VIT_IN_MEMORY = replace(
    VIT,
    layer="layers.{layer}.",
    query_key_value=("attention.q_proj", "attention.k_proj", "attention.v_proj"),
    output="attention.o_proj",
    mlp_reads=("mlp.fc1",),
    mlp_write="mlp.fc2",
)
"""`transformers` renames a ViT's tensors between file and memory."""

ENCODERS = (
    BERT,
    ROBERTA,
    replace(ROBERTA, model_type="xlm-roberta"),
    replace(
        BERT,
        model_type="distilbert",
        shape=partial(Shape.of, layers="n_layers", heads="n_heads", width="dim", kv_heads=""),
        layer="transformer.layer.{layer}.",
        query_key_value=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        output="attention.out_lin",
        norm="sa_layer_norm",
        norm_eps=("", 1e-12),
        mlp_reads=("ffn.lin1",),
        mlp_write="ffn.lin2",
        mlp_width="hidden_dim",
        unembedding=("vocab_projector.weight",),
        entry=Entry("embeddings.LayerNorm"),
    ),
    replace(
        BERT,
        model_type="electra",
        token_width="embedding_size",
        tokens_through="embeddings_project",
        positions_through="embeddings_project",
        unembedding=(),
    ),
    replace(
        ROBERTA,
        model_type="mpnet",
        query_key_value=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
        output="attention.attn.o",
        positions="relative",
        norm="attention.LayerNorm",
        entry=Entry("embeddings.LayerNorm"),
    ),
    replace(
        BERT,
        model_type="deberta-v2",
        variant=_deberta,
        shape=partial(Shape.of, head_width="attention_head_size", kv_heads=""),
        query_key_value=("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"),
        position_terms=tuple(
            f"self.pos_{kind}_proj.{part}" for kind in ("query", "key") for part in ("weight", "bias")
        ),
        positions="relative",
        scale=logits.disentangled_scale,
        norm_eps=("layer_norm_eps", 1e-7),
        token_width="embedding_size",
        tokens_through="embeddings.embed_proj",
        positions_through="embeddings.embed_proj",
        unembedding=("cls.predictions.decoder.weight", "lm_predictions.lm_head.weight"),
    ),
    Layout(
        model_type="modernbert",
        shape=partial(Shape.of, kv_heads=""),
        stack="encoder",
        attention="attn.",
        query_key_value="attn.Wqkv",
        output="attn.Wo",
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        rotary_theta=(160_000.0, 10_000.0),
        norm_kind="layernorm",
        norm="attn_norm",
        norm_eps=("norm_eps", 1e-5),
        norm_absent=(0,),
        mlp_reads=("mlp.Wi",),
        mlp_fused=True,
        mlp_write="mlp.Wo",
        mlp_bias="mlp_bias",
        mlp_norm="mlp_norm",
        tokens=("embeddings.tok_embeddings.weight",),
        unembedding=("decoder.weight",),
        tied=True,
        final_norm="final_norm",
    ),
)


def describe_albert(config: Config) -> tuple[Stack, ...]:
    """ALBERT: the layers that are stored, which the model runs through several times."""
    groups = config.integer("num_hidden_groups", most=MAX_LAYERS, default=1)
    inner = config.integer("inner_group_num", most=MAX_LAYERS, default=1)
    stack = describe(ALBERT, config)
    n_layers = min(groups * inner, MAX_LAYERS)
    # As transformers does it: which group stands at each depth, then the layers of that group one after the other.
    at_depth = (depth * groups // stack.n_layers for depth in range(stack.n_layers))
    passes = tuple(group * inner + layer for group in at_depth for layer in range(inner))
    keys = tuple(f"{layer // inner}.albert_layers.{layer % inner}" for layer in range(n_layers))
    return (
        replace(
            stack,
            n_layers=n_layers,
            layer_keys=keys,
            repeats=max(1, stack.n_layers // groups),
            passes=passes if len(passes) > n_layers else (),
            scale=stack.scale[:1] * n_layers,
        ),
    )
