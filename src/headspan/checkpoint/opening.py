"""From what the user names (a folder, a file, a model on the Hub or in memory, "demo") to an opened Checkpoint.

Which stacks of attention a checkpoint holds, from its config and the names of its tensors.

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
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from headspan.checkpoint.adapter import MergedAdapter, adapter_settings, is_adapter
from headspan.checkpoint.checkpoint import Checkpoint, Folder
from headspan.checkpoint.config import Config, read_json, with_defaults
from headspan.checkpoint.converted import ConvertedTensors, GGUFFiles, converted
from headspan.checkpoint.families import FAMILIES, Stack
from headspan.checkpoint.families.hooked import hooked_model, is_hooked
from headspan.checkpoint.families.layout import Layout, describe
from headspan.checkpoint.formats.local_files import LocalFiles, folder_config, gguf_parts, safe_path, weight_files
from headspan.checkpoint.formats.packed import unpack_weights
from headspan.checkpoint.formats.tensors import InMemory, TensorInfo, TensorStore, packed_format, refuse_packed
from headspan.checkpoint.hub import HubReference, check_endpoint, hub_reference
from headspan.checkpoint.stored_stack import StoredNames, StoredStack
from headspan.checkpoint.wrapped import unwrapped
from headspan.demo import demo_folder
from headspan.errors import CheckpointError, HeadspanError, UnsupportedModel, UnverifiedFamily
from headspan.input_files import user_path


def open_checkpoint(source: Any, config: Any = None) -> Checkpoint:
    """Open a checkpoint: headers are read and checked, weights are not.

    Parameters
    ----------
    source
        A folder in Hugging Face layout; one weight file (with `config`, or a config.json beside it); a GGUF file, or a
        folder with one; a name on the Hugging Face Hub, `"org/name"`, `"org/name@revision"` or `"org/name/file.gguf"`,
        of which only what is asked for is read; `"demo"`;
        `"synthetic:SHAPE?seed=1"` (see `headspan.synthetic`); a `transformers` model in memory, also one inside a
        wrapper of TransformerLens or nnsight; or a pair `(state_dict, config)`. A local path goes before a name on the
        Hub.
    config
        Path of a config.json, a dict, or a `transformers` config, for a source that has none of its own.
    """
    if isinstance(source, str | PathLike):
        return _open_path(str(source), config, may_be_on_the_hub=isinstance(source, str))
    if isinstance(source, tuple) and len(source) == 2:
        state_dict, own_config = source
        return _checkpoint("in memory", _config(own_config), InMemory.of(state_dict))
    inner = unwrapped(source)
    if inner is not None:
        state_dict, own_config = inner
        return _checkpoint(f"{type(source).__name__} in memory", _config(config or own_config), InMemory.of(state_dict))
    if hasattr(source, "state_dict") and hasattr(source, "config"):
        return _checkpoint(
            f"{type(source).__name__} in memory", _config(config or source.config), InMemory.of(source.state_dict())
        )
    raise CheckpointError(
        f'cannot open a {type(source).__name__}; give a folder, a weight file, a name on the Hub, "demo", '
        "a transformers model, or a pair (state_dict, config)"
    )


def _open_path(source: str, config: Any, may_be_on_the_hub: bool) -> Checkpoint:
    if source.startswith("synthetic:"):
        # Drawing numbers needs torch, which reading headers does not.
        from headspan.checkpoint.synthetic import open_synthetic

        return open_synthetic(source)
    path = demo_folder() if source == "demo" else user_path(source, CheckpointError)
    try:
        if is_adapter(path):
            return _open_adapter(source, path, config)
        if path.is_dir():
            store = LocalFiles.of(weight_files(path))
            return _of_files(source, store, lambda: folder_config(path), config, _snapshot_revision(path), path)
        if path.is_file():
            parts = gguf_parts(path.name)
            store = LocalFiles.of([path] if len(parts) == 1 else [safe_path(path.parent, name) for name in parts])
            return _of_files(source, store, lambda: _config_beside(path), config, folder=path.parent)
    except (OSError, ValueError) as problem:
        raise CheckpointError(f"'{source}' cannot be opened: {problem}") from problem
    reference = hub_reference(source) if may_be_on_the_hub else None
    if reference is None:
        raise CheckpointError(
            f"there is no file or folder '{source}'; give a path, a name on the Hub (org/name, org/name@revision, "
            'org/name/file.gguf), or "demo" for the embedded model'
        )
    return _open_on_the_hub(reference, config)


def _open_on_the_hub(reference: HubReference, config: Any) -> Checkpoint:
    check_endpoint()
    # huggingface_hub takes a third of a second to load, which an analysis of a local folder need not pay.
    from headspan.checkpoint.hub.model import open_hub_model

    model = open_hub_model(reference)
    return _of_files(str(reference), model.store, model.config, config, model.commit, model.folder)


def _of_files(
    source: str,
    files: GGUFFiles,
    own_config: Callable[[], Config],
    given: Any,
    revision: str | None = None,
    folder: Folder = None,
) -> Checkpoint:
    """A checkpoint of weight files, with the config that was given, that the files hold, or that lies beside them."""
    store: TensorStore = files
    if files.gguf:
        store, stated = converted(files)
        return _checkpoint(source, stated if given is None else _config(given), store, revision, folder)
    return _checkpoint(source, own_config() if given is None else _config(given), store, revision, folder)


def _open_adapter(source: str, folder: Path, config: Any) -> Checkpoint:
    """The model that an adapter adapts, with the adapter merged into its weights."""
    name = adapter_settings(folder).get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        raise CheckpointError(f"'{source}' is an adapter that does not say which model it adapts")
    if is_adapter(user_path(name, CheckpointError)):
        raise CheckpointError(f"'{source}' adapts another adapter, '{name}'; merge that one first")
    try:
        base = open_checkpoint(name, config)
    except HeadspanError as problem:
        raise CheckpointError(
            f"'{source}' is an adapter of '{name}', which is not at hand; download that model, or merge the two with "
            f"peft (merge_and_unload): {problem}"
        ) from problem
    store = MergedAdapter.of(base.store, folder)
    return _checkpoint(source, base.config, store, base.revision, base.beside)


def _config_beside(path: Path) -> Config:
    if not (path.parent / "config.json").is_file():
        raise CheckpointError(f"'{path.name}' needs a config: pass the model's config.json with --config (config=...)")
    return _config(path.parent / "config.json")


def _config(config: Any) -> Config:
    if isinstance(config, str | PathLike):
        path = user_path(config, CheckpointError)
        if not path.is_file():
            raise CheckpointError(f"there is no config file '{path}'")
        return Config(read_json(path), path.name)
    if hasattr(config, "to_dict"):
        own = {"model_type": config.model_type} if hasattr(config, "model_type") else {}
        return Config({**config.to_dict(), **own}, "the model's config")
    if isinstance(config, Mapping):
        return Config(dict(config), "the given config")
    raise CheckpointError(f"a config is a path, a dict or a transformers config, not a {type(config).__name__}")


def _checkpoint(
    source: str, config: Config, store: TensorStore, revision: str | None = None, folder: Folder = None
) -> Checkpoint:
    if is_hooked(store.infos):
        config, origins = hooked_model(store.infos, config)
        store = ConvertedTensors(store, origins)
    outer, config = config, language_config(config)
    store = unpack_weights(store, outer, _keeps_in_out(config))
    return Checkpoint(source, config, store, stored_stacks(source, config, store.infos), revision, folder)


def _keeps_in_out(config: Config) -> bool:
    """Whether the family stores its matrices as [in, out]."""
    describe = FAMILIES.get(config.model_type)
    return describe is not None and describe(config)[0].projections["Q"].linear.stored == "in_out"


def _snapshot_revision(folder: Path) -> str | None:
    """The commit a Hugging Face cache snapshot stands for, which is its folder's name."""
    real = folder.resolve()
    return real.name if real.parent.name == "snapshots" else None


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
