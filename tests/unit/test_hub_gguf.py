"""GGUF files on the Hub: the same heads as from the downloaded file, by ranges, with their tokenizer."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch

import headspan
from headspan.checkpoint import open_checkpoint
from headspan.checkpoint.hub import HubReference, hub_reference
from headspan.errors import CheckpointError, HubError
from headspan.runtime import continuation, encoded, open_runnable
from tests.families.gguf_models import GGUF_CASES, write_gguf, write_parts
from tests.robustness.hub_server import HubServer


@pytest.fixture
def served(hub: HubServer, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    arch, case = GGUF_CASES["llama"]
    write_gguf(folder / "tiny-Q8_0.gguf", arch, case.model(head=True), gguf.GGMLQuantizationType.Q8_0)
    hub.add("org/tiny", folder)
    return folder / "tiny-Q8_0.gguf"


def test_names_of_files_on_the_hub_are_told_from_names_of_models() -> None:
    assert hub_reference("org/name/a.gguf") == HubReference("org/name", "main", "a.gguf")
    assert hub_reference("org/name/Q4/a-00001-of-00002.gguf@v1") == HubReference(
        "org/name", "v1", "Q4/a-00001-of-00002.gguf"
    )
    assert str(hub_reference("org/name/Q4/a.gguf")) == "org/name/Q4/a.gguf"
    for wrong in (
        "name/a.gguf",
        "org/name/../a.gguf",
        "org/name/a.safetensors",
        "org/name//a.gguf",
        "/org/name/a.gguf",
    ):
        assert hub_reference(wrong) is None


@pytest.mark.parametrize("name", ["org/tiny", "org/tiny/tiny-Q8_0.gguf"])
def test_a_gguf_file_on_the_hub_gives_bit_identical_heads(name: str, served: Path, hub: HubServer) -> None:
    remote, local = open_checkpoint(name), open_checkpoint(served)
    assert remote.config.fields == local.config.fields
    assert remote.source == name
    stored = "model.layers.0.self_attn.q_proj.weight"
    assert remote.store.roundoff(stored) == local.store.roundoff(stored) > 0
    for role in ("W_Q", "W_K", "W_V", "W_O", "W_E"):
        assert torch.equal(getattr(remote.heads(), role), getattr(local.heads(), role))
    assert remote.heads().provenance()["file_hash"] == local.heads().provenance()["file_hash"]


def test_a_file_in_parts_on_the_hub_is_read_whole_from_any_of_them(hub: HubServer, tmp_path: Path) -> None:
    arch, case = GGUF_CASES["llama"]
    tiny = case.model(head=True)
    write_gguf(tmp_path / "whole.gguf", arch, tiny)
    names = write_parts(tmp_path / "whole.gguf", tmp_path / "parts", arch, tiny.config)
    hub.add("org/parts", tmp_path / "parts")
    expected = open_checkpoint(tmp_path / "whole.gguf").heads()
    for name in ("org/parts", f"org/parts/{names[0]}", f"org/parts/{names[-1]}"):
        assert torch.equal(open_checkpoint(name).heads().W_O, expected.W_O)
    (tmp_path / "parts" / names[1]).unlink()
    hub.add("org/fewer", tmp_path / "parts")
    with pytest.raises(HubError, match=f"has no file '{names[1]}' at .*; its GGUF files: {names[0]}"):
        open_checkpoint(f"org/fewer/{names[0]}")


def test_a_file_that_is_not_there_is_named_with_those_that_are(served: Path, hub: HubServer) -> None:
    with pytest.raises(HubError, match=r"has no file 'other\.gguf' at .*; its GGUF files: tiny-Q8_0\.gguf"):
        open_checkpoint("org/tiny/other.gguf")


def test_several_files_are_told_apart_by_name(hub: HubServer, served: Path) -> None:
    (served.parent / "tiny-again.gguf").write_bytes(served.read_bytes())
    hub.add("org/two", served.parent)
    with pytest.raises(CheckpointError, match=r"several GGUF files: .*; name one of them: org/two/tiny-Q8_0\.gguf"):
        open_checkpoint("org/two")
    assert headspan.open("org/two/tiny-again.gguf").checkpoint.family == "llama"


def test_a_file_in_a_folder_of_the_repository_is_read_too(hub: HubServer, served: Path) -> None:
    (served.parent / "Q8").mkdir()
    served.rename(served.parent / "Q8" / "inner.gguf")
    hub.add("org/folders", served.parent)
    assert open_checkpoint("org/folders/Q8/inner.gguf").heads().W_Q.shape[0] == 2
    with pytest.raises(CheckpointError, match=r"'org/folders' holds no model\.safetensors"):
        open_checkpoint("org/folders")


@pytest.mark.slow
def test_a_real_model_runs_from_the_hub_with_the_tokenizer_of_its_metadata(
    hub: HubServer, smollm2_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / smollm2_file.name).symlink_to(smollm2_file)
    hub.add("org/smollm2", tmp_path / "repo")
    opened = headspan.open(f"org/smollm2/{smollm2_file.name}")
    assert opened.checkpoint.store.bytes_transferred < 3_000_000
    running = open_runnable(opened.checkpoint)
    prompt = encoded(running, "The capital of France is")
    assert running.tokenizer is not None
    assert running.tokenizer.decode(continuation(running, prompt, length=1)) == " Paris"
