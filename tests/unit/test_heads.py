"""Heads: shapes at once, blocks within a budget, folding that changes nothing the model computes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import headspan
from headspan.checkpoint import open_checkpoint
from headspan.errors import ArgumentError, CheckpointError, FoldError, MemoryBudgetError, MissingTensor
from headspan.heads.memory import memory_bytes
from tests.families.tiny_models import CASES, Case, randomize


def tiny(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


@pytest.fixture(scope="module")
def llama() -> headspan.Checkpoint:
    return open_checkpoint(tiny("llama").model(head=True))


@pytest.fixture(scope="module")
def gpt2() -> headspan.Checkpoint:
    return open_checkpoint(tiny("gpt2").model(head=True))


def test_shapes_are_known_before_anything_is_read(llama: headspan.Checkpoint) -> None:
    heads = llama.heads()
    assert heads.shape("Q") == tuple(heads.W_Q.shape) == (2, 4, 24, 6)
    assert heads.shape("K") == tuple(heads.W_K.shape) == (2, 2, 24, 6)
    assert heads.shape("V") == tuple(heads.W_V.shape) == (2, 2, 24, 6)
    assert heads.shape("O") == tuple(heads.W_O.shape) == (2, 4, 6, 24)


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "llama"])
def test_blocks_of_any_size_hold_the_same_numbers(name: str) -> None:
    heads = open_checkpoint(tiny(name).model()).heads()
    whole = {role: heads.whole(role) for role in "QKVO"}
    for memory in ("40kB", "1GB"):
        blocks = list(heads.blocks(memory))
        assert [layer for block in blocks for layer in block.layers] == [0, 1]
        for role, expected in whole.items():
            assert torch.equal(torch.cat([block.weight(role) for block in blocks]), expected)
    assert len(list(heads.blocks("1GB"))) == 1
    assert len(list(heads.blocks("40kB"))) == 2


def test_a_budget_too_small_for_one_layer_says_what_is_needed(llama: headspan.Checkpoint) -> None:
    with pytest.raises(MemoryBudgetError, match=r"one layer needs 28,\d{3} bytes and the memory budget is 1,000"):
        next(llama.heads().blocks(1000))


def test_layers_can_be_chosen(llama: headspan.Checkpoint) -> None:
    all_layers, last = llama.heads(), llama.heads(layers=[1])
    assert last.n_layers == 1
    assert torch.equal(last.W_Q[0], all_layers.W_Q[1])
    assert torch.equal(last.layer(1).W_O, last.W_O)


@pytest.mark.parametrize("layers", [[2], [-1], [0, 0], [], [True, 5]])
def test_a_choice_of_layers_that_does_not_fit_is_refused(llama: headspan.Checkpoint, layers: list[int]) -> None:
    with pytest.raises(ArgumentError, match=r"does not fit a model with layers 0\.\.1"):
        llama.heads(layers=layers)


def test_asking_for_an_unread_role_or_layer_says_so(llama: headspan.Checkpoint) -> None:
    block = llama.heads().layer(0, roles=("Q",))
    with pytest.raises(ArgumentError, match="role O was not read in this block"):
        _ = block.W_O
    with pytest.raises(ArgumentError, match=r"layer 7 is not among these heads' layers 0\.\.1"):
        llama.heads().layer(7)
    with pytest.raises(ArgumentError, match="unknown role 'X'"):
        llama.heads().layer(0, roles=("X",))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float16", "int8", "nonsense", torch.bfloat16])
def test_a_dtype_that_cannot_be_computed_in_is_refused(llama: headspan.Checkpoint, dtype: object) -> None:
    with pytest.raises(ArgumentError, match="cannot be computed in; use float32 or float64"):
        llama.heads(dtype=dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_half_precision_is_promoted_and_the_rest_kept(stored: torch.dtype, read: torch.dtype, tmp_path: Path) -> None:
    model = tiny("llama").model(dtype=stored)
    model.save_pretrained(tmp_path)
    heads = open_checkpoint(tmp_path).heads()
    assert heads.dtype == heads.W_Q.dtype == heads.W_E.dtype == read
    weight = model.layers[1].self_attn.q_proj.weight.detach()
    assert torch.equal(heads.W_Q[1].permute(0, 2, 1).reshape(24, 24), weight.to(read))


def test_grouped_heads_expand_to_the_query_heads_that_read_them(llama: headspan.Checkpoint) -> None:
    heads = llama.heads()
    expanded = heads.per_query_head(heads.W_K)
    assert expanded.shape == heads.W_Q.shape
    for head in range(4):
        assert torch.equal(expanded[:, head], heads.W_K[:, head // 2])


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "gpt_neo", "llama", "qwen2"])
def test_folding_moves_the_norm_into_the_weights(name: str) -> None:
    """Folded weights on the plainly normalised stream read what the stored ones read behind the norm."""
    checkpoint = open_checkpoint(tiny(name).model())
    plain, folded = checkpoint.heads(), checkpoint.heads(fold="layernorm")
    x = torch.randn(5, plain.d_model, dtype=plain.dtype) + 2
    for layer in (0, 1):
        norm = plain.norm(layer)
        z = x - x.mean(-1, keepdim=True) if norm.kind == "layernorm" else x
        z = z / (z.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt()
        normed = norm.gain * z + (0 if norm.bias is None else norm.bias)
        for role in "QKV":
            stored_block, folded_block = plain.layer(layer), folded.layer(layer)
            bias, shift = stored_block.bias(role), folded_block.bias(role)
            expected = normed @ stored_block.weight(role)[0] + (0 if bias is None else bias[0][:, None])
            found = z @ folded_block.weight(role)[0] + (0 if shift is None else shift[0][:, None])
            torch.testing.assert_close(found, expected)
        assert torch.equal(folded.layer(layer).W_O, plain.layer(layer).W_O)


def test_centring_changes_nothing_behind_a_layernorm(gpt2: headspan.Checkpoint) -> None:
    folded, centred = gpt2.heads(fold="layernorm"), gpt2.heads(fold="layernorm", center=True)
    z = torch.randn(5, 24, dtype=torch.float64)
    z = z - z.mean(-1, keepdim=True)
    torch.testing.assert_close(z @ centred.W_Q[1], z @ folded.W_Q[1])
    assert not torch.allclose(centred.W_Q, folded.W_Q)
    for written in (centred.W_O, centred.W_E, centred.W_pos, centred.mlp(0).W_out, centred.layer(0).b_O):
        assert written is not None
        torch.testing.assert_close(written.mean(-1), torch.zeros_like(written.mean(-1)), atol=1e-12, rtol=0)
    torch.testing.assert_close(centred.W_E, folded.W_E - folded.W_E.mean(-1, keepdim=True))


def test_folding_reaches_mlp_and_unembedding(gpt2: headspan.Checkpoint) -> None:
    plain, folded = gpt2.heads(), gpt2.heads(fold="layernorm")
    z = torch.randn(5, 24, dtype=torch.float64)
    final = plain.final_norm()
    assert final.bias is not None
    torch.testing.assert_close(z @ folded.W_U, (final.gain * z) @ plain.W_U)
    stored = gpt2.stack().stack.mlp
    assert stored is not None
    assert stored.norm is not None
    norm = plain.reader.norm(stored.norm, 1)
    assert norm.bias is not None
    bias, shift = plain.mlp(1).b_in[0], folded.mlp(1).b_in[0]
    assert bias is not None
    assert shift is not None
    expected = (norm.gain * z + norm.bias) @ plain.mlp(1).W_in[0] + bias
    torch.testing.assert_close(z @ folded.mlp(1).W_in[0] + shift, expected)


def test_folding_that_would_change_the_model_is_refused(llama: headspan.Checkpoint, gpt2: headspan.Checkpoint) -> None:
    with pytest.raises(FoldError, match="a bert applies its norm after the attention"):
        open_checkpoint(tiny("bert").model()).heads(fold="layernorm")
    with pytest.raises(FoldError, match="a llama uses RMSNorm, which keeps the mean"):
        llama.heads(fold="layernorm", center=True)
    with pytest.raises(ArgumentError, match='center=True goes with fold="layernorm"'):
        gpt2.heads(center=True)
    with pytest.raises(ArgumentError, match="fold='ln' is unknown"):
        gpt2.heads(fold="ln")  # type: ignore[arg-type]


def test_the_models_own_weights_are_never_changed() -> None:
    model = tiny("gpt2").model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    heads = open_checkpoint(model).heads(fold="layernorm", center=True)
    _ = [*heads.blocks()], heads.W_E, heads.W_pos, heads.mlp(0)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_gain_stored_less_one_is_made_whole(llama: headspan.Checkpoint) -> None:
    """Gemma stores its RMSNorm's gain less one."""
    heads = llama.heads()
    plain = heads.stack.norm
    gemma = heads.reader.norm(replace(plain, offset=1.0), 0)
    torch.testing.assert_close(gemma.gain, heads.norm(0).gain + 1)


def test_an_unknown_device_is_refused(llama: headspan.Checkpoint) -> None:
    with pytest.raises(ArgumentError, match="'abacus' is not a device; write it like cpu, cuda"):
        llama.heads(device="abacus")


def test_rank_counts_the_directions_a_head_really_has() -> None:
    model = tiny("llama").model()
    with torch.no_grad():
        query = model.layers[1].self_attn.q_proj.weight.view(4, 6, 24)
        query[2, 3:] = query[2, :3]
        query[3] = 0
        model.layers[0].self_attn.o_proj.weight.view(24, 4, 6)[:, 1, 4:] = 0
    heads = open_checkpoint(model).heads()
    assert heads.rank("Q").tolist() == [[6, 6, 6, 6], [6, 6, 3, 0]]
    assert heads.rank("O").tolist() == [[6, 4, 6, 6], [6, 6, 6, 6]]
    assert heads.rank("K", tolerance=0.999).max() < 6


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_weight_that_is_not_finite_raises_when_it_is_read(bad: float) -> None:
    model = tiny("gpt2").model()
    with torch.no_grad():
        model.h[1].attn.c_attn.weight[3, 5] = bad
    checkpoint = open_checkpoint(model)
    assert checkpoint.heads().layer(0).W_Q.isfinite().all()
    with pytest.raises(CheckpointError, match=r"tensor 'h\.1\.attn\.c_attn\.weight' holds NaN or Inf"):
        checkpoint.heads().layer(1)


def test_a_rotary_model_has_no_position_table(llama: headspan.Checkpoint) -> None:
    with pytest.raises(MissingTensor, match="no learned position table: a llama has rotary positions"):
        _ = llama.heads().W_pos


def test_provenance_tells_fold_states_and_weights_apart(gpt2: headspan.Checkpoint) -> None:
    plain, folded = gpt2.heads().provenance(), gpt2.heads(fold="layernorm", center=True).provenance()
    assert (plain["fold"], folded["fold"]) == ("none", "layernorm+centered")
    assert plain["file_hash"] == folded["file_hash"]
    other = tiny("gpt2").model(head=True)
    randomize(other)
    with torch.no_grad():
        other.transformer.h[0].attn.c_attn.weight[0, 0] += 1
    assert open_checkpoint(other).heads().provenance()["file_hash"] != plain["file_hash"]


@pytest.mark.parametrize(
    ("text", "expected"), [("4GB", 4 * 10**9), ("512 MiB", 2**29), ("1.5k", 1500), (7, 7), ("8", 8)]
)
def test_memory_is_written_as_people_write_it(text: int | str, expected: int) -> None:
    assert memory_bytes(text) == expected


@given(st.text(max_size=12))
def test_any_other_text_for_memory_is_refused_in_one_line(text: str) -> None:
    try:
        amount = memory_bytes(text)
    except MemoryBudgetError as refusal:
        message = str(refusal)
    else:
        message = f"{amount} bytes" if amount >= 1 else "\n"
    assert "\n" not in message
