"""How positions and scales enter the logits: rotary settings and the factor on the logits, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from headspan.checkpoint.config import MAX_LAYERS, Config
from headspan.checkpoint.families.parts import Shape
from headspan.errors import CheckpointError

LayerKind = Literal["full", "sliding"]

FULL_THETA = ("rope_theta", "rotary_emb_base", "global_rope_theta")
LLAMA_3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192.0}
"""The settings of Llama 3.1 itself."""
SLIDING_THETA = ("rope_local_base_freq", "local_rope_theta")
Scale = Callable[[Config, Shape], tuple[float, ...]]


@dataclass(frozen=True)
class Rotary:
    """How positions turn queries and keys of one layer: `dims` features of a head from the first on, in pairs.

    Pairs are (i, i + dims/2), or neighbors (2i, 2i + 1) if `interleaved`. Pair i turns by
    `theta ** (-2 i / dims) / factor` radians per position, in the kind "llama3" divided by more for pairs that turn
    slowly (`stretch`). `kind` is the config's own word; where it is none of "default", "linear" and "llama3" the
    frequencies depend on more than this record holds. `dims` 0: this layer turns nothing.
    """

    theta: float
    dims: int
    kind: str = "default"
    factor: float = 1.0
    interleaved: bool = False
    stretch: Stretch | None = None


@dataclass(frozen=True)
class Stretch:
    """How Llama 3.1 fits slow pairs into a longer context than it was first trained on.

    A pair that turns more than `high` times within the `context` of before keeps its frequency, one that turns less
    than `low` times is slowed by `factor`, and in between the two are mixed linearly in the number of turns.
    """

    factor: float
    low: float
    high: float
    context: float

    def divisor(self, frequency: float) -> float:
        """What a frequency in radians per position is divided by; in [1, factor]."""
        turns = self.context * frequency / (2 * math.pi)
        kept = min(1.0, max(0.0, (turns - self.low) / (self.high - self.low)))
        return 1 / (kept + (1 - kept) / self.factor)


def rotations(
    config: Config,
    d_head: int,
    n_layers: int,
    *,
    share: float = 1.0,
    interleaved: bool = False,
    theta: tuple[float, float] = (10_000.0, 10_000.0),
    full_every: int = 1,
) -> tuple[Rotary, ...]:
    """One record per layer.

    Parameters
    ----------
    share, theta, full_every
        What the family assumes where the config is silent: the share of a head that turns, the base frequency of full
        and of sliding-window layers, and that every so many layers the last one is full.
    """
    nested = config.get("rope_parameters", "rope_scaling")
    nested = nested if isinstance(nested, dict) else {}
    by_kind = {"full": nested.get("full_attention"), "sliding": nested.get("sliding_attention")}
    kinds = layer_kinds(config, n_layers, full_every)
    full = by_kind["full"] if isinstance(by_kind["full"], dict) else nested
    turning = {"full": _rotary(config, full, FULL_THETA, d_head, share, theta[0])}
    sliding_names = [name for name in SLIDING_THETA if config.get(name) is not None]
    if isinstance(by_kind["sliding"], dict):
        turning["sliding"] = _rotary(config, by_kind["sliding"], SLIDING_THETA, d_head, share, theta[1])
    elif sliding_names or theta[0] != theta[1]:
        # An older config stretches only its full-attention layers.
        turning["sliding"] = _rotary(config, {}, SLIDING_THETA, d_head, share, theta[1])
    records = {kind: turning.get(kind, turning["full"]) for kind in ("full", "sliding")}
    return tuple(replace(records[kind], interleaved=interleaved) for kind in kinds)


def layer_kinds(config: Config, n_layers: int, full_every: int = 1) -> tuple[LayerKind, ...]:
    """Which layers attend through a sliding window, by the config's list or by its older pattern."""
    listed = config.get("layer_types")
    if isinstance(listed, list):
        if len(listed) != n_layers:
            raise CheckpointError(f"{config.place}: 'layer_types' lists {len(listed)} layers of {n_layers}")
        return tuple("sliding" if kind == "sliding_attention" else "full" for kind in listed)
    if config.get("global_attn_every_n_layers") is not None:
        every = config.integer("global_attn_every_n_layers", most=MAX_LAYERS)
        return tuple("full" if layer % every == 0 else "sliding" for layer in range(n_layers))
    every = config.integer("sliding_window_pattern", "_sliding_window_pattern", most=MAX_LAYERS, default=full_every)
    return tuple("full" if (layer + 1) % every == 0 else "sliding" for layer in range(n_layers))


def _rotary(
    config: Config, nested: dict[str, Any], theta_names: tuple[str, ...], d_head: int, share: float, theta: float
) -> Rotary:
    settings = config.with_fields(nested)
    # Inside a nested record the base frequency has its plain name, whatever the layer.
    names = ("rope_theta",) if "rope_theta" in nested else theta_names
    share = settings.number("partial_rotary_factor", "rotary_pct", default=share)
    kind = nested.get("rope_type") or nested.get("type") or "default"
    dims = settings.integer("rotary_dim", most=d_head, default=int(d_head * share), least=0)
    return Rotary(
        theta=settings.positive(*names, default=theta),
        dims=dims,
        kind=str(kind),
        factor=settings.positive("factor", default=1.0) if kind == "linear" else 1.0,
        stretch=_stretch(settings) if kind == "llama3" else None,
    )


def _stretch(settings: Config) -> Stretch:
    factor, low, high, context = (settings.positive(name, default=value) for name, value in LLAMA_3.items())
    if not (factor >= 1 and high > low):
        raise CheckpointError(
            f"{settings.place}: rotary scaling of kind 'llama3' needs factor >= 1 and high_freq_factor above "
            f"low_freq_factor, found factor {factor:g}, low {low:g}, high {high:g}"
        )
    return Stretch(factor, low, high, context)


def inverse_root_scale(config: Config, shape: Shape) -> tuple[float, ...]:
    """1 / sqrt(d_head), as nearly everywhere."""
    return (shape.d_head**-0.5,) * shape.n_layers


def unit_scale(config: Config, shape: Shape) -> tuple[float, ...]:
    """1: the initialization took care of it (T5, GPT-Neo)."""
    return (1.0,) * shape.n_layers


def gpt2_scale(config: Config, shape: Shape) -> tuple[float, ...]:
    """1 / sqrt(d_head) if the config says so, and 1 / (layer + 1) if it says that too."""
    scale = shape.d_head**-0.5 if config.flag("scale_attn_weights", default=True) else 1.0
    by_layer = config.flag("scale_attn_by_inverse_layer_idx")
    return tuple(scale / (layer + 1) if by_layer else scale for layer in range(shape.n_layers))


def multiplier_scale(config: Config, shape: Shape) -> tuple[float, ...]:
    """The config's own number (Granite)."""
    return (config.number("attention_multiplier", default=1.0),) * shape.n_layers


def query_scalar_scale(config: Config, shape: Shape) -> tuple[float, ...]:
    """1 / sqrt of a number that need not be d_head (Gemma 2 and 3)."""
    return (config.positive("query_pre_attn_scalar", default=256.0) ** -0.5,) * shape.n_layers


def softmax_scale(config: Config, shape: Shape) -> tuple[float, ...]:
    """The number in MPT's `attn_config`, 1 / sqrt(d_head) where there is none."""
    return (config.part("attn_config").number("softmax_scale", default=shape.d_head**-0.5),) * shape.n_layers


def disentangled_scale(config: Config, shape: Shape) -> tuple[float, ...]:
    """DeBERTa adds up to three kinds of logits and divides each by sqrt(d_head * their number)."""
    kinds = config.get("pos_att_type") or []
    kinds = kinds.split("|") if isinstance(kinds, str) else kinds
    kinds = kinds if isinstance(kinds, list) else []
    count = 1 + sum(kind in kinds for kind in ("c2p", "p2c"))
    return ((shape.d_head * count) ** -0.5,) * shape.n_layers


def latent_scale(config: Config, shape: Shape, width: int) -> tuple[float, ...]:
    """DeepSeek: 1 / sqrt of the whole query's width, stretched along with the context."""
    nested = config.get("rope_parameters", "rope_scaling")
    settings = Config(nested if isinstance(nested, dict) else {}, config.place)
    share, factor = settings.number("mscale_all_dim", default=0.0), settings.number("factor", default=1.0)
    stretch = 0.1 * share * math.log(factor) + 1.0 if share and factor > 1 else 1.0
    if settings.get("rope_type", "type") in (None, "default"):
        stretch = 1.0
    return (width**-0.5 * stretch**2,) * shape.n_layers
