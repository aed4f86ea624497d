"""Adapters: ours merged as read, against PEFT's own merge."""

from __future__ import annotations

import json
from pathlib import Path

import peft
import pytest
import torch
import transformers

from headspan.checkpoint import open_checkpoint
from headspan.errors import CheckpointError, UnsupportedModel
from tests.families.tiny_models import CASES


def base_and_adapter(tmp_path: Path, name: str = "llama", **options: object) -> tuple[Path, torch.nn.Module]:
    """A base model and a trained-looking adapter of it on disk, and the model that PEFT makes of the two."""
    case = next(case for case in CASES if case.name == name)
    base = case.model(head=True)
    base.save_pretrained(tmp_path / "base")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float64)
    config = peft.LoraConfig(**{"r": 3, "lora_alpha": 5, "task_type": "CAUSAL_LM", **options})
    adapted = peft.get_peft_model(model, config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    adapted.double().save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter", adapted.merge_and_unload()


VARIANTS = {
    "queries-and-values": ("llama", {"target_modules": ["q_proj", "v_proj"]}),
    "everything": ("llama", {"target_modules": "all-linear"}),
    "rank-stabilised": ("llama", {"target_modules": ["k_proj", "o_proj"], "use_rslora": True}),
    "patterns": (
        "llama",
        {
            "target_modules": ["q_proj", "k_proj"],
            "rank_pattern": {"q_proj": 2},
            "alpha_pattern": {"layers.1.self_attn.k_proj": 7},
        },
    ),
    "biases": ("qwen2", {"target_modules": ["q_proj"], "bias": "all"}),
    "modules-to-save": ("llama", {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}),
    "transposed": ("gpt2", {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_adapter_is_merged_as_peft_merges_it(variant: str, tmp_path: Path) -> None:
    name, options = VARIANTS[variant]
    folder, merged = base_and_adapter(tmp_path, name, **options)
    ours, theirs = open_checkpoint(folder).heads(), open_checkpoint(merged).heads()
    plain = open_checkpoint(tmp_path / "base").heads()
    changed = 0
    for role in "QKVO":
        torch.testing.assert_close(ours.whole(role), theirs.whole(role), atol=1e-12, rtol=0)
        changed += not torch.equal(ours.whole(role), plain.whole(role))
    assert changed
    for index, block in enumerate(ours.blocks()):
        for role in "QKV":
            if block.bias(role) is not None:
                torch.testing.assert_close(block.bias(role), list(theirs.blocks())[index].bias(role))
    torch.testing.assert_close(ours.W_E, theirs.W_E, atol=1e-12, rtol=0)
    assert ours.provenance()["file_hash"] != plain.provenance()["file_hash"]


def test_a_half_precision_base_keeps_the_small_change(tmp_path: Path) -> None:
    folder, _ = base_and_adapter(tmp_path, target_modules=["q_proj"])
    base = next(case for case in CASES if case.name == "llama").model(head=True).to(torch.bfloat16)
    base.save_pretrained(tmp_path / "base")
    ours, plain = open_checkpoint(folder).heads(), open_checkpoint(tmp_path / "base").heads()
    assert ours.dtype == plain.dtype == torch.float32
    rounded = (ours.W_Q - plain.W_Q).to(torch.bfloat16).float()
    assert not torch.equal(ours.W_Q, ours.W_Q.to(torch.bfloat16).float())
    assert rounded.abs().max() > 0


def test_an_adapter_without_its_base_is_refused_with_advice(tmp_path: Path) -> None:
    folder, _ = base_and_adapter(tmp_path, target_modules=["q_proj"])
    edit(folder, base_model_name_or_path=str(tmp_path / "nowhere"))
    with pytest.raises(
        CheckpointError, match=r"is an adapter of '.*nowhere', which is not at hand; download that model"
    ):
        open_checkpoint(folder)
    edit(folder, base_model_name_or_path=None)
    with pytest.raises(CheckpointError, match="does not say which model it adapts"):
        open_checkpoint(folder)


def test_an_adapter_of_itself_is_refused(tmp_path: Path) -> None:
    folder, _ = base_and_adapter(tmp_path, target_modules=["q_proj"])
    edit(folder, base_model_name_or_path=str(folder))
    with pytest.raises(CheckpointError, match="adapts another adapter"):
        open_checkpoint(folder)


def test_other_kinds_of_adapters_are_refused(tmp_path: Path) -> None:
    folder, _ = base_and_adapter(tmp_path, target_modules=["q_proj"])
    edit(folder, use_dora=True)
    with pytest.raises(UnsupportedModel, match="holds a DoRA adapter; headspan merges plain LoRA"):
        open_checkpoint(folder)
    edit(folder, use_dora=False, peft_type="IA3")
    with pytest.raises(UnsupportedModel, match="holds a IA3 adapter"):
        open_checkpoint(folder)
    edit(folder, peft_type="LORA", rank_pattern={"(a|b)*q_proj": 4})
    with pytest.raises(UnsupportedModel, match="'rank_pattern' has the entry"):
        open_checkpoint(folder)


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    folder, _ = base_and_adapter(tmp_path, target_modules=["q_proj"])
    other = next(case for case in CASES if case.name == "llama-with-bias-and-wide-heads").model(head=True)
    other.save_pretrained(tmp_path / "base")
    with pytest.raises(CheckpointError, match=r"lora_B\.weight' has shape \(24, 3\), but the config implies \(40, 3\)"):
        open_checkpoint(folder)
    named_otherwise = next(case for case in CASES if case.name == "gpt2").model(head=True)
    named_otherwise.save_pretrained(tmp_path / "base")
    with pytest.raises(CheckpointError, match="which the base model does not have; is it the right base"):
        open_checkpoint(folder)


def edit(folder: Path, **fields: object) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
