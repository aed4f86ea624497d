"""Configs with wrong values in the fields that families read: described, or refused in one line, never a crash."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headspan.checkpoint.config import Config
from headspan.checkpoint.families import FAMILIES, default_fields
from headspan.checkpoint.opening import language_config
from headspan.errors import HeadspanError

EXTRA = (
    "rope_parameters", "rope_scaling", "layer_types", "pos_att_type", "attn_config", "text_config", "vision_config",
    "num_key_value_heads", "head_dim", "rotary_dim", "partial_rotary_factor", "q_lora_rank", "feed_forward_proj",
    "sliding_window_pattern", "global_attn_every_n_layers", "clip_qkv", "attn_logit_softcapping", "pad_token_id",
)  # fmt: skip
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.text(max_size=4) | st.integers(0, 9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["rope_theta", "factor", "rope_type", "full_attention", "sliding_attention", "clip_qkv", "x"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)


@st.composite
def configs(draw: st.DrawFn) -> Config:
    model_type = draw(st.sampled_from(sorted(FAMILIES)))
    fields = {**default_fields(model_type), "model_type": model_type}
    # Sizes small enough that a description of all layers takes no time.
    fields |= {name: 3 for name in fields if "layers" in name or name == "n_layer"}
    names = draw(st.lists(st.sampled_from([*sorted(fields), *EXTRA]), max_size=4, unique=True))
    return Config({**fields, **{name: draw(JUNK) for name in names if name != "model_type"}})


def check(config: Config) -> None:
    try:
        stacks = FAMILIES[config.model_type](language_config(config))
    except HeadspanError:
        return
    for stack in stacks:
        assert 1 <= stack.n_layers <= 10_000
        assert stack.n_heads % stack.n_kv_heads == 0
        assert all(math.isfinite(scale) for scale in stack.scale)
        assert all(record.theta > 0 and record.factor > 0 for record in stack.rotary)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configs())
def test_no_config_crashes_a_description(config: Config) -> None:
    check(config)


@pytest.mark.slow
@settings(max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configs())
def test_none_of_very_many_configs_crashes_a_description(config: Config) -> None:
    check(config)
