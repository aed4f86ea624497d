"""Broken and hostile quantized checkpoints: one line, when they are opened or when the weight is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from headspan.checkpoint import open_checkpoint
from headspan.errors import HeadspanError
from tests.conftest import Program
from tests.families.quantized import SCHEMES
from tests.robustness import hostile_packed


@pytest.mark.parametrize("name", hostile_packed.CASES)
def test_a_bad_quantized_checkpoint_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    make, message = hostile_packed.CASES[name]
    make(tmp_path)
    with pytest.raises(HeadspanError, match=message) as refusal:
        _ = list(open_checkpoint(tmp_path).heads().blocks())
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize("scheme", [*SCHEMES, *hostile_packed.BITSANDBYTES])
def test_the_intact_checkpoints_behind_the_cases_open(scheme: str, tmp_path: Path) -> None:
    hostile_packed.write(tmp_path, *hostile_packed.tensors_and_settings(scheme))
    assert open_checkpoint(tmp_path).heads().W_Q.shape == (1, 8, 64, 8)


@pytest.mark.parametrize("name", ["GPTQ scale NaN", "nf4 state deeply nested"])
def test_the_command_line_prints_one_line_and_exits_with_2(name: str, tmp_path: Path, program: Program) -> None:
    make, message = hostile_packed.CASES[name]
    make(tmp_path)
    done = program("ranks", str(tmp_path))
    assert done.returncode == 2
    assert re.fullmatch(r"headspan: .+\n", done.stderr)
    assert re.search(message, done.stderr)


def test_a_layer_unlike_the_others_is_found_when_it_is_read(tmp_path: Path) -> None:
    """Of layers alike one shape is read when a checkpoint is opened; another's that contradicts it is not believed."""
    tensors, settings = hostile_packed.tensors_and_settings("int4 groups")
    tensors |= {name.replace("layers.0", "layers.1"): tensor.clone() for name, tensor in tensors.items()}
    tensors["model.layers.1.self_attn.q_proj.weight_shape"] = torch.tensor([64, 60])
    hostile_packed.write(tmp_path, tensors, settings)
    config = {**hostile_packed.CONFIG, "num_hidden_layers": 2, "quantization_config": settings}
    checkpoint = open_checkpoint((tensors, config))
    assert checkpoint.heads(layers=[0]).W_Q.shape == (1, 8, 64, 8)
    with pytest.raises(HeadspanError, match=r"layers\.1\.self_attn\.q_proj\.weight_shape' says \[64, 60\]"):
        _ = checkpoint.heads().W_Q
