"""Which stacks of attention a checkpoint holds, from its config and the names of its tensors.

A described family says it itself. For a family that nobody described there is a guess, of four separate matrices under
familiar names:

1. Find the query matrix of any layer by its name, and key, value and output beside it.
2. Take the shapes from the usual config fields, and hold them against the stored ones.
3. Everything that names and shapes do not show (norms of queries, position schemes) stays unsaid, and the user is
   warned that the description is a guess.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace

from headspan.checkpoint.config import Config, with_defaults
from headspan.checkpoint.families import FAMILIES, Stack
from headspan.checkpoint.families.layout import Layout, describe
from headspan.checkpoint.formats.quantization import packed_format, refuse_packed
from headspan.checkpoint.formats.tensors import TensorInfo
from headspan.checkpoint.stored_stack import StoredNames, StoredStack
from headspan.errors import CheckpointError, UnsupportedModel, UnverifiedFamily

WRAPPED = ("text_config", "language_config", "llm_config")
QKV_NAMES = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("q", "k", "v"),
    ("wq", "wk", "wv"),
    ("to_q", "to_k", "to_v"),
    ("q_lin", "k_lin", "v_lin"),
)
OUTPUT_NAMES = ("o_proj", "out_proj", "dense", "o", "wo", "to_out", "out_lin", "output.dense", "proj", "c_proj")
NORM_NAMES = (
    "input_layernorm", "ln_1", "norm1", "attention_norm", "pre_norm", "self_attn_layer_norm", "layer_norm1",
    "operator_norm", "layernorm_before", "attn_norm", "norm",
)  # fmt: skip
TOKEN_NAMES = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embeddings.word_embeddings.weight")
MAX_NAME = 500
"""Longer names are nobody's tensors, and would keep the search busy."""
ATTENTION_WORDS = re.compile(r"attn|attention|q_proj|qkv|query|\bwq\b", re.IGNORECASE)


def language_config(config: Config) -> Config:
    """The config of the language model inside a wrapper (Gemma 3, LLaVA and the like); any other as it is."""
    if config.model_type in FAMILIES:
        return config
    for name in WRAPPED:
        inner = config.part(name)
        if config.get(name) is not None and inner.model_type in FAMILIES:
            tied = config.get("tie_word_embeddings")
            outer = {} if tied is None else {"tie_word_embeddings": tied}
            return with_defaults(Config({**outer, **inner.fields}, inner.place))
    return config


def stored_stacks(source: str, config: Config, infos: Mapping[str, TensorInfo]) -> dict[str, StoredStack]:
    """Every stack that is there, its attention held against the config."""
    method = packed_format(config, infos)
    describe = FAMILIES.get(config.model_type)
    described = describe(config) if describe is not None else _guess(source, config, infos)
    stacks: dict[str, StoredStack] = {}
    for stack in described:
        names = StoredNames.of(infos, stack, f"'{source}'")
        if names is not None:
            stacks[stack.name] = StoredStack(stack, names)
            stacks[stack.name].check_attention(method)
    if not stacks:
        raise _no_attention(source, config, infos, described[0].projections["Q"].linear.weight, method)
    return stacks


def _guess(source: str, config: Config, infos: Mapping[str, TensorInfo]) -> tuple[Stack, ...]:
    """The generic description with a warning, or a refusal that says what was seen and how to describe it."""
    try:
        stack = guess_stack(config, infos)
    except CheckpointError:
        stack = None
    if stack is not None:
        template = stack.projections["Q"].linear.weight
        warnings.warn(
            f"model_type {config.model_type!r:.60} of '{source}' is not described in headspan; its tensors look like "
            f"'{template}', so weights are read that way, but nobody has checked them against the model",
            UnverifiedFamily,
            stacklevel=2,
        )
        return (stack,)
    seen = attention_names(infos)
    found = f"attention-looking tensors: {', '.join(seen[:6])}" if seen else "no attention-looking tensor"
    raise UnsupportedModel(
        f"model_type {config.model_type!r:.60} is not described in headspan, and its names do not fit the generic "
        f"description; found {found}. To describe it in a dozen lines, see headspan.Layout and headspan.register_family"
    )


def _no_attention(
    source: str, config: Config, infos: Mapping[str, TensorInfo], template: str, method: str | None
) -> CheckpointError | UnsupportedModel:
    if method is not None:
        return refuse_packed(method)
    seen = ", ".join(repr(name) for name in list(infos)[:3]) or "no tensor at all"
    return CheckpointError(
        f"'{source}' has no tensor named like '{template}', which a {config.model_type} has; found {seen}"
    )


def guess_stack(config: Config, names: Collection[str]) -> Stack | None:
    """A description that fits the names, or None."""
    for qkv in QKV_NAMES:
        pattern = re.compile(rf"(?:.*?\.)?([A-Za-z_]+\.\d+\.)((?:[A-Za-z_]+\.)+){qkv[0]}\.weight")
        for name in names:
            match = pattern.fullmatch(name) if len(name) <= MAX_NAME else None
            if match is not None:
                return _stack(config, names, match[1], match[2], qkv)
    return None


def attention_names(names: Collection[str]) -> list[str]:
    """Names that seem to belong to attention, numbers of layers written as `*`."""
    seen = (re.sub(r"\.\d+\.", ".*.", name[:MAX_NAME]) for name in names if ATTENTION_WORDS.search(name[:MAX_NAME]))
    return list(dict.fromkeys(seen))


def _stack(config: Config, names: Collection[str], layer: str, home: str, qkv: tuple[str, str, str]) -> Stack | None:
    known = set(names)
    start = next(name for name in names if name.endswith(f"{layer}{home}{qkv[0]}.weight"))
    root = start[: -len(f"{layer}{home}{qkv[0]}.weight")]
    here = root + layer
    # The output may stand one level above query, key and value, as it does in BERT and ViT.
    homes = (home, home.rpartition(".")[0].rpartition(".")[0] + "." if home.count(".") > 1 else home)
    outputs = [place + name for place in homes for name in OUTPUT_NAMES if f"{here}{place}{name}.weight" in known]
    if not outputs or not all(f"{here}{home}{name}.weight" in known for name in qkv):
        return None
    norm = next((name for name in NORM_NAMES if f"{here}{name}.weight" in known), None)
    template = re.sub(r"\.\d+\.$", ".{layer}.", layer)
    layout = Layout(
        model_type=config.model_type,
        layer=template,
        attention=home,
        query_key_value=(home + qkv[0], home + qkv[1], home + qkv[2]),
        output=outputs[0],
        positions="rotary" if config.get("rope_theta", "rope_parameters", "rope_scaling") is not None else "none",
        norm=norm or "norm",
        bare_norms=norm is None,
        norm_kind="layernorm" if norm and f"{here}{norm}.bias" in known else "rmsnorm",
        has_mlp=False,
        tokens=TOKEN_NAMES,
        unembedding=("lm_head.weight",) if any(name.endswith("lm_head.weight") for name in names) else (),
    )
    return describe(replace(layout, causal=not config.flag("is_encoder_decoder")), config)
