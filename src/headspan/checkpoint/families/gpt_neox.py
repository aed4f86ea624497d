"""GPT-NeoX and Pythia: one Linear holds, head after head, that head's query, key and value features."""

from __future__ import annotations

from headspan.checkpoint.config import MAX_WIDTH, Config
from headspan.checkpoint.families.description import (
    MLP,
    Linear,
    Projection,
    Rows,
    Shape,
    Stack,
    Table,
    layer_norm,
    rotary,
)


def describe_gpt_neox(config: Config) -> tuple[Stack, ...]:
    """The one decoder stack of a GPT-NeoX; its MLP reads the stream through a norm of its own, in parallel or not."""
    shape = Shape.of(config)
    eps = config.number("layer_norm_eps", default=1e-5)
    attention_bias = config.flag("attention_bias", default=True)

    def linear(name: str, bias: bool = True) -> Linear:
        return Linear(f"{name}.weight", f"{name}.bias", bias_required=bias)

    packed = linear("layers.{layer}.attention.query_key_value", attention_bias)

    def part(index: int) -> Projection:
        return Projection(packed, Rows(shape.n_heads, 3 * shape.d_head, index * shape.d_head, 1, shape.d_head))

    return (
        Stack(
            name="decoder",
            shape=shape,
            causal=True,
            positions="rotary",
            rotary=rotary(config, shape.d_head, default_share=0.25),
            scale=(shape.d_head**-0.5,) * shape.n_layers,
            attention="layers.{layer}.attention.",
            projections={
                "Q": part(0),
                "K": part(1),
                "V": part(2),
                "O": Projection(
                    linear("layers.{layer}.attention.dense", attention_bias), Rows.plain(shape.n_heads, shape.d_head)
                ),
            },
            buffers=("bias", "masked_bias", "rotary_emb.inv_freq"),
            norm=layer_norm("layers.{layer}.input_layernorm", eps),
            norm_place="before",
            mlp=MLP(
                reads=(linear("layers.{layer}.mlp.dense_h_to_4h"),),
                write=linear("layers.{layer}.mlp.dense_4h_to_h"),
                width=config.integer("intermediate_size", most=MAX_WIDTH, default=4 * shape.d_model),
                norm=layer_norm("layers.{layer}.post_attention_layernorm", eps),
            ),
            tokens=Table(("embed_in.weight",)),
            unembedding=Table(("embed_out.weight", "lm_head.weight")),
            tied=config.flag("tie_word_embeddings"),
            final_norm=layer_norm("final_layer_norm", eps),
        ),
    )
