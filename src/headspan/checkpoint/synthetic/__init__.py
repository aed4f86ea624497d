"""Checkpoints without files: any shape, or text such as `synthetic:mistral-7b?seed=1&planted=20`.

Configs of well-known shapes, and every tensor that a config implies; the tensors are made from a seed when they are
asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from headspan.checkpoint.checkpoint import Checkpoint
from headspan.checkpoint.config import MAX_WIDTH, Config
from headspan.checkpoint.families import FAMILIES, Linear, Norm, Stack, Table
from headspan.checkpoint.formats.tensors import TensorInfo
from headspan.checkpoint.opening import language_config, stored_stacks
from headspan.checkpoint.stored_stack import StoredNames, StoredStack, stored_shape
from headspan.checkpoint.synthetic.store import STRENGTH, Planted, SyntheticStore, random_pairs
from headspan.dims import check_seed
from headspan.errors import CheckpointError, UnsupportedModel

Infos = dict[str, TensorInfo]
SCHEME = "synthetic:"
OPTIONS = ("seed", "layers", "planted", "strength")


def _llama(
    model_type: str, layers: int, heads: tuple[int, int], widths: tuple[int, int], tables: tuple[int, int]
) -> dict[str, Any]:
    """A config by its layers, heads and kv heads, widths of stream and MLP, and sizes of vocabulary and context."""
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "hidden_size": widths[0],
        "intermediate_size": widths[1],
        "vocab_size": tables[0],
        "max_position_embeddings": tables[1],
        "rms_norm_eps": 1e-5,
    }


SHAPES: Mapping[str, Mapping[str, Any]] = {
    "tiny": _llama("llama", 4, (8, 4), (256, 512), (512, 256)),
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
    "mistral-7b": _llama("mistral", 32, (32, 8), (4096, 14336), (32000, 32768)),
    "llama-70b": _llama("llama", 80, (64, 8), (8192, 28672), (32000, 4096)),
}


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


def synthetic(
    shape: str | Mapping[str, Any] = "tiny",
    *,
    planted: int | Sequence[Planted | str | Sequence[object]] = (),
    seed: int = 0,
    layers: int | None = None,
    strength: float = STRENGTH,
) -> Checkpoint:
    """A checkpoint of any shape whose tensors are made on demand; nothing is on disk, nothing is kept.

    Parameters
    ----------
    shape
        "tiny", "gpt2", "mistral-7b", "llama-70b", or the fields of a config with its `model_type`.
    planted
        Pairs that compose: `(src, dst, pairing, strength)`, text such as "L0H1-L3H2:OQ:8", or the number of pairs to
        draw for each of OQ, OK and OV. The kernel of a planted pair is `strength` above its mean under the null.
    seed
        Everything follows from it, tensor by tensor, whatever the order of reading.
    layers
        Another number of layers than the shape has.
    strength
        Of pairs that are drawn.

    Returns
    -------
    Checkpoint
        To be used like any other. Its weights are independent normal numbers, so that every head's subspaces are
        uniformly distributed (Haar) and every kernel has its law under the null, but for the planted pairs.

    >>> import headspan
    >>> model = headspan.synthetic("tiny", planted=["L0H1-L1H2:OQ:8"], seed=1)
    >>> headspan.affinity(model, pairings="OQ").top(1)[["src", "dst"]].values.tolist()
    [['L0H1', 'L1H2']]
    """
    check_seed(seed)
    config = shape_config(shape, layers)
    stack = only_stack(config)
    drawn = isinstance(planted, int)
    pairs = random_pairs(stack, planted, strength, seed) if isinstance(planted, int) else map(Planted.of, planted)
    chosen = tuple(pairs)
    store = SyntheticStore(stack, tensor_infos(stack, config), chosen, seed, stack.norm.offset)
    _ = store.changes  # pairs that do not fit are refused now, not when the first tensor is read
    name = shape if isinstance(shape, str) else f"{config.model_type}-like"
    settings: dict[str, object] = {
        "seed": seed,
        "layers": layers,
        "planted": planted if drawn else ",".join(map(str, chosen)),
        "strength": f"{strength:g}" if drawn and planted else None,
    }
    text = "&".join(f"{key}={value}" for key, value in settings.items() if value not in (None, "", 0) or key == "seed")
    source = f"{SCHEME}{name}?{text}"
    return Checkpoint(source, config, store, stored_stacks(source, config, store.infos))


def open_synthetic(source: str) -> Checkpoint:
    """The checkpoint that text such as `synthetic:llama-70b?seed=1&planted=24&strength=8` names."""
    name, _, query = source.removeprefix(SCHEME).partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = [option for option in options if option not in OPTIONS]
    if unknown:
        raise CheckpointError(f"{unknown[0]!r:.40} is no option of a synthetic model; options are {', '.join(OPTIONS)}")
    planted = options.get("planted", "0")
    try:
        seed, strength = int(options.get("seed", "0")), float(options.get("strength", STRENGTH))
        layers = int(options["layers"]) if "layers" in options else None
    except ValueError as problem:
        raise CheckpointError(f"'{source:.80}' is not understood: {problem}; write synthetic:tiny?seed=1") from problem
    pairs = int(planted) if planted.isdecimal() and len(planted) < 19 else planted.split(",")
    return synthetic(name, seed=seed, layers=layers, planted=pairs, strength=strength)
