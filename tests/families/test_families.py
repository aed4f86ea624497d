"""The proof for every family: our heads are the model's heads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers

import headspan
from headspan.checkpoint import Checkpoint, StoredStack, open_checkpoint
from headspan.checkpoint.families import FAMILIES, OWN, Linear
from headspan.heads import Heads
from tests.families.proof import Seen, our_output, our_pattern, run
from tests.families.tiny_models import CASES, Case

by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture
def saved(case: Case, tmp_path: Path) -> Path:
    case.model(head=True).save_pretrained(tmp_path)
    return tmp_path


def layers_of(case: Case, saved: Path) -> Iterator[tuple[Heads, int, Seen]]:
    """Every layer of every stack: our heads, read from the file, and what the running model saw."""
    model, checkpoint = case.model(head=True), open_checkpoint(saved)
    for name in checkpoint.stacks:
        heads = checkpoint.heads(stack=name)
        assert heads.dtype == torch.float64
        for layer, seen in enumerate(run(model, name, case.inputs(), open_checkpoint(model))):
            yield heads, layer, seen


def test_every_family_has_a_case() -> None:
    assert {case.model_type for case in CASES} == set(FAMILIES) - set(OWN)


@by_name
def test_our_queries_and_keys_give_the_models_attention_pattern(case: Case, saved: Path) -> None:
    for heads, layer, seen in layers_of(case, saved):
        ours = our_pattern(seen, heads, layer)
        torch.testing.assert_close(ours, seen.pattern, atol=1e-6, rtol=0)
        assert ours.std() > 5e-3, "a flat pattern would agree with anything"


@by_name
def test_our_heads_sum_to_the_models_attention_output(case: Case, saved: Path) -> None:
    for heads, layer, seen in layers_of(case, saved):
        torch.testing.assert_close(our_output(seen, heads, layer), seen.output, atol=1e-9, rtol=0)


@by_name
def test_every_attention_tensor_is_claimed_exactly_once(case: Case, saved: Path) -> None:
    for stored in open_checkpoint(saved).stacks.values():
        claims = Counter(stored.claimed())
        assert set(claims.values()) == {1}
        assert stored.unclaimed() == []
        homes = [stored.stack.attention.format(layer=stored.stack.key(i)) for i in range(stored.stack.n_layers)]
        under_attention = {
            name for name in stored.names.infos for home in homes if name.startswith(stored.names.prefix + home)
        }
        norms = {name for name in under_attention if "LayerNorm" in name}
        assert {stored.names.prefix + name for name in claims} == under_attention - norms


@by_name
def test_heads_of_a_fused_matrix_share_no_row_and_leave_none(case: Case, saved: Path) -> None:
    for stored in open_checkpoint(saved).stacks.values():
        stack, used = stored.stack, dict[str, Counter[int]]()
        for projection in (*stack.projections.values(), *stack.apart.values()):
            rows = projection.rows
            counts = used.setdefault(projection.linear.weight, Counter())
            for group in range(rows.n_groups):
                start = group * rows.group_rows + rows.start
                counts.update(range(start, start + rows.per_group * rows.d_head))
        for role, projection in stack.projections.items():
            assert projection.rows.n_heads == (stack.n_kv_heads if role in "KV" else stack.n_heads)
            assert used[projection.linear.weight] == Counter(range(projection.rows.n_features)), role


@by_name
@pytest.mark.parametrize("head", [False, True], ids=["bare", "with-head"])
def test_a_model_in_memory_gives_the_same_heads_as_its_file(case: Case, head: bool, tmp_path: Path) -> None:
    model = case.model(head=head)
    model.save_pretrained(tmp_path)
    from_file, from_memory = open_checkpoint(tmp_path), open_checkpoint(model)
    for other in (from_memory, open_checkpoint((model.state_dict(), model.config))):
        assert list(other.stacks) == list(from_file.stacks)
        for name in from_file.stacks:
            ours, theirs = other.heads(stack=name), from_file.heads(stack=name)
            for role in "QKVO":
                torch.testing.assert_close(ours.whole(role), theirs.whole(role), atol=0, rtol=0)
            assert other.stack(name).parts == from_file.stack(name).parts


def parts(case: Case, saved: Path) -> Iterator[tuple[transformers.PreTrainedModel, Checkpoint, Heads]]:
    model, checkpoint = case.model(head=True), open_checkpoint(saved)
    for name in checkpoint.stacks:
        yield model, checkpoint, checkpoint.heads(stack=name)


@by_name
def test_tables_are_the_models_own(case: Case, saved: Path) -> None:
    for model, checkpoint, heads in parts(case, saved):
        there = checkpoint.stack(heads.stack.name).parts
        assert ("W_E" in there) == (case.kind not in ("seeing",) and bool(heads.stack.tokens))
        if "W_E" in there and case.kind != "comparing":
            table = model.get_input_embeddings().weight.detach()
            through = heads.stack.tokens.through
            if through is not None:
                table = table @ dict(model.named_parameters())[_found(model, through.weight)].detach().T
            torch.testing.assert_close(heads.W_E, table, atol=1e-14, rtol=0)
        if "W_U" in there:
            table = model.get_output_embeddings().weight.detach()
            through = heads.stack.unembedding.through
            if through is not None:
                table = table @ dict(model.named_parameters())[_found(model, through.weight)].detach()
            torch.testing.assert_close(heads.W_U.T, table, atol=1e-14, rtol=0)


def _found(model: transformers.PreTrainedModel, name: str) -> str:
    """The full name of the one parameter that ends so."""
    (full,) = (candidate for candidate, _ in model.named_parameters() if candidate.endswith(name))
    return full


@by_name
def test_norms_and_mlps_are_the_models_own(case: Case, saved: Path) -> None:
    for model, _, heads in parts(case, saved):
        stored = open_checkpoint(model).stack(heads.stack.name)
        layer = heads.n_layers - 1
        parameters, modules = dict(model.named_parameters()), dict(model.named_modules())
        norm = stored.stack.norm
        if norm.weight:
            gain = parameters[stored.names.prefix + norm.weight[0].format(layer=stored.stack.key(layer))].detach()
            torch.testing.assert_close(heads.norm(layer).gain, gain + norm.offset, atol=0, rtol=0)
        description = stored.stack.mlp
        if description is None:
            with pytest.raises(headspan.HeadspanError, match=r"mixture of experts|no MLP in this stack"):
                heads.mlp(layer)
            continue
        mlp, x = heads.mlp(layer), torch.randn(3, heads.d_model, dtype=heads.dtype)
        theirs = [modules[stored.names.prefix + _module(stored, linear, layer)](x) for linear in description.reads]
        ours = [x @ weight + (0 if bias is None else bias) for weight, bias in zip(mlp.W_in, mlp.b_in, strict=True)]
        torch.testing.assert_close(torch.cat(ours, dim=-1), torch.cat(theirs, dim=-1).detach())
        hidden = torch.randn(3, description.width, dtype=heads.dtype)
        module = modules[stored.names.prefix + _module(stored, description.write, layer)]
        torch.testing.assert_close(
            hidden @ mlp.W_out + (0 if mlp.b_out is None else mlp.b_out), module(hidden).detach()
        )


def _module(stored: StoredStack, linear: Linear, layer: int) -> str:
    return stored.at_layer(linear, layer).weight.removesuffix(".weight")


def test_roberta_positions_start_behind_the_padding_row(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "roberta")
    model = case.model()
    model.save_pretrained(tmp_path)
    table = model.embeddings.position_embeddings.weight.detach()
    torch.testing.assert_close(open_checkpoint(tmp_path).heads().W_pos, table[2:], atol=0, rtol=0)


def test_early_bert_files_spell_their_norms_gamma_and_beta(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "bert")
    model = case.model()
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in model.state_dict().items()
    }
    config = json.loads(model.config.to_json_string())
    gain = open_checkpoint((old, config)).heads().norm(0).gain
    torch.testing.assert_close(gain, model.encoder.layer[0].attention.output.LayerNorm.weight.detach(), atol=0, rtol=0)


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod.", "base_model.model."])
def test_a_wrappers_prefix_is_found(wrapper: str) -> None:
    model = next(case for case in CASES if case.name == "llama").model(head=True)
    wrapped = {wrapper + name: tensor for name, tensor in model.state_dict().items()}
    heads = open_checkpoint((wrapped, model.config)).heads()
    torch.testing.assert_close(heads.W_U.T, model.lm_head.weight.detach(), atol=0, rtol=0)
    torch.testing.assert_close(heads.W_Q, open_checkpoint(model).heads().W_Q, atol=0, rtol=0)
