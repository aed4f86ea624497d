"""The proof for every family: our heads are the model's heads."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch

import headspan
from headspan.checkpoint.families import FAMILIES
from tests.families.proof import our_output, our_pattern, run
from tests.families.tiny_models import CASES, Case

TOKENS = torch.randint(3, 40, (2, 9), generator=torch.Generator().manual_seed(2))
by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture
def saved(case: Case, tmp_path: Path) -> Path:
    case.model(head=True).save_pretrained(tmp_path)
    return tmp_path


def test_every_family_has_a_case() -> None:
    assert {case.model_type for case in CASES} == set(FAMILIES)


@by_name
def test_our_queries_and_keys_give_the_models_attention_pattern(case: Case, saved: Path) -> None:
    model, checkpoint = case.model(head=True), headspan.open(saved)
    heads = checkpoint.heads()
    for layer, seen in enumerate(run(model, checkpoint, TOKENS)):
        ours = our_pattern(seen, heads.layer(layer), checkpoint, layer)
        torch.testing.assert_close(ours, seen.pattern, atol=1e-6, rtol=0)
        assert ours.std() > 0.05, "a flat pattern would agree with anything"


@by_name
def test_our_heads_sum_to_the_models_attention_output(case: Case, saved: Path) -> None:
    model, checkpoint = case.model(head=True), headspan.open(saved)
    heads = checkpoint.heads()
    assert heads.dtype == torch.float64
    for layer, seen in enumerate(run(model, checkpoint, TOKENS)):
        torch.testing.assert_close(our_output(seen, heads.layer(layer), checkpoint), seen.output, atol=1e-9, rtol=0)


@by_name
def test_every_attention_tensor_is_claimed_exactly_once(case: Case, saved: Path) -> None:
    stored = headspan.open(saved).stack()
    claims = Counter(stored.claimed())
    assert set(claims.values()) == {1}
    assert stored.unclaimed() == []
    under_attention = {
        name
        for name in stored.names.infos
        for layer in range(stored.stack.n_layers)
        if name.startswith(stored.names.prefix + stored.stack.attention.format(layer=layer))
    }
    norms = {name for name in under_attention if "LayerNorm" in name}
    assert {stored.names.prefix + name for name in claims} == under_attention - norms


@by_name
def test_heads_of_a_fused_matrix_share_no_row_and_leave_none(case: Case, saved: Path) -> None:
    stack = headspan.open(saved).stack().stack
    used: dict[str, Counter[int]] = {}
    for role, projection in stack.projections.items():
        rows = projection.rows
        counts = used.setdefault(projection.linear.weight, Counter())
        for group in range(rows.n_groups):
            start = group * rows.group_rows + rows.start
            counts.update(range(start, start + rows.per_group * rows.d_head))
        assert rows.n_heads == (stack.n_kv_heads if role in "KV" else stack.n_heads)
    for role, projection in stack.projections.items():
        assert used[projection.linear.weight] == Counter(range(projection.rows.n_features)), role


@by_name
@pytest.mark.parametrize("head", [False, True], ids=["bare", "with-head"])
def test_a_model_in_memory_gives_the_same_heads_as_its_file(case: Case, head: bool, tmp_path: Path) -> None:
    model = case.model(head=head)
    model.save_pretrained(tmp_path)
    from_file, from_memory = headspan.open(tmp_path), headspan.open(model)
    pair = headspan.open((model.state_dict(), model.config))
    for other in (from_memory, pair):
        for role in "QKVO":
            torch.testing.assert_close(other.heads().whole(role), from_file.heads().whole(role), atol=0, rtol=0)
        torch.testing.assert_close(other.heads().W_E, from_file.heads().W_E, atol=0, rtol=0)
        assert other.stack().parts == from_file.stack().parts


@by_name
def test_tables_are_the_models_own(case: Case, saved: Path) -> None:
    model, heads = case.model(head=True), headspan.open(saved).heads()
    torch.testing.assert_close(heads.W_E, model.get_input_embeddings().weight.detach(), atol=0, rtol=0)
    torch.testing.assert_close(heads.W_U.T, model.get_output_embeddings().weight.detach(), atol=0, rtol=0)


@by_name
def test_norms_and_mlps_are_the_models_own(case: Case, saved: Path) -> None:
    model, heads = case.model(head=True), headspan.open(saved).heads()
    parameters, stored = dict(model.named_parameters()), headspan.open(saved).stack()
    norm_name = stored.names.prefix + stored.stack.norm.weight[0].format(layer=1)
    torch.testing.assert_close(heads.norm(1).gain, parameters[norm_name].detach(), atol=0, rtol=0)
    mlp, description = heads.mlp(1), stored.stack.mlp
    assert description is not None
    x = torch.randn(3, heads.d_model, dtype=heads.dtype)
    modules = dict(model.named_modules())
    for weight, bias, linear in zip(mlp.W_in, mlp.b_in, description.reads, strict=True):
        module = modules[stored.names.prefix + linear.weight.format(layer=1).removesuffix(".weight")]
        torch.testing.assert_close(x @ weight + (0 if bias is None else bias), module(x).detach())
    hidden = torch.randn(3, description.width, dtype=heads.dtype)
    module = modules[stored.names.prefix + description.write.weight.format(layer=1).removesuffix(".weight")]
    torch.testing.assert_close(hidden @ mlp.W_out + (0 if mlp.b_out is None else mlp.b_out), module(hidden).detach())


def test_roberta_positions_start_behind_the_padding_row(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "roberta")
    model = case.model()
    model.save_pretrained(tmp_path)
    table = model.embeddings.position_embeddings.weight.detach()
    torch.testing.assert_close(headspan.open(tmp_path).heads().W_pos, table[2:], atol=0, rtol=0)


def test_early_bert_files_spell_their_norms_gamma_and_beta(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "bert")
    model = case.model()
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in model.state_dict().items()
    }
    config = json.loads(model.config.to_json_string())
    gain = headspan.open((old, config)).heads().norm(0).gain
    torch.testing.assert_close(gain, model.encoder.layer[0].attention.output.LayerNorm.weight.detach(), atol=0, rtol=0)


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod.", "base_model.model."])
def test_a_wrappers_prefix_is_found(wrapper: str) -> None:
    model = next(case for case in CASES if case.name == "llama").model(head=True)
    wrapped = {wrapper + name: tensor for name, tensor in model.state_dict().items()}
    heads = headspan.open((wrapped, model.config)).heads()
    torch.testing.assert_close(heads.W_U.T, model.lm_head.weight.detach(), atol=0, rtol=0)
    torch.testing.assert_close(heads.W_Q, headspan.open(model).heads().W_Q, atol=0, rtol=0)
