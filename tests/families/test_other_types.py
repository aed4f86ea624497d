"""Models that no record describes by name: guesses, wrappers, hybrids, families that a user describes."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
import transformers

import headspan
from headspan.checkpoint import open_checkpoint, summary
from headspan.checkpoint.config import defaults
from headspan.checkpoint.families import FAMILIES
from headspan.errors import ArgumentError, UnsupportedModel, UnverifiedFamily
from tests.families.config_defaults import current_defaults
from tests.families.tiny_models import CASES as KNOWN
from tests.families.tiny_models import GROUPED, IMAGE, STANDARD, Case, randomize


def tiny(model_type: str, **settings: object) -> transformers.PreTrainedModel:
    config = transformers.AutoConfig.for_model(model_type, **settings)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager")
    randomize(model)
    return model.to(torch.float64).eval()


def llama() -> transformers.PreTrainedModel:
    return next(case for case in KNOWN if case.name == "llama").model(head=True)


def test_an_unknown_type_with_familiar_names_opens_with_a_warning() -> None:
    model = llama()
    config = {**model.config.to_dict(), "model_type": "brand_new"}
    with pytest.warns(UnverifiedFamily, match=r"model_type 'brand_new' .* nobody has checked them against the model"):
        checkpoint = open_checkpoint((model.state_dict(), config))
    for role in "QKVO":
        torch.testing.assert_close(checkpoint.heads().whole(role), open_checkpoint(model).heads().whole(role))
    torch.testing.assert_close(checkpoint.heads().norm(1).gain, open_checkpoint(model).heads().norm(1).gain)
    torch.testing.assert_close(checkpoint.heads().W_E, open_checkpoint(model).heads().W_E)


@pytest.mark.parametrize("name", ["bert", "opt", "stablelm", "vit", "distilbert", "gptj"])
def test_the_guess_agrees_with_the_description_where_names_are_familiar(name: str) -> None:
    model = next(case for case in KNOWN if case.name == name).model()
    usual = {"num_attention_heads": 4, "num_hidden_layers": 2, "hidden_size": open_checkpoint(model).heads().d_model}
    if name == "gptj":
        usual["num_attention_heads"] = 3
    config = {**model.config.to_dict(), **usual, "model_type": "brand_new"}
    with pytest.warns(UnverifiedFamily):
        guessed = open_checkpoint((model.state_dict(), config)).heads()
    for role in "QKVO":
        torch.testing.assert_close(guessed.whole(role), open_checkpoint(model).heads().whole(role), atol=0, rtol=0)


def test_a_known_type_opens_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_checkpoint(llama())


def test_an_unknown_type_with_a_config_that_says_too_little_is_refused() -> None:
    with pytest.raises(
        UnsupportedModel, match=r"attention-looking tensors: model\.layers\.\*\.self_attn\.q_proj\.weight"
    ):
        open_checkpoint((llama().state_dict(), {"model_type": "brand_new"}))


def test_layers_that_are_not_attention_are_left_out_and_counted() -> None:
    """Jamba: two state-space layers around one with attention."""
    settings = {**GROUPED, "num_hidden_layers": 3, "attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 2}
    model = tiny("jamba", **settings, mamba_dt_rank=4, use_mamba_kernels=False)
    with pytest.warns(UnverifiedFamily):
        checkpoint = open_checkpoint(model)
    heads = checkpoint.heads()
    assert heads.layers == (1,)
    assert "2 of 3 layers are not attention and are left out" in summary(checkpoint).stacks[0].notes
    assert summary(checkpoint).stacks[0].missing == []
    torch.testing.assert_close(heads.W_Q[0, 0], model.layers[1].self_attn.q_proj.weight[:6].T.detach())
    assert headspan.ranks(heads)["rank_Q"]["head_layer"].values.tolist() == [1] * heads.n_heads
    with pytest.raises(ArgumentError, match="layer 0 has no attention; those that have are 1"):
        checkpoint.heads(layers=[0])


def gemma3() -> transformers.PreTrainedModel:
    text = {**GROUPED, "head_dim": 8, "num_hidden_layers": 3, "sliding_window": 4}
    vision = {**IMAGE, "vision_use_head": False}
    return tiny("gemma3", text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_id=39)


def test_the_language_model_inside_a_wrapper_is_found(tmp_path: Path) -> None:
    model = gemma3()
    model.save_pretrained(tmp_path)
    for checkpoint in (open_checkpoint(model), open_checkpoint(tmp_path)):
        assert checkpoint.family == "gemma3_text"
        weight = model.language_model.layers[1].self_attn.q_proj.weight.detach()
        torch.testing.assert_close(checkpoint.heads().W_Q[1, 2], weight[16:24].T)


def test_a_language_model_beside_an_image_tower_with_the_same_names_is_told_apart(tmp_path: Path) -> None:
    """LLaVA: both towers have `layers.N.self_attn.q_proj`."""
    model = tiny(
        "llava",
        text_config={**STANDARD, "model_type": "llama"},
        vision_config={**IMAGE, "model_type": "clip_vision_model"},
    )
    model.save_pretrained(tmp_path)
    heads = open_checkpoint(tmp_path).heads()
    torch.testing.assert_close(heads.W_K[1, 0], model.language_model.layers[1].self_attn.k_proj.weight[:6].T.detach())


def test_a_nested_config_may_leave_out_what_is_the_default(tmp_path: Path) -> None:
    model = gemma3()
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    assert defaults()["gemma3_text"]["query_pre_attn_scalar"] == 256
    del config["text_config"]["query_pre_attn_scalar"]
    path.write_text(json.dumps(config))
    assert open_checkpoint(tmp_path).stack().stack.scale[0] == 256**-0.5


def test_the_stored_defaults_are_those_of_transformers() -> None:
    assert defaults() == current_defaults()


def test_a_user_can_describe_a_family() -> None:
    model = llama()
    renamed = {name.replace("self_attn.q_proj", "mix.ask"): tensor for name, tensor in model.state_dict().items()}
    layout = headspan.Layout(model_type="homemade", query_key_value=("mix.ask", "self_attn.k_proj", "self_attn.v_proj"))
    headspan.register_family(layout)
    try:
        checkpoint = open_checkpoint((renamed, {**model.config.to_dict(), "model_type": "homemade"}))
        torch.testing.assert_close(checkpoint.heads().W_Q, open_checkpoint(model).heads().W_Q)
    finally:
        del FAMILIES["homemade"]
    assert isinstance(KNOWN[0], Case)
