"""The factor on the logits, layer by layer, by each of the rules that families use."""

from __future__ import annotations

import math
from collections.abc import Callable

from headspan.checkpoint.config import Config
from headspan.checkpoint.families.description import Shape

Scale = Callable[[Config, Shape], tuple[float, ...]]


def inverse_root(config: Config, shape: Shape) -> tuple[float, ...]:
    """1 / sqrt(d_head), as nearly everywhere."""
    return (shape.d_head**-0.5,) * shape.n_layers


def unscaled(config: Config, shape: Shape) -> tuple[float, ...]:
    """1: the initialisation took care of it (T5, GPT-Neo)."""
    return (1.0,) * shape.n_layers


def gpt2(config: Config, shape: Shape) -> tuple[float, ...]:
    """1 / sqrt(d_head) if the config says so, and 1 / (layer + 1) if it says that too."""
    scale = shape.d_head**-0.5 if config.flag("scale_attn_weights", default=True) else 1.0
    by_layer = config.flag("scale_attn_by_inverse_layer_idx")
    return tuple(scale / (layer + 1) if by_layer else scale for layer in range(shape.n_layers))


def multiplier(config: Config, shape: Shape) -> tuple[float, ...]:
    """The config's own number (Granite)."""
    return (config.number("attention_multiplier", default=1.0),) * shape.n_layers


def query_scalar(config: Config, shape: Shape) -> tuple[float, ...]:
    """1 / sqrt of a number that need not be d_head (Gemma 2 and 3)."""
    return (config.positive("query_pre_attn_scalar", default=256.0) ** -0.5,) * shape.n_layers


def softmax_scale(config: Config, shape: Shape) -> tuple[float, ...]:
    """The number in MPT's `attn_config`, 1 / sqrt(d_head) where there is none."""
    return (config.part("attn_config").number("softmax_scale", default=shape.d_head**-0.5),) * shape.n_layers


def disentangled(config: Config, shape: Shape) -> tuple[float, ...]:
    """DeBERTa adds up to three kinds of logits and divides each by sqrt(d_head * their number)."""
    kinds = config.get("pos_att_type") or []
    kinds = kinds.split("|") if isinstance(kinds, str) else kinds
    kinds = kinds if isinstance(kinds, list) else []
    count = 1 + sum(kind in kinds for kind in ("c2p", "p2c"))
    return ((shape.d_head * count) ** -0.5,) * shape.n_layers


def latent(config: Config, shape: Shape, width: int) -> tuple[float, ...]:
    """DeepSeek: 1 / sqrt of the whole query's width, stretched along with the context."""
    nested = config.get("rope_parameters", "rope_scaling")
    settings = Config(nested if isinstance(nested, dict) else {}, config.place)
    share, factor = settings.number("mscale_all_dim", default=0.0), settings.number("factor", default=1.0)
    stretch = 0.1 * share * math.log(factor) + 1.0 if share and factor > 1 else 1.0
    if settings.get("rope_type", "type") in (None, "default"):
        stretch = 1.0
    return (width**-0.5 * stretch**2,) * shape.n_layers
