"""Every kind of source opens, and gives the same heads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import headspan
from headspan.checkpoint import open_checkpoint
from headspan.demo import demo_folder
from headspan.errors import CheckpointError, MissingTensor, UnsupportedModel
from tests.families.tiny_models import CASES

LLAMA = next(case for case in CASES if case.name == "llama")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    LLAMA.model(head=True, dtype=torch.float32).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def expected(folder: Path) -> torch.Tensor:
    return open_checkpoint(folder).heads().W_Q


def copy_config(folder: Path, to: Path) -> None:
    to.mkdir(exist_ok=True)
    (to / "config.json").write_bytes((folder / "config.json").read_bytes())


def test_sharded_safetensors_open(tmp_path: Path, expected: torch.Tensor) -> None:
    LLAMA.model(head=True, dtype=torch.float32).save_pretrained(tmp_path, max_shard_size="10kB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    checkpoint = open_checkpoint(tmp_path)
    assert torch.equal(checkpoint.heads().W_Q, expected)
    assert checkpoint.store.bytes_on_disk == sum(f.stat().st_size for f in tmp_path.glob("*.safetensors"))


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_torch_files_open(zipped: bool, folder: Path, tmp_path: Path, expected: torch.Tensor) -> None:
    copy_config(folder, tmp_path)
    state_dict = LLAMA.model(head=True, dtype=torch.float32).state_dict()
    torch.save(state_dict, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    checkpoint = open_checkpoint(tmp_path)
    assert torch.equal(checkpoint.heads().W_Q, expected)
    assert {name: info.shape for name, info in checkpoint.store.infos.items()} == {
        name: tuple(tensor.shape) for name, tensor in state_dict.items()
    }


def test_sharded_torch_files_open(folder: Path, tmp_path: Path, expected: torch.Tensor) -> None:
    copy_config(folder, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    weight_map = {}
    for shard, part in enumerate((names[::2], names[1::2])):
        file = f"pytorch_model-{shard + 1:05}-of-00002.bin"
        torch.save({name: tensors[name] for name in part}, tmp_path / file)
        weight_map |= dict.fromkeys(part, file)
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert torch.equal(open_checkpoint(tmp_path).heads().W_Q, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_torch_files_of_every_precision_open(dtype: torch.dtype, folder: Path, tmp_path: Path) -> None:
    copy_config(folder, tmp_path)
    state_dict = LLAMA.model(head=True, dtype=dtype).state_dict()
    torch.save(state_dict, tmp_path / "pytorch_model.bin")
    checkpoint = open_checkpoint(tmp_path)
    assert {info.dtype for info in checkpoint.store.infos.values()} == {str(dtype).removeprefix("torch.")}
    weight = state_dict["model.layers.0.self_attn.q_proj.weight"]
    assert torch.equal(checkpoint.heads().W_Q[0].permute(0, 2, 1).reshape(24, 24), weight.to(checkpoint.heads().dtype))


def test_tensors_that_share_or_slice_a_storage_are_read_right(folder: Path, tmp_path: Path) -> None:
    """A torch file may store a tensor as a transposed view into a larger storage."""
    copy_config(folder, tmp_path)
    state_dict = LLAMA.model(head=True, dtype=torch.float32).state_dict()
    name = "model.layers.0.self_attn.q_proj.weight"
    large = torch.randn(30, 40)
    state_dict[name] = large[3:27, 5:29].T
    torch.save(state_dict, tmp_path / "pytorch_model.bin")
    found = open_checkpoint(tmp_path).heads().W_Q[0].permute(0, 2, 1).reshape(24, 24)
    assert torch.equal(found, large[3:27, 5:29].T)


def test_a_single_file_opens_with_a_config(folder: Path, tmp_path: Path, expected: torch.Tensor) -> None:
    file = tmp_path / "weights.safetensors"
    file.write_bytes((folder / "model.safetensors").read_bytes())
    assert torch.equal(open_checkpoint(file, config=folder / "config.json").heads().W_Q, expected)
    assert torch.equal(open_checkpoint(folder / "model.safetensors").heads().W_Q, expected)
    config = json.loads((folder / "config.json").read_text())
    assert torch.equal(open_checkpoint(str(file), config=config).heads().W_Q, expected)
    with pytest.raises(CheckpointError, match=r"'weights\.safetensors' needs a config: pass the model's config\.json"):
        open_checkpoint(file)


def test_demo_is_inside_the_package() -> None:
    heads = open_checkpoint("demo").heads()
    assert (heads.n_layers, heads.n_heads, heads.d_model, heads.positions) == (2, 8, 128, "rotary")
    assert heads.W_Q.dtype == torch.float32


def test_a_partial_checkpoint_opens_and_tells_what_it_lacks_when_asked(gpt2_attention: Path) -> None:
    checkpoint = open_checkpoint(gpt2_attention)
    heads = checkpoint.heads()
    assert heads.shape("Q") == (12, 12, 768, 64)
    assert heads.W_pos.shape == (1024, 768)
    assert checkpoint.stack().missing() == ["W_E", "W_U", "MLP"]
    with pytest.raises(MissingTensor, match=r"has no tensor 'wte\.weight'; it is a partial checkpoint"):
        _ = heads.W_E
    with pytest.raises(MissingTensor, match="has no unembedding"):
        _ = heads.W_U
    with pytest.raises(MissingTensor, match=r"has no tensor 'h\.3\.mlp\.c_fc\.weight'"):
        heads.mlp(3)


def test_a_checkpoint_with_some_layers_opens(folder: Path, tmp_path: Path) -> None:
    copy_config(folder, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file({n: t for n, t in tensors.items() if ".layers.0." not in n}, tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.stack().missing() == ["attention of 1 of 2 layers"]
    assert checkpoint.heads(layers=[1]).W_Q.shape == (1, 4, 24, 6)
    with pytest.raises(MissingTensor, match=r"no tensor 'model\.layers\.0\.self_attn\.q_proj\.weight'"):
        _ = checkpoint.heads().W_Q


def test_the_cache_of_the_hub_opens_though_it_is_all_links(folder: Path, tmp_path: Path) -> None:
    repository = tmp_path / "models--someone--tiny"
    snapshot, blobs = repository / "snapshots" / "0123abcd", repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    digest = "ab" * 32
    for name, blob in (("model.safetensors", digest), ("config.json", "c0ffee")):
        (blobs / blob).write_bytes((folder / name).read_bytes())
        (snapshot / name).symlink_to(Path("../../blobs") / blob)
    checkpoint = open_checkpoint(snapshot)
    assert checkpoint.revision == "0123abcd"
    assert checkpoint.heads().provenance()["file_hash"] == f"sha256:{digest}"


@pytest.mark.parametrize("prefix", ["", "model."])
def test_a_bare_and_a_prefixed_file_give_the_same_heads(
    prefix: str, folder: Path, tmp_path: Path, expected: torch.Tensor
) -> None:
    copy_config(folder, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    renamed = {prefix + name.removeprefix("model."): t for name, t in tensors.items() if name != "lm_head.weight"}
    save_file(renamed, tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(tmp_path)
    assert torch.equal(checkpoint.heads().W_Q, expected)
    assert checkpoint.stack().missing() == ["W_U"]


def test_two_models_in_one_file_are_not_guessed_between(folder: Path, tmp_path: Path) -> None:
    copy_config(folder, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    twice = {f"{side}.{name}": tensor.clone() for side in ("actor", "critic") for name, tensor in tensors.items()}
    save_file(twice, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"holds several models, under 'actor\.model\.', 'critic\.model\.'"):
        open_checkpoint(tmp_path)


def test_an_unknown_type_is_refused_with_what_was_seen_and_how_to_describe_it() -> None:
    with pytest.raises(UnsupportedModel, match=r"model_type 'mamba' is not described .* no attention-looking tensor"):
        open_checkpoint(({"a": torch.zeros(2)}, {"model_type": "mamba"}))
    odd = {f"layers.{layer}.attn.mixed_up.weight": torch.zeros(6, 2) for layer in range(3)}
    expected = r"attention-looking tensors: layers\.\*\.attn\.mixed_up\.weight\. To describe it in a dozen lines"
    with pytest.raises(UnsupportedModel, match=expected):
        open_checkpoint((odd, {"model_type": "odd"}))


def test_something_that_is_no_source_is_refused() -> None:
    with pytest.raises(CheckpointError, match="cannot open a int"):
        open_checkpoint(3)
    with pytest.raises(CheckpointError, match="there is no file or folder 'no/such/place'"):
        open_checkpoint("no/such/place")
    with pytest.raises(CheckpointError, match="a state dict maps names to tensors; found 'a': int"):
        open_checkpoint(({"a": 3}, {"model_type": "gpt2"}))


def test_a_model_without_weights_is_refused() -> None:
    with torch.device("meta"):
        model = LLAMA.model(dtype=torch.float32)
    with pytest.raises(CheckpointError, match=r"has no content \(meta device\)"):
        open_checkpoint(model)


def test_a_folder_of_checkpoints_says_which_there_are(tmp_path: Path) -> None:
    for step in (100, 200):
        shutil.copytree(demo_folder(), tmp_path / "run" / f"checkpoint-{step}")
    with pytest.raises(CheckpointError, match=r"2 checkpoints.*checkpoint-100, checkpoint-200.*headspan sweep"):
        headspan.open(tmp_path / "run")
    assert headspan.open(tmp_path / "run" / "checkpoint-200").family == "llama"


def test_several_weight_files_are_named_and_one_can_be_chosen(tmp_path: Path) -> None:
    shutil.copytree(demo_folder(), tmp_path / "run")
    weights = tmp_path / "run" / "model.safetensors"
    shutil.copy(weights, tmp_path / "run" / "first.safetensors")
    weights.rename(tmp_path / "run" / "second.safetensors")
    with pytest.raises(CheckpointError, match=r"2 weight files and no index.*first.safetensors, second.safetensors"):
        headspan.open(tmp_path / "run")
    assert headspan.open(tmp_path / "run" / "second.safetensors").family == "llama"
