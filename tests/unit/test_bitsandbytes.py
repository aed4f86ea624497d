"""Weights in bitsandbytes' layouts against the library itself, which runs on a processor but is large: slow tests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

import headspan
from headspan.checkpoint import open_checkpoint
from headspan.checkpoint.config import Config
from headspan.checkpoint.formats.packed import unpack_weights
from headspan.checkpoint.formats.tensors import InMemory
from tests.families.quantized import Tensors, quantize_tensors
from tests.families.tiny_models import CASES

pytestmark = pytest.mark.slow
KINDS = ("nf4", "fp4", "nf4 nested", "fp4 nested", "int8")


def coded(weight: Tensor, kind: str) -> tuple[Tensors, Tensor]:
    """A linear layer as the library saves it, and what the library reads back."""
    import bitsandbytes as library

    if kind == "int8":
        codes, largest, _ = library.functional.int8_vectorwise_quant(weight.half())
        value = library.functional.int8_vectorwise_dequant(codes, largest)
        return {"weight": codes, "SCB": largest.float(), "weight_format": torch.tensor(0, dtype=torch.uint8)}, value
    options = {"quant_type": kind[:3], "compress_statistics": kind.endswith("nested")}
    layer = library.nn.Linear4bit(weight.shape[1], weight.shape[0], bias=False, **options)
    layer.weight = library.nn.Params4bit(weight.clone(), requires_grad=False, **options).to("cpu")
    value = library.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    return {name: tensor.clone() for name, tensor in layer.state_dict().items()}, value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(64, 64), (96, 40), (33, 50), (400, 130)])
def test_weights_are_those_of_the_library(kind: str, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    parts, value = coded(weight, kind)
    tensors = {f"a.{name}": tensor for name, tensor in parts.items()}
    store = unpack_weights(InMemory.of(tensors), Config({"model_type": "llama"}), transposed=False)
    found = store.read(["a.weight"])["a.weight"]
    assert torch.equal(found.to(value.dtype), value)
    assert list(store.infos) == ["a.weight"]
    assert store.infos["a.weight"].shape == shape
    scheme = "LLM.int8 (8 bits, groups of one row)" if kind == "int8" else f"{kind[:3]} (4 bits, groups of 64)"
    assert store.infos["a.weight"].stored_as == scheme
    error = float(torch.linalg.vector_norm(found - weight.float()) / torch.linalg.vector_norm(found))
    assert store.roundoff("a.weight") == pytest.approx(error, rel=0.25)


@pytest.mark.parametrize("model", ["stories", "minilm"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_real_model_is_read_as_the_library_reads_it(
    kind: str, model: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source: Path = request.getfixturevalue(model)
    for path in source.iterdir():
        if path.is_file() and path.suffix != ".safetensors":
            shutil.copy(path, tmp_path)
    tensors = load_file(source / "model.safetensors")
    stored, values = quantize_tensors(tensors, lambda weight: coded(weight, kind))
    save_file(stored, tmp_path / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": kind != "int8"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    ours = open_checkpoint(tmp_path)
    plain = open_checkpoint(({**tensors, **values}, json.loads((source / "config.json").read_text())))
    for role in "QKVO":
        assert torch.equal(ours.heads().whole(role), plain.heads().whole(role).float())
    ranks = headspan.ranks(tmp_path)
    assert str(ranks.attrs["tolerance"]).startswith(f"noise of {'LLM.int8' if kind == 'int8' else kind[:3]}")
    kernels = headspan.affinity(tmp_path, pairings="OK")["OK"].projection_kernel.values
    assert np.isfinite(kernels).sum() > 100


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_checkpoint_that_transformers_quantized_gives_its_own_weights(family: str, bits: int, tmp_path: Path) -> None:
    """Saved by `transformers` with the library; GPT-2's Conv1D is turned round there, and back here."""
    case = next(case for case in CASES if case.name == family)
    case.model(head=True).float().save_pretrained(tmp_path / "plain")
    options: dict[str, Any] = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    settings = transformers.BitsAndBytesConfig(**options if bits == 4 else {"load_in_8bit": True})
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "plain", quantization_config=settings, dtype=torch.float32, device_map="cpu"
    )
    model.save_pretrained(tmp_path / "packed")
    ours = open_checkpoint(tmp_path / "packed")
    plain = open_checkpoint(tmp_path / "plain").heads()
    assert any(info.packing is not None for info in ours.store.infos.values())
    for role in "QKVO":
        near = torch.linalg.vector_norm(ours.heads().whole(role) - plain.whole(role))
        assert 0 < near < 0.15 * torch.linalg.vector_norm(plain.whole(role))
