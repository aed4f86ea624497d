"""The config that a GGUF file's metadata amounts to, in the family's own fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headspan.checkpoint.config import MAX_HEADS, MAX_LAYERS, MAX_WIDTH, Config
from headspan.checkpoint.families.gguf.architecture import Architecture, Facts, as_written
from headspan.checkpoint.families.logits import LLAMA_3, Stretch
from headspan.checkpoint.families.parts import Shape
from headspan.errors import CheckpointError, UnsupportedModel

TOKEN_IDS = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "pad_token_id": "padding_token_id"}
PLAIN_ROPE = (None, "none", "default")
YARN = {
    "attention_factor": "rope.scaling.yarn_attn_factor",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
}
SAME_ANGLE = 1e-4
"""How well frequencies must be met, relatively; files hold them in single precision."""


def file_shape(settings: Config) -> Shape:
    """The sizes that every architecture states; a list, where layers may differ, must hold one number."""
    n_heads = _same(settings, "attention.head_count", MAX_HEADS)
    n_kv_heads = n_heads
    if settings.get("attention.head_count_kv") is not None:
        n_kv_heads = _same(settings, "attention.head_count_kv", n_heads)
    d_model = settings.integer("embedding_length", most=MAX_WIDTH)
    if settings.get("attention.key_length") is None and d_model % n_heads:
        raise CheckpointError(f"{settings.place}: {n_heads} heads do not share a width of {d_model} evenly")
    d_head = settings.integer("attention.key_length", most=MAX_WIDTH, default=max(d_model // n_heads, 1))
    return Shape(settings.integer("block_count", most=MAX_LAYERS), n_heads, n_kv_heads, d_model, d_head, d_head)


def family_config(architecture: Architecture, facts: Facts, vocabulary: int, tokens: Mapping[str, Any]) -> Config:
    """The family's config; `vocabulary` counts the rows of the token table, `tokens` says which ids are special."""
    settings, shape = facts.settings, facts.shape
    fields: dict[str, Any] = {
        "model_type": architecture.model_type,
        architecture.layers: shape.n_layers,
        architecture.heads: shape.n_heads,
        architecture.width: shape.d_model,
        "vocab_size": vocabulary,
        "tie_word_embeddings": "output.weight" not in facts.names,
    }
    if architecture.kv_heads is not None:
        fields[architecture.kv_heads] = shape.n_kv_heads
    if architecture.mlp_width is not None and settings.get("feed_forward_length") is not None:
        fields[architecture.mlp_width] = _same(settings, "feed_forward_length", MAX_WIDTH)
    if architecture.head_width is not None:
        fields[architecture.head_width] = shape.d_head
    if settings.get("context_length") is not None:
        fields[architecture.context] = settings.integer("context_length", most=10**9)
    if architecture.eps:
        kind = "attention.layer_norm_rms_epsilon" if architecture.rms else "attention.layer_norm_epsilon"
        fields[architecture.eps] = as_written(settings.number(kind, default=1e-5))
    if architecture.rotary:
        fields["rope_parameters"] = rope = _rope(architecture, facts)
        if rope.get("rope_type") == "longrope" and "original_max_position_embeddings" in rope:
            # Phi 3 has a context of before as a setting of its own, whose default would win.
            fields["original_max_position_embeddings"] = rope["original_max_position_embeddings"]
    if architecture.window_every is not None:
        fields["layer_types"] = _layer_types(architecture.window_every, settings, shape.n_layers)
    stated = {field: settings.get(name) for field, name in architecture.fields.items()}
    fields |= {field: _plain(value, settings.place, field) for field, value in stated.items() if value is not None}
    ids = {field: tokens.get(f"tokenizer.ggml.{name}") for field, name in TOKEN_IDS.items()}
    # None where there is none: the families' own defaults are ids of another vocabulary.
    fields |= {f: number if isinstance(number, int) and 0 <= number < vocabulary else None for f, number in ids.items()}
    return Config({**fields, **architecture.fixed}, settings.place)


def _plain(value: Any, place: str, field: str) -> Any:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return as_written(value)
    raise CheckpointError(f"{place}: '{field}' is {value!r:.60}, not a number")


def _same(settings: Config, name: str, most: int) -> int:
    value = settings.get(name)
    if isinstance(value, list):
        if len(set(value)) != 1:
            raise UnsupportedModel(
                f"{settings.place}: '{name}' differs from layer to layer, which headspan does not read"
            )
        settings = settings.with_fields({name: value[0]})
    return settings.integer(name, most=most)


def _layer_types(every: int, settings: Config, n_layers: int) -> list[str]:
    stated = settings.get("attention.sliding_window_pattern")
    if isinstance(stated, list):
        slides = [bool(value) for value in stated]
    else:
        every = every if stated is None else settings.integer("attention.sliding_window_pattern", most=MAX_LAYERS)
        slides = [(layer + 1) % every != 0 for layer in range(n_layers)]
    return ["sliding_attention" if slide else "full_attention" for slide in slides]


def _rope(architecture: Architecture, facts: Facts) -> dict[str, Any]:
    """Rotary settings; where sliding layers turn faster than the others (Gemma 3), those of each kind."""
    settings, shape = facts.settings, facts.shape
    theta = as_written(settings.positive("rope.freq_base", default=10_000.0))
    record = {"rope_theta": theta, **_scaling(facts, theta)}
    turned = settings.integer("rope.dimension_count", most=MAX_WIDTH, default=shape.d_head)
    if turned < shape.d_head and architecture.head_width is None and not architecture.name.startswith("deepseek"):
        record["partial_rotary_factor"] = _share(turned, shape.d_head)
    if architecture.name != "gemma3":
        return record
    sliding = as_written(settings.positive("rope.freq_base_swa", default=10_000.0))
    return {"full_attention": record, "sliding_attention": {"rope_type": "default", "rope_theta": sliding}}


def _share(part: int, whole: int) -> float:
    """part / whole, such that whole times it is not below part."""
    share = part / whole
    return share if int(whole * share) == part else math.nextafter(share, 1.0)


def _scaling(facts: Facts, theta: float) -> dict[str, Any]:
    """How frequencies are stretched for a longer context."""
    settings, tables = facts.settings, facts.tables
    kind = settings.get("rope.scaling.type")
    if "rope_freqs.weight" in tables:
        return _stretched(tables["rope_freqs.weight"], theta, facts)
    context = settings.get("rope.scaling.original_context_length")
    original = {} if context is None else {"original_max_position_embeddings": context}
    if "rope_factors_long.weight" in tables:
        factors = {name: list(tables.get(f"rope_factors_{name}.weight", ())) for name in ("long", "short")}
        return {
            "rope_type": "longrope", "long_factor": factors["long"], "short_factor": factors["short"], **original
        }  # fmt: skip
    if kind in PLAIN_ROPE:
        return {"rope_type": "default"}
    factor = {"factor": as_written(settings.positive("rope.scaling.factor", default=1.0))}
    if kind == "linear":
        return {"rope_type": "linear", **factor}
    if kind == "yarn":
        stated = {field: settings.get(name) for field, name in YARN.items()}
        given = {field: as_written(float(value)) for field, value in stated.items() if value is not None}
        log_multiplier = settings.number("rope.scaling.yarn_log_multiplier", default=0.0)
        scale = {"mscale": as_written(10 * log_multiplier), "mscale_all_dim": as_written(10 * log_multiplier)}
        return {"rope_type": "yarn", **factor, **original, **given, **(scale if log_multiplier else {})}
    raise UnsupportedModel(f"{settings.place}: rotary scaling of kind {kind!r:.40} is not known to headspan")


def _stretched(divisors: tuple[float, ...], theta: float, facts: Facts) -> dict[str, Any]:
    """The settings of Llama 3's stretch, which the file does not hold, from what every frequency is divided by."""
    frequencies = [theta ** (-index / len(divisors)) for index in range(len(divisors))]
    factor = as_written(max(divisors))
    for guess in (dict(LLAMA_3), _solved(divisors, frequencies, factor)):
        if guess is None or factor <= 1:
            continue
        stretch = Stretch(factor, guess["low_freq_factor"], guess["high_freq_factor"],
                          guess["original_max_position_embeddings"])  # fmt: skip
        if all(
            math.isclose(stretch.divisor(f), d, rel_tol=SAME_ANGLE) for f, d in zip(frequencies, divisors, strict=True)
        ):
            context = round(guess["original_max_position_embeddings"])
            return {"rope_type": "llama3", **guess, "factor": factor, "original_max_position_embeddings": context}
    raise UnsupportedModel(f"{facts.settings.place}: its 'rope_freqs' are not those of a known rotary scaling")


def _solved(divisors: tuple[float, ...], frequencies: list[float], factor: float) -> dict[str, float] | None:
    """Between its two bounds the share that is kept is linear in the frequency: two points give both bounds."""
    between = [
        (f, (1 / d - 1 / factor) / (1 - 1 / factor))
        for f, d in zip(frequencies, divisors, strict=True)
        if 1 + SAME_ANGLE < d < factor * (1 - SAME_ANGLE)
    ]
    if len(between) < 2:
        return None
    (f1, kept1), (f2, kept2) = between[0], between[-1]
    slope = (kept1 - kept2) / (f1 - f2)
    low, high = f1 - kept1 / slope, f1 + (1 - kept1) / slope
    if not 0 < low < high:
        return None
    return {
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": as_written(high / low),
        "original_max_position_embeddings": as_written(2 * math.pi / low),
    }
