"""Quantized weights against the libraries that write them, or against codes packed by hand (`families.quantized`)."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import headspan
from headspan.checkpoint import open_checkpoint
from headspan.checkpoint.checkpoint import summary
from headspan.checkpoint.config import Config
from headspan.checkpoint.formats.packed import arithmetic, unpack_weights
from headspan.checkpoint.formats.tensors import InMemory, TensorStore
from tests.families.quantized import SCHEMES, awq, fp8_blocks, gptq, quantize_folder, quantize_tensors, words
from tests.families.tiny_models import CASES, TOKENS
from tests.robustness.hub_server import HubServer

by_scheme = pytest.mark.parametrize("name", SCHEMES)
NAME = "model.layers.0.self_attn.q_proj.weight"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 1,
    "intermediate_size": 96,
    "vocab_size": 40,
}


def opened(tensors: dict[str, Tensor], config: dict[str, Any] | None = None, transposed: bool = False) -> TensorStore:
    fields = {"model_type": "llama", **({"quantization_config": config} if config else {})}
    return unpack_weights(InMemory.of(tensors), Config(fields), transposed)


@pytest.fixture(scope="module")
def attention(stories: Path) -> dict[str, Tensor]:
    """The attention of a real model's first layer."""
    tensors = load_file(stories / "model.safetensors")
    return {name: tensor for name, tensor in tensors.items() if ".layers.0.self_attn." in name}


@by_scheme
def test_a_weight_is_what_its_codes_stand_for(name: str, attention: dict[str, Tensor]) -> None:
    scheme = SCHEMES[name]
    stored, values = quantize_tensors(attention, scheme.make)
    store = opened(stored, dict(scheme.config))
    assert len(values) == 4
    for weight, value in values.items():
        found = store.read([weight])[weight]
        assert found.dtype == torch.float32
        assert torch.equal(found.to(value.dtype), value), weight
        assert store.infos[weight].stored_as == scheme.text
        assert store.infos[weight].shape == tuple(value.shape)
        error = torch.linalg.vector_norm(found - attention[weight]) / torch.linalg.vector_norm(found)
        assert store.roundoff(weight) == pytest.approx(float(error), rel=0.25)
    assert set(store.infos) == set(attention)


@by_scheme
def test_heads_of_a_quantized_model_are_those_of_its_values(name: str, attention: dict[str, Tensor]) -> None:
    scheme = SCHEMES[name]
    stored, values = quantize_tensors(attention, scheme.make)
    config = {**LLAMA, **({"quantization_config": dict(scheme.config)} if scheme.config else {})}
    ours, plain = (
        open_checkpoint((tensors, config)) for tensors in (stored, {k: v.float() for k, v in values.items()})
    )
    for role in "QKVO":
        assert torch.equal(ours.heads().whole(role).to(values[NAME].dtype).float(), plain.heads().whole(role))
    assert ours.heads().provenance()["stored_dtype"] == scheme.text
    assert summary(ours).n_parameters == summary(plain).n_parameters
    assert ours.stack().unclaimed() == []
    assert ours.unread == []


def test_a_matrix_is_unpacked_in_pieces_as_in_one(
    attention: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that end within a group of rows, groups in any order, tails of blocks."""
    for name in ("GPTQ act-order", "AWQ", "fp8 blocks", "NVFP4", "int4 asymmetric"):
        scheme = SCHEMES[name]
        stored, _ = quantize_tensors(attention, scheme.make)
        whole = opened(stored, dict(scheme.config))
        monkeypatch.setattr(arithmetic, "ENTRIES", 5 * 64)
        pieces = opened(stored, dict(scheme.config))
        assert torch.equal(pieces.read([NAME])[NAME], whole.read([NAME])[NAME])
        monkeypatch.undo()
        assert pieces.roundoff(NAME) == pytest.approx(whole.roundoff(NAME), rel=1e-6)


def test_errors_of_a_code_book_follow_its_gaps() -> None:
    """Numbers spread evenly, rounded to the nearest entry, have just that mean square error."""
    book = torch.tensor([0.0, 0.5, 3.0, 1.0, float("nan")])
    found = arithmetic.code_errors(book)
    numbers = torch.linspace(0.25, 2.0, 200_001, dtype=torch.float64)
    nearest = (numbers[:, None] - book[:4].double()).abs().argmin(1)
    for code in (1, 3):
        errors = (numbers - book[code].double())[nearest == code].square()
        assert float(found[code]) == pytest.approx(float(errors.mean()), rel=1e-3)
    assert found[4] == 0


@pytest.mark.parametrize("bits", range(1, 9))
def test_codes_of_any_width_come_out_as_they_went_in(bits: int) -> None:
    codes = torch.randint(0, 2**bits, (3, 45), generator=torch.Generator().manual_seed(bits))
    assert torch.equal(arithmetic.fields(words(codes.tolist(), bits), bits, 45).long(), codes)


def test_awq_is_what_compressed_tensors_makes_of_it(attention: dict[str, Tensor]) -> None:
    from compressed_tensors.entrypoints.convert.converters import AutoAWQConverter

    stored, values = quantize_tensors(attention, awq(32))
    converted = AutoAWQConverter(group_size=32).process(dict(stored))
    theirs = opened({name: tensor.contiguous() for name, tensor in converted.items()}, {"quant_method": "x", "bits": 4})
    ours = opened(stored)
    for name in values:
        assert torch.equal(theirs.read([name])[name], ours.read([name])[name])


def test_nvfp4_of_modelopt_is_what_compressed_tensors_makes_of_it(attention: dict[str, Tensor]) -> None:
    stored, values = quantize_tensors(attention, SCHEMES["NVFP4"].make)
    named = {
        name.replace("weight_packed", "weight").replace("weight_global_scale", "weight_scale_2"): (
            1 / tensor if name.endswith("global_scale") else tensor
        )
        for name, tensor in stored.items()
    }
    named["model.layers.0.self_attn.q_proj.input_scale"] = torch.tensor(0.5)
    store = opened(named, {"quant_method": "modelopt", "quant_algo": "NVFP4"})
    for name, value in values.items():
        torch.testing.assert_close(store.read([name])[name].to(value.dtype), value, rtol=2**-7, atol=0)
    assert set(store.infos) == set(values)


def test_block_scaled_fp8_is_what_transformers_makes_of_it(attention: dict[str, Tensor]) -> None:
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    stored, values = quantize_tensors(attention, SCHEMES["fp8 blocks"].make)
    stem = NAME.removesuffix(".weight")
    codes = stored[NAME][:48, :48].contiguous()
    scales = stored[f"{stem}.weight_scale_inv"][:2, :2].contiguous()
    theirs = Fp8Dequantize(None)._dequantize_one(codes, scales, torch.float32)
    store = opened({NAME: codes, f"{NAME}_scale_inv": scales}, {"quant_method": "fp8", "weight_block_size": [24, 24]})
    assert torch.equal(store.read([NAME])[NAME], theirs)
    assert torch.equal(theirs, values[NAME][:48, :48])


def test_mxfp4_experts_are_what_transformers_makes_of_them() -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    generator = torch.Generator().manual_seed(0)
    blocks = torch.randint(0, 256, (3, 10, 2, 16), dtype=torch.uint8, generator=generator)
    scales = torch.randint(100, 140, (3, 10, 2), dtype=torch.uint8, generator=generator)
    theirs = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    home = "model.layers.0.mlp.experts.gate_up_proj"
    store = opened({f"{home}_blocks": blocks, f"{home}_scales": scales, f"{home}_bias": torch.zeros(3, 10)})
    assert set(store.infos) == {home, f"{home}_bias"}
    assert store.infos[home].shape == tuple(theirs.shape) == (3, 64, 10)
    assert torch.equal(store.read([home])[home], theirs)
    assert store.infos[home].stored_as == "MXFP4 (4 bits, groups of 32)"


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", "llama", "bert"])
def test_every_layout_comes_out_as_its_family_keeps_it(family: str) -> None:
    """Conv1D, one fused matrix, grouped heads, biases: GPTQ stores them all as [out, in]."""
    case = next(case for case in CASES if case.name == family)
    sizes = {"n_embd": 32, "n_head": 4} if family == "gpt2" else {"hidden_size": 32, "intermediate_size": 64}
    model = replace(case, settings={**case.settings, **sizes}).model(dtype=torch.float32)
    stored, values = quantize_tensors(model.state_dict(), gptq(4, 16), transposed=family == "gpt2")
    assert len(values) >= 4
    config = {**model.config.to_dict(), "model_type": family}
    ours = open_checkpoint((stored, {**config, "quantization_config": {"quant_method": "gptq", "bits": 4}}))
    plain = open_checkpoint(({**model.state_dict(), **values}, config))
    for role in "QKVO":
        assert torch.equal(ours.heads().whole(role), plain.heads().whole(role))
    assert torch.equal(ours.heads().mlp(0).W_out, plain.heads().mlp(0).W_out)


def test_a_deepseek_published_in_fp8_is_read_and_run(tmp_path: Path) -> None:
    """Every matrix but tables and gates in blocks with `weight_scale_inv`: latent attention, MLPs, single experts."""
    import transformers

    from headspan.runtime import open_runnable

    case = next(case for case in CASES if case.name == "deepseek_v3")
    case.model(head=True, dtype=torch.float32).save_pretrained(tmp_path)
    tensors, make = load_file(tmp_path / "model.safetensors"), fp8_blocks(5)
    values = {name: make(tensor)[1] for name, tensor in tensors.items() if "proj" in name and tensor.ndim == 2}
    for name in values:
        parts, _ = make(tensors.pop(name))
        tensors |= {name.replace("weight", part): content for part, content in parts.items()}
    assert any("experts.0" in name for name in values)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [5, 5]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    plain = {**{name: tensor for name, tensor in tensors.items() if "scale" not in name}, **values}
    ours, theirs = open_checkpoint(tmp_path).heads(), open_checkpoint((plain, config)).heads()
    for role in "QKVO":
        assert torch.equal(ours.whole(role), theirs.whole(role))
    del config["quantization_config"]
    (tmp_path / "plain").mkdir()
    save_file(plain, tmp_path / "plain" / "model.safetensors", {"format": "pt"})
    (tmp_path / "plain" / "config.json").write_text(json.dumps(config))
    reference = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "plain", dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        expected = reference(TOKENS).logits
        torch.testing.assert_close(open_runnable(tmp_path).module(TOKENS).logits, expected)


def test_an_adapter_is_merged_into_a_quantized_base(stories: Path, tmp_path: Path) -> None:
    values = quantize_folder(stories, tmp_path / "base", SCHEMES["int4 groups"])
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": str(tmp_path / "base")}
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    generator = torch.Generator().manual_seed(0)
    A, B = torch.randn(2, 64, generator=generator), torch.randn(64, 2, generator=generator)
    stem = f"base_model.model.{NAME.removesuffix('.weight')}"
    save_file({f"{stem}.lora_A.weight": A, f"{stem}.lora_B.weight": B}, adapter / "adapter_model.safetensors")
    merged = open_checkpoint(adapter)
    assert torch.equal(merged.store.read([NAME])[NAME], values[NAME] + 2.0 * (B @ A))
    assert merged.heads().provenance()["stored_dtype"] == "int4 (4 bits, groups of 32)"


def model_of_rank(rank: int) -> dict[str, Tensor]:
    """One layer whose heads have that many dimensions of their eight."""
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for role, heads in {"q": 8, "k": 4, "v": 4, "o": 8}.items():
        bases = torch.linalg.qr(torch.randn(heads, 8, rank, generator=generator)).Q
        W = (bases @ torch.randn(heads, rank, 64, generator=generator)).reshape(-1, 64)
        tensors[f"model.layers.0.self_attn.{role}_proj.weight"] = W.T.contiguous() if role == "o" else W
    return tensors


@pytest.mark.parametrize("name", ["GPTQ 8 bits", "GPTQ 4 bits", "AWQ", "int8 channel", "fp8 blocks", "MXFP8", "NVFP4"])
def test_ranks_are_decided_by_the_steps_of_the_packing(name: str) -> None:
    """Rounding gives heads of two dimensions eight; the packing's noise tells which are real. Full rank stays."""
    scheme = SCHEMES[name]
    for rank in (2, 8):
        stored, _ = quantize_tensors(model_of_rank(rank), scheme.make)
        model = headspan.open((stored, {**LLAMA, "quantization_config": dict(scheme.config)}))
        ranks = headspan.ranks(model)
        assert ranks.attrs["tolerance"] == f"noise of {scheme.text}"
        assert ranks.attrs["stored_dtype"] == scheme.text
        for role in "QKVO":
            assert (ranks.grid()[f"rank_{role}"].values == rank).all(), role
        unruled = headspan.ranks(model, tolerance=1e-6)
        assert (unruled.grid()["rank_Q"].values == 8).all()


def test_findings_of_spectra_take_the_packings_noise_for_no_singular_matrix(attention: dict[str, Tensor]) -> None:
    scheme, generator = SCHEMES["GPTQ 4 bits"], torch.Generator().manual_seed(1)
    random = {name: torch.randn(tensor.shape, generator=generator) for name, tensor in attention.items()}
    stored, _ = quantize_tensors(random, scheme.make)
    model = headspan.open((stored, {**LLAMA, "quantization_config": dict(scheme.config)}))
    result = headspan.spectra(model, matrices=["W_Q"])
    assert 0.05 < result.attrs["roundoff"] < 0.1
    assert (result.table("matrices")["numerical_rank"] < 64).all()
    assert not [finding for finding in result.findings if "singular:" in finding.statement]


def test_the_roundoff_of_attention_is_that_of_its_coarsest_matrix(attention: dict[str, Tensor]) -> None:
    plain = {name: tensor for name, tensor in attention.items() if "k_proj" in name}
    packed, _ = quantize_tensors({k: v for k, v in attention.items() if k not in plain}, SCHEMES["GPTQ 4 bits"].make)
    heads = open_checkpoint(({**plain, **packed}, LLAMA)).heads()
    store = heads.checkpoint.store
    assert heads.attention_roundoff() == max(store.roundoff(name) for name in attention) > 0.05
    assert store.roundoff(next(iter(plain))) == 0
    assert open_checkpoint((attention, LLAMA)).heads().attention_roundoff() == 2**-24


def test_inspect_reads_no_weight_and_does_without_torch(stories: Path, tmp_path: Path) -> None:
    quantize_folder(stories, tmp_path, SCHEMES["int4 groups"])
    code = (
        "import sys; from headspan.cli.main import app\n"
        "try: app(['inspect', sys.argv[1], '--json'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["dtypes"]["int4 (4 bits, groups of 32)"] == 20
    assert found["n_parameters"] == summary(open_checkpoint(stories)).n_parameters


def test_a_quantized_model_on_the_hub_is_read_in_parts(hub: HubServer, stories: Path, tmp_path: Path) -> None:
    values = quantize_folder(stories, tmp_path, SCHEMES["int4 asymmetric"])
    hub.add("org/tiny", tmp_path)
    remote = open_checkpoint("org/tiny")
    assert torch.equal(remote.store.read([NAME])[NAME], values[NAME])
    assert remote.store.content_hash() == open_checkpoint(tmp_path).store.content_hash()


def test_a_quantized_model_runs_as_the_model_of_its_values(stories: Path, tmp_path: Path) -> None:
    import transformers

    from headspan.runtime import open_runnable

    values = quantize_folder(stories, tmp_path, SCHEMES["GPTQ 4 bits"])
    ours = open_runnable(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(stories)
    theirs.load_state_dict(values, strict=False)
    tokens = torch.arange(2, 12)[None]
    with torch.no_grad():
        torch.testing.assert_close(ours.module(tokens).logits, theirs(tokens).logits)
    assert ours.tokenizer is not None


@pytest.mark.slow
@pytest.mark.parametrize("source", ["stories", "minilm"])
@by_scheme
def test_lenses_run_on_real_models_in_every_scheme(
    name: str, source: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(source)
    values = quantize_folder(folder, tmp_path, SCHEMES[name])
    assert len(values) >= 20
    model = headspan.open(tmp_path)
    found = model.checkpoint.store.read(list(values))
    assert all(torch.equal(found[weight].to(value.dtype), value) for weight, value in values.items())
    assert headspan.ranks(model).attrs["tolerance"] == f"noise of {SCHEMES[name].text}"
    original, ours = (headspan.affinity(each, pairings="OK")["OK"].projection_kernel.values for each in (folder, model))
    both = np.isfinite(original)
    assert np.isfinite(ours[both]).all()
    assert np.corrcoef(original[both], ours[both])[0, 1] > (
        0.5 if any(few in name for few in ("2 bits", "3 bits", "int3")) else 0.8
    )
    spectra = headspan.spectra(model, matrices=["W_Q", "W_O"])
    assert spectra.attrs["stored_dtype"] == SCHEMES[name].text
    assert spectra.attrs["roundoff"] > 0.003


def test_affinity_of_a_quantized_model_is_near_that_of_the_original(stories: Path, tmp_path: Path) -> None:
    quantize_folder(stories, tmp_path, SCHEMES["int8 channel"])
    pairs = [headspan.affinity(folder, pairings="OK")["OK"].projection_kernel.values for folder in (stories, tmp_path)]
    both = np.isfinite(pairs[0])
    assert both.sum() > 300
    assert np.abs(pairs[0] - pairs[1])[both].max() < 0.1
    assert not np.array_equal(pairs[0][both], pairs[1][both])
