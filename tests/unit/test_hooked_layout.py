"""Models in TransformerLens' own layout, and layouts without norms, give the same heads as any other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import headspan
from headspan.errors import CheckpointError, FoldError

LAYERS, HEADS, D, R, VOCABULARY, CONTEXT = 2, 4, 24, 6, 30, 10
Weights = dict[str, torch.Tensor]


def toy(kv_heads: int = HEADS, norm: str | None = None, mlp: bool = False, seed: int = 0) -> Weights:
    """An attention-only model (with MLP on request) as `HookedTransformer.state_dict()` has it, buffers too."""
    draw = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    grouped = "" if kv_heads == HEADS else "_"
    tensors: Weights = {"embed.W_E": random(VOCABULARY, D), "unembed.W_U": random(D, VOCABULARY)}
    tensors |= {"pos_embed.W_pos": random(CONTEXT, D), "unembed.b_U": random(VOCABULARY)}
    for layer in range(LAYERS):
        at = f"blocks.{layer}."
        tensors |= {at + "attn.W_Q": random(HEADS, D, R), at + "attn.b_Q": random(HEADS, R)}
        for role in "KV":
            tensors[f"{at}attn.{grouped}W_{role}"] = random(kv_heads, D, R)
            tensors[f"{at}attn.{grouped}b_{role}"] = random(kv_heads, R)
        tensors |= {at + "attn.W_O": random(HEADS, R, D), at + "attn.b_O": random(D)}
        tensors |= {at + "attn.mask": torch.ones(CONTEXT, CONTEXT) > 0, at + "attn.IGNORE": torch.tensor(-1e5)}
        if norm is not None:
            tensors |= {at + "ln1.w": random(D), at + "ln2.w": random(D)}
        if norm == "LN":
            tensors |= {at + "ln1.b": random(D), at + "ln2.b": random(D)}
        if mlp:
            tensors |= {at + "mlp.W_in": random(D, 4 * D), at + "mlp.b_in": random(4 * D)}
            tensors |= {at + "mlp.W_out": random(4 * D, D), at + "mlp.b_out": random(D)}
    return tensors


def config(**fields: Any) -> dict[str, Any]:
    return {"normalization_type": None, "positional_embedding_type": "standard", "attn_only": True, **fields}


def test_heads_of_a_toy_model_are_its_tensors() -> None:
    weights = toy()
    heads = headspan.open((weights, config())).heads()
    for role in "QKVO":
        stored = torch.stack([weights[f"blocks.{layer}.attn.W_{role}"] for layer in range(LAYERS)])
        torch.testing.assert_close(getattr(heads, f"W_{role}"), stored, rtol=0, atol=0)
    torch.testing.assert_close(heads.layer(1).bias("Q")[0], weights["blocks.1.attn.b_Q"], rtol=0, atol=0)
    torch.testing.assert_close(heads.W_E, weights["embed.W_E"], rtol=0, atol=0)
    torch.testing.assert_close(heads.W_pos, weights["pos_embed.W_pos"], rtol=0, atol=0)
    torch.testing.assert_close(heads.W_U, weights["unembed.W_U"], rtol=0, atol=0)


def test_grouped_keys_keep_their_own_heads() -> None:
    weights = toy(kv_heads=2)
    heads = headspan.open((weights, config(n_key_value_heads=2))).heads()
    assert heads.n_kv_heads == 2
    torch.testing.assert_close(heads.W_K[1], weights["blocks.1.attn._W_K"], rtol=0, atol=0)


def test_the_config_is_an_object_as_well() -> None:
    fields = config(n_layers=LAYERS, n_heads=HEADS, d_model=D, d_head=R, rotary_dim=4, rotary_base=500.0)
    fields |= {"positional_embedding_type": "rotary", "attn_scale": 3.0, "rotary_adjacent_pairs": True}
    stack = headspan.open((toy(), SimpleNamespace(to_dict=lambda: fields))).heads().stack
    assert stack.positions == "rotary"
    assert (stack.rotary[0].dims, stack.rotary[0].theta, stack.rotary[0].interleaved) == (4, 500.0, True)
    assert stack.scale == (1 / 3.0,) * LAYERS


@pytest.mark.parametrize(("norm", "kind"), [("LN", "layernorm"), ("RMS", "rmsnorm")])
def test_a_norm_is_read_and_folds(norm: str, kind: str) -> None:
    weights = toy(norm=norm, mlp=True)
    model = headspan.open((weights, config(normalization_type=norm, attn_only=False, d_mlp=4 * D)))
    plain, folded = model.heads(), model.heads(fold="layernorm")
    assert plain.norm(1).kind == kind
    torch.testing.assert_close(folded.W_Q[1], weights["blocks.1.ln1.w"][:, None] * plain.W_Q[1])
    assert "MLP" in model.stored().parts


def test_without_a_config_the_tensors_say_what_they_can() -> None:
    stack = headspan.open((toy(norm="LN"), {})).heads().stack
    assert (stack.norm.kind, stack.positions, stack.n_layers, stack.d_head) == ("layernorm", "learned", LAYERS, R)


def test_a_model_without_norms_has_nothing_to_fold() -> None:
    with pytest.raises(FoldError, match="no norm before the attention"):
        headspan.open((toy(), config())).heads(fold="layernorm")


def test_lenses_that_read_weights_apply() -> None:
    model = headspan.open((toy(), config()))
    assert len(headspan.affinity(model, pairings="OK").top(3)) == 3
    assert "through transformers, which has no hooked_transformer" in str(model.skip_reasons()["attention"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks.0.attn.W_Q": torch.zeros(HEADS, D)}, "the axes head, d_model, d_head; this one has 2"),
        ({"blocks.0.attn.W_K": torch.zeros(HEADS, D, R + 1)}, "but the config implies"),
        ({"blocks.1.attn.W_V": torch.zeros(HEADS * R)}, "a matrix of heads has the axes"),
    ],
)
def test_wrong_shapes_are_refused_by_name(change: Weights, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        headspan.open(({**toy(), **change}, config()))


@pytest.mark.parametrize(
    "fields", [{"normalization_type": "BN"}, {"positional_embedding_type": "spiral"}, {"n_heads": "many"}]
)
def test_a_strange_config_is_refused_by_its_field(fields: dict[str, str]) -> None:
    with pytest.raises(CheckpointError, match=next(iter({"n_heads": "num_attention_heads"}.get(n, n) for n in fields))):
        headspan.open((toy(), config(**fields)))


def test_a_layout_of_ones_own_may_have_no_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    from headspan.checkpoint.families import FAMILIES, describe

    layout = headspan.Layout(model_type="bare", norm=None, has_mlp=False, final_norm=None)
    monkeypatch.setitem(FAMILIES, "bare", lambda config: (describe(layout, config),))
    names = {"q_proj": (D, D), "k_proj": (D, D), "v_proj": (D, D), "o_proj": (D, D)}
    weights = {f"layers.0.self_attn.{name}.weight": torch.randn(shape) for name, shape in names.items()}
    fields = {"model_type": "bare", "num_hidden_layers": 1, "num_attention_heads": HEADS, "hidden_size": D}
    model = headspan.open((weights, fields))
    assert model.heads().W_Q.shape == (1, HEADS, D, R)
    with pytest.raises(FoldError, match="nothing to fold"):
        model.heads(fold="layernorm")
