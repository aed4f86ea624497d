"""Models on the Hub: the same heads as from the downloaded folder, for a fraction of the bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import headspan
from headspan.checkpoint import open_checkpoint
from headspan.checkpoint.hub.ranged_file import BLOCK_BYTES
from headspan.cli.main import app
from headspan.errors import CheckpointError, HubError
from tests.robustness.hub_model import CONFIG, KINDS, WIDTH, all_heads, tensors, write_model
from tests.robustness.hub_server import COMMIT, HubServer


def attention_bytes() -> int:
    return sum(tensor.nbytes for name, tensor in tensors().items() if "self_attn" in name)


@pytest.fixture
def served(request: pytest.FixtureRequest, patient_hub: HubServer, tmp_path: Path) -> Path:
    folder = write_model(tmp_path / "model", getattr(request, "param", "safetensors"))
    patient_hub.add("org/tiny", folder)
    return folder


every_kind = pytest.mark.parametrize("served", KINDS, indirect=True)


@every_kind
def test_a_model_on_the_hub_gives_bit_identical_heads(served: Path, hub: HubServer) -> None:
    remote, local = open_checkpoint("org/tiny"), open_checkpoint(served)
    for ours, theirs in zip(all_heads(remote.heads()), all_heads(local.heads()), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(remote.heads(fold="layernorm").W_Q, local.heads(fold="layernorm").W_Q)
    assert torch.equal(remote.heads().W_E, local.heads().W_E)
    assert dict(remote.store.infos) == dict(local.store.infos)


@every_kind
def test_provenance_names_the_commit_and_the_content_without_reading_it(served: Path, hub: HubServer) -> None:
    remote, local = open_checkpoint("org/tiny@main"), open_checkpoint(served)
    before = hub.sent()
    facts = remote.heads().provenance()
    assert (facts["model"], facts["revision"]) == ("org/tiny", COMMIT)
    assert facts["file_hash"] == local.heads().provenance()["file_hash"]
    assert hub.sent() == before


@every_kind
def test_opening_reads_headers_only(served: Path, hub: HubServer) -> None:
    checkpoint = open_checkpoint("org/tiny")
    small = hub.sent("/api/") + hub.sent("config.json") + hub.sent("index.json")
    n_files = len({info.place for info in checkpoint.store.infos.values()})
    # A torch file is read at both of its ends.
    assert hub.sent() - small <= 2 * BLOCK_BYTES * n_files
    assert hub.sent() < 0.05 * checkpoint.store.bytes_on_disk
    assert checkpoint.store.bytes_transferred == hub.sent()


@every_kind
def test_heads_read_the_attention_and_next_to_nothing_else(served: Path, hub: HubServer) -> None:
    checkpoint = open_checkpoint("org/tiny")
    opening = hub.sent()
    hub.forget()
    _ = all_heads(checkpoint.heads())
    # Some of the attention may lie in the blocks that hold the headers.
    assert attention_bytes() - opening <= hub.sent() <= attention_bytes() + 4096 * len(hub.seen)
    assert hub.sent() < 0.08 * checkpoint.store.bytes_on_disk


def test_the_tensors_of_a_layer_are_read_in_one_request(served: Path, hub: HubServer) -> None:
    checkpoint = open_checkpoint("org/tiny")
    hub.forget()
    checkpoint.heads(layers=[1]).layer(1)
    assert len([seen for seen in hub.seen if seen.port == "cdn"]) == 1


def test_ranges_that_lie_close_are_read_together_and_others_apart(served: Path, hub: HubServer) -> None:
    store = open_checkpoint("org/tiny").store
    hub.forget()
    store.read([f"model.layers.1.self_attn.{part}_proj.weight" for part in "kq"])
    assert len(hub.seen) == 1
    between = store.infos["model.layers.1.self_attn.o_proj.weight"].n_bytes
    asked = sum(store.infos[f"model.layers.1.self_attn.{part}_proj.weight"].n_bytes for part in "kq")
    assert hub.sent() == asked + between
    hub.forget()
    store.read([f"model.layers.{layer}.self_attn.q_proj.weight" for layer in (0, 2)])
    assert len(hub.seen) == 2
    assert hub.sent() == 2 * WIDTH * WIDTH * 4


@every_kind
def test_a_second_reading_transfers_nothing(served: Path, hub: HubServer) -> None:
    first = all_heads(open_checkpoint("org/tiny").heads())
    hub.forget()
    second = open_checkpoint(f"org/tiny@{COMMIT}")
    assert all(torch.equal(a, b) for a, b in zip(first, all_heads(second.heads()), strict=True))
    assert hub.seen == []
    assert second.store.bytes_transferred == 0
    _ = all_heads(open_checkpoint("org/tiny@main").heads())
    assert [seen.path.partition("?")[0] for seen in hub.seen] == ["/api/models/org/tiny/revision/main"]


def test_what_was_read_is_there_without_a_network(
    served: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    online = open_checkpoint("org/tiny").heads(layers=[0]).W_Q
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    offline = open_checkpoint("org/tiny")
    assert torch.equal(offline.heads(layers=[0]).W_Q, online)
    with pytest.raises(HubError, match=r"may not be asked for what is not in the cache \(HF_HUB_OFFLINE is set\)"):
        _ = offline.heads(layers=[1]).W_Q


def download_to_the_cache(folder: Path) -> Path:
    """Put all files where `hf download org/tiny` puts them."""
    repository = Path(constants.HF_HUB_CACHE) / "models--org--tiny"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    for path in folder.iterdir():
        (snapshot / path.name).write_bytes(path.read_bytes())
    return snapshot


def test_the_cache_of_huggingface_hub_is_used_where_it_has_the_files(served: Path, hub: HubServer) -> None:
    snapshot = download_to_the_cache(served)
    pinned = open_checkpoint(f"org/tiny@{COMMIT}")
    assert hub.seen == []
    assert (pinned.source, pinned.revision, pinned.store.bytes_transferred) == ("org/tiny", COMMIT, None)
    assert torch.equal(open_checkpoint("org/tiny").heads().W_Q, pinned.heads().W_Q)
    assert len(hub.seen) == 1
    (snapshot / "model.safetensors").unlink()
    assert open_checkpoint(f"org/tiny@{COMMIT}").store.bytes_transferred is not None


def test_the_cache_of_huggingface_hub_serves_where_the_hub_may_not_be_asked(
    served: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    download_to_the_cache(served)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert open_checkpoint("org/tiny").revision == COMMIT
    assert hub.seen == []


def test_a_local_folder_goes_before_a_model_of_that_name(
    served: Path, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path / "org" / "tiny", "safetensors")
    monkeypatch.chdir(tmp_path)
    assert open_checkpoint("org/tiny").revision is None
    assert hub.seen == []


def test_a_path_object_is_never_a_name_on_the_hub(served: Path, hub: HubServer) -> None:
    with pytest.raises(CheckpointError, match=r"there is no file or folder 'org/tiny'; give a path, a name on the Hub"):
        open_checkpoint(Path("org/tiny"))
    assert hub.seen == []


def test_an_old_name_without_an_organisation_opens(served: Path, hub: HubServer) -> None:
    hub.add("tiny", served)
    assert open_checkpoint("tiny").source == "tiny"


def test_branches_tags_and_pull_requests_are_revisions(served: Path, hub: HubServer) -> None:
    hub.repositories["org/tiny"].revisions = ("main", "step143000", "refs/pr/3")
    assert open_checkpoint("org/tiny@step143000").revision == COMMIT
    assert open_checkpoint("org/tiny@refs/pr/3").revision == COMMIT


def test_the_tokenizer_is_fetched_when_someone_asks_for_it(served: Path, hub: HubServer) -> None:
    checkpoint = open_checkpoint("org/tiny")
    assert hub.sent("tokenizer.json") == 0
    assert checkpoint.folder is not None
    assert (checkpoint.folder / "tokenizer.json").read_bytes() == (served / "tokenizer.json").read_bytes()
    assert (checkpoint.folder / "config.json").is_file()
    shown = CliRunner().invoke(app, ["vocabulary", "org/tiny", "--head", "L0H0", "--projection", "Q", "--count", "3"])
    assert shown.exit_code == 0, shown.output


def test_a_model_without_config_opens_with_one_that_is_given(served: Path, hub: HubServer) -> None:
    (served / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"'org/tiny' has no config\.json \(found model\.safetensors, tokenizer"):
        open_checkpoint("org/tiny")
    assert open_checkpoint("org/tiny", config=CONFIG).heads().n_layers == 3


def test_views_into_shared_storages_of_a_torch_file_are_read_right(hub: HubServer, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "torch")
    contents = torch.load(folder / "pytorch_model.bin")
    large = torch.randn(2 * WIDTH, WIDTH + 30)
    shared = torch.randn(WIDTH, WIDTH)
    contents["model.layers.0.self_attn.q_proj.weight"] = large[:WIDTH, 5 : WIDTH + 5].T
    contents["model.layers.0.self_attn.o_proj.weight"] = large[WIDTH:, 30:]
    contents["model.layers.1.self_attn.q_proj.weight"] = shared
    contents["model.layers.1.self_attn.o_proj.weight"] = shared.T
    contents["model.layers.2.self_attn.q_proj.weight"] = torch.randn(WIDTH).expand(WIDTH, WIDTH)
    contents["model.layers.2.input_layernorm.weight"] = torch.zeros(3, WIDTH)[2]
    torch.save(contents, folder / "pytorch_model.bin")
    hub.add("org/views", folder)
    remote, local = open_checkpoint("org/views"), open_checkpoint(folder)
    for name in contents:
        ours, theirs = (checkpoint.store.read([name])[name] for checkpoint in (remote, local))
        assert torch.equal(ours, theirs), name
        assert ours.stride() == theirs.stride()
    names = [name for name in contents if "self_attn" in name]
    together = open_checkpoint("org/views").store.read(names)
    assert all(torch.equal(together[name], contents[name]) for name in names)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kind", ["safetensors", "torch"])
def test_every_precision_is_read_right(dtype: torch.dtype, kind: str, hub: HubServer, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", kind)
    converted = {name: tensor.to(dtype) for name, tensor in tensors().items()}
    if kind == "torch":
        torch.save(converted, folder / "pytorch_model.bin")
    else:
        save_file(converted, folder / "model.safetensors")
    hub.add("org/half", folder)
    name = "model.layers.2.self_attn.k_proj.weight"
    assert torch.equal(open_checkpoint("org/half").store.read([name])[name], converted[name])


def test_an_empty_tensor_is_read_as_one(hub: HubServer, tmp_path: Path) -> None:
    for kind, file in (("safetensors", "model.safetensors"), ("torch", "pytorch_model.bin")):
        folder = write_model(tmp_path / kind, kind)
        contents = load_file(folder / file) if kind == "safetensors" else torch.load(folder / file)
        contents["nothing"] = torch.zeros(0, 4)
        save_file(contents, folder / file) if kind == "safetensors" else torch.save(contents, folder / file)
        hub.add(f"org/{kind}", folder)
        assert open_checkpoint(f"org/{kind}").store.read(["nothing"])["nothing"].shape == (0, 4)


def test_a_torch_file_in_the_old_format_is_refused_with_what_to_download(hub: HubServer, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "torch")
    torch.save(tensors(), folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    hub.add("org/old", folder)
    with pytest.raises(
        HubError,
        match=r"'pytorch_model\.bin' of 'org/old' is in the format from before torch 1\.6 and cannot be read in parts; "
        rf"download all of it \(`hf download org/old pytorch_model\.bin config\.json --revision {COMMIT}`\)",
    ):
        open_checkpoint("org/old")
    assert hub.sent("pytorch_model.bin") <= BLOCK_BYTES


def write_adapter(folder: Path) -> torch.Tensor:
    """A LoRA adapter of `org/tiny` for one matrix; what it adds to that matrix."""
    folder.mkdir()
    A, B = torch.randn(2, WIDTH), torch.randn(WIDTH, 2)
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    save_file({name.format("A"): A, name.format("B"): B}, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "base_model_name_or_path": "org/tiny", "r": 2, "lora_alpha": 2}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return B @ A


def test_a_local_adapter_of_a_model_on_the_hub_opens(served: Path, hub: HubServer, tmp_path: Path) -> None:
    added = write_adapter(tmp_path / "adapter")
    checkpoint = open_checkpoint(tmp_path / "adapter")
    assert hub.sent("tokenizer.json") == 0
    name = "model.layers.0.self_attn.q_proj.weight"
    assert torch.allclose(checkpoint.store.read([name])[name], tensors()[name] + added, rtol=1e-5, atol=1e-5)
    assert checkpoint.revision == COMMIT
    assert checkpoint.store.bytes_transferred == hub.sent()


def test_an_adapter_on_the_hub_is_refused_with_what_to_download(hub: HubServer, tmp_path: Path) -> None:
    write_adapter(tmp_path / "adapter")
    hub.add("org/lora", tmp_path / "adapter")
    with pytest.raises(
        HubError, match=r"'org/lora' is an adapter of another model; download it \(`hf download org/lora"
    ):
        open_checkpoint("org/lora")


def test_inspect_says_how_little_was_read(served: Path, hub: HubServer) -> None:
    shown = CliRunner().invoke(app, ["inspect", "org/tiny@main"])
    assert shown.exit_code == 0
    assert COMMIT in shown.stdout
    assert "Size on the Hub" in shown.stdout
    about = json.loads(CliRunner().invoke(app, ["inspect", "org/tiny", "--json"]).stdout)
    assert about["provenance"] == {"model": "org/tiny", "revision": COMMIT, "headspan_version": headspan.__version__}
    assert about["bytes_transferred"] == hub.seen[-1].sent > 0
