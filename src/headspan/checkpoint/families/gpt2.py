"""GPT-2: query, key and value side by side in one Conv1D matrix [d_model, 3 d_model], biases everywhere."""

from __future__ import annotations

from headspan.checkpoint.config import MAX_WIDTH, Config
from headspan.checkpoint.families.description import MLP, Linear, Projection, Rows, Shape, Stack, Table, layer_norm


def describe_gpt2(config: Config) -> tuple[Stack, ...]:
    """The one decoder stack of a GPT-2."""
    shape = Shape.of(config, layers="n_layer", heads="n_head", width="n_embd")
    d_model, eps = shape.d_model, config.number("layer_norm_epsilon", default=1e-5)

    def conv1d(name: str) -> Linear:
        return Linear(f"{name}.weight", f"{name}.bias", bias_required=True, stored="in_out")

    packed, width = conv1d("h.{layer}.attn.c_attn"), shape.n_heads * shape.d_head
    parts = {
        role: Projection(packed, Rows(1, 3 * width, i * width, shape.n_heads, shape.d_head))
        for i, role in enumerate("QKV")
    }
    return (
        Stack(
            name="decoder",
            shape=shape,
            causal=True,
            positions="learned",
            scale=_logit_scale(config, shape),
            attention="h.{layer}.attn.",
            projections={
                "Q": parts["Q"],
                "K": parts["K"],
                "V": parts["V"],
                "O": Projection(conv1d("h.{layer}.attn.c_proj"), Rows.plain(shape.n_heads, shape.d_head)),
            },
            buffers=("bias", "masked_bias"),
            norm=layer_norm("h.{layer}.ln_1", eps),
            norm_place="before",
            mlp=MLP(
                reads=(conv1d("h.{layer}.mlp.c_fc"),),
                write=conv1d("h.{layer}.mlp.c_proj"),
                width=config.integer("n_inner", most=MAX_WIDTH, default=4 * d_model),
                norm=layer_norm("h.{layer}.ln_2", eps),
            ),
            tokens=Table(("wte.weight",)),
            position_table=Table(("wpe.weight",)),
            unembedding=Table(("lm_head.weight",)),
            tied=config.flag("tie_word_embeddings", default=True),
            final_norm=layer_norm("ln_f", eps),
        ),
    )


def _logit_scale(config: Config, shape: Shape) -> tuple[float, ...]:
    scale = shape.d_head**-0.5 if config.flag("scale_attn_weights", default=True) else 1.0
    by_layer = config.flag("scale_attn_by_inverse_layer_idx")
    return tuple(scale / (layer + 1) if by_layer else scale for layer in range(shape.n_layers))
