"""Configs of well-known shapes, and every tensor that a config implies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headspan.checkpoint.config import MAX_WIDTH, Config
from headspan.checkpoint.describing import language_config
from headspan.checkpoint.families import FAMILIES, Linear, Norm, Stack, Table
from headspan.checkpoint.names import StoredNames
from headspan.checkpoint.stored_stack import StoredStack, stored_shape
from headspan.checkpoint.tensors import TensorInfo
from headspan.errors import CheckpointError, UnsupportedModel

_LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "hidden_size": 256,
    "intermediate_size": 512,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
}

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "tiny": _LLAMA,
    "gpt2": {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_head": 12,
        "n_embd": 768,
        "n_positions": 1024,
        "vocab_size": 50257,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
    },
    "mistral-7b": {
        **_LLAMA,
        "model_type": "mistral",
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "vocab_size": 32000,
        "max_position_embeddings": 32768,
    },
    "llama-70b": {
        **_LLAMA,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
    },
}

Infos = dict[str, TensorInfo]


def shape_config(shape: str | Mapping[str, Any], layers: int | None = None) -> Config:
    """The config of a named shape or of a dict, with another number of layers if that is asked for."""
    if isinstance(shape, str) and shape not in SHAPES:
        raise CheckpointError(f"there is no synthetic shape {shape!r:.60}; shapes are {', '.join(SHAPES)}, or a dict")
    fields = dict(SHAPES[shape] if isinstance(shape, str) else shape)
    if layers is not None:
        fields["n_layer" if "n_layer" in fields else "num_hidden_layers"] = layers
    return language_config(Config(fields, "the synthetic config"))


def only_stack(config: Config) -> Stack:
    """The one stack of plain attention that a config describes; others are refused."""
    describe = FAMILIES.get(config.model_type)
    stacks = () if describe is None else describe(config)
    plain = len(stacks) == 1 and stacks[0].query_norm is None and stacks[0].sinks is None
    if not plain or any(each.latent is not None for each in stacks[0].projections.values()):
        raise UnsupportedModel(
            f"a synthetic model is one stack of plain attention, as in llama or gpt2; {config.model_type!r:.60} is not"
        )
    return stacks[0]


def tensor_infos(stack: Stack, config: Config) -> Infos:
    """Name, dtype and shape of every tensor of the model."""
    infos: Infos = {}
    for name, shape in _tensors(stack, config):
        # Names of the layers' tensors are relative to a root, which most published files call `model`.
        whole = name if config.model_type == "gpt2" or name.startswith("lm_head") else f"model.{name}"
        infos[whole] = TensorInfo(whole, "float32", shape, "made on demand")
    return infos


def _tensors(stack: Stack, config: Config) -> Iterator[tuple[str, tuple[int, ...]]]:
    d, stored = stack.d_model, StoredStack(stack, StoredNames({}, "", "a synthetic model"))
    vocabulary = config.integer("vocab_size", most=MAX_WIDTH)
    context = config.integer("max_position_embeddings", "n_positions", most=MAX_WIDTH, default=1024)
    tied = stack.tied
    tables: list[tuple[Table | None, int]] = [(stack.tokens, vocabulary), (stack.position_table, context)]
    tables += [] if tied else [(stack.unembedding, vocabulary)]
    for table, rows in tables:
        if table is not None:
            yield table.names[0], (rows + table.unused_rows, d)
    if stack.final_norm is not None:
        yield from _norm(stack.final_norm, "", d)
    for layer in range(stack.n_layers):
        for linear, (n_in, n_out) in stored.matrices():
            yield from _linear(linear.at(stack.key(layer)), n_in, n_out)
        if layer not in stack.norm.absent:
            yield from _norm(stack.norm, stack.key(layer), d)
        yield from _mlp(stack, stack.key(layer))
    if stack.write_norm is not None:
        for layer in range(stack.n_layers):
            yield from _norm(stack.write_norm, stack.key(layer), d)


def _mlp(stack: Stack, key: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    mlp = stack.mlp
    if mlp is None:
        return
    for linear in mlp.reads:
        yield from _linear(linear.at(key), stack.d_model, 2 * mlp.width if mlp.fused else mlp.width)
    yield from _linear(mlp.write.at(key), mlp.width, stack.d_model)
    if mlp.norm is not None and mlp.norm.weight != stack.norm.weight:
        yield from _norm(mlp.norm, key, stack.d_model)


def _linear(linear: Linear, n_in: int, n_out: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield linear.weight, stored_shape(linear, n_in, n_out)
    if linear.bias is not None and linear.bias_required:
        yield linear.bias, (n_out,)


def _norm(norm: Norm, key: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    for names in (norm.weight, norm.bias):
        if names:
            yield names[0].format(layer=key), (width,)
