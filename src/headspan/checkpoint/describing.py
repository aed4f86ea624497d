"""From a config and the names of the tensors to the stacks of attention in a checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from headspan.checkpoint.config import Config
from headspan.checkpoint.config_defaults import with_defaults
from headspan.checkpoint.families import FAMILIES, Stack
from headspan.checkpoint.families.generic import attention_looking, guessed_stack
from headspan.checkpoint.names import StoredNames
from headspan.checkpoint.refusals import packed_format, refuse_packed
from headspan.checkpoint.stored_stack import StoredStack
from headspan.checkpoint.tensors import TensorInfo
from headspan.errors import CheckpointError, UnsupportedModel, UnverifiedFamily

WRAPPED = ("text_config", "language_config", "llm_config")


def language_config(config: Config) -> Config:
    """The config of the language model inside a wrapper (Gemma 3, LLaVA and the like); any other as it is."""
    if config.model_type in FAMILIES:
        return config
    for name in WRAPPED:
        inner = config.part(name)
        if config.get(name) is not None and inner.model_type in FAMILIES:
            tied = (
                {}
                if config.get("tie_word_embeddings") is None
                else {"tie_word_embeddings": config.get("tie_word_embeddings")}
            )
            return with_defaults(Config({**tied, **inner.fields}, inner.place))
    return config


def described_stacks(source: str, config: Config, infos: Mapping[str, TensorInfo]) -> dict[str, StoredStack]:
    """Every stack that is there, its attention held against the config."""
    method = packed_format(config, infos)
    describe = FAMILIES.get(config.model_type)
    described = describe(config) if describe is not None else _guessed(source, config, infos)
    stacks: dict[str, StoredStack] = {}
    for stack in described:
        names = StoredNames.of(infos, stack, f"'{source}'")
        if names is not None:
            stacks[stack.name] = StoredStack(stack, names)
            stacks[stack.name].check_attention(method)
    if not stacks:
        raise _no_attention(source, config, infos, described[0].projections["Q"].linear.weight, method)
    return stacks


def _guessed(source: str, config: Config, infos: Mapping[str, TensorInfo]) -> tuple[Stack, ...]:
    """The generic description with a warning, or a refusal that says what was seen and how to describe it."""
    try:
        stack = guessed_stack(config, infos)
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
    seen = attention_looking(infos)
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
