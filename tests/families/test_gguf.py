"""GGUF files of every architecture: the model that was written is the model that is read, and runs as it did."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers

import headspan
from headspan.checkpoint.families import FAMILIES
from headspan.checkpoint.families.gguf import ARCHITECTURES
from headspan.errors import CheckpointError, HeadspanError, UnsupportedModel
from headspan.lenses.token_texts import tokens_of
from headspan.runtime import checkpoint_obstacle, encoded, open_runnable
from headspan.runtime.module import quiet_transformers
from tests.families.gguf_models import GGUF_CASES, write_gguf, write_parts
from tests.families.tiny_models import TOKENS

NAMES = list(GGUF_CASES)


@cache
def model(name: str) -> Any:
    _, case = GGUF_CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return case.model(head=True, dtype=torch.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


def written(name: str, folder: Path, kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32) -> Path:
    path = folder / f"{NAMES.index(name)}-{kind.name}.gguf"
    if not path.exists():
        write_gguf(path, GGUF_CASES[name][0], model(name), kind)
    return path


def test_every_architecture_is_proven_and_its_family_known() -> None:
    assert {arch for arch, _ in GGUF_CASES.values()} == set(ARCHITECTURES)
    for architecture in ARCHITECTURES.values():
        assert architecture.model_type in FAMILIES


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_is_that_of_the_original(name: str, folder: Path) -> None:
    checkpoint = headspan.open(written(name, folder)).checkpoint
    original = model(name).state_dict()
    read = checkpoint.store.read(list(checkpoint.store.infos))
    tied = {"lm_head.weight"} if model(name).config.tie_word_embeddings else set()
    repeated = {
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
        "pooler.dense.weight",
        "pooler.dense.bias",
    }
    assert set(read) == set(original) - tied - repeated
    shifted = GGUF_CASES[name][0].startswith("gemma")
    for key, tensor in read.items():
        assert tuple(tensor.shape) == checkpoint.store.infos[key].shape
        # A gain that was stored with 1 added has lost its last digits.
        slack = 1e-6 if shifted and "norm" in key else 0.0
        torch.testing.assert_close(tensor, original[key], rtol=0, atol=slack)


@pytest.mark.parametrize("name", NAMES)
def test_heads_norms_and_positions_are_those_of_the_original(name: str, folder: Path) -> None:
    opened, original = headspan.open(written(name, folder)), headspan.open(model(name))
    assert opened.stacks == original.stacks
    for stack in opened.stacks:
        ours, theirs = (one.checkpoint.stack(stack).stack for one in (opened, original))
        for fact in ("n_layers", "n_heads", "n_kv_heads", "d_model", "d_head", "d_value", "rotary", "softcap", "clip"):
            assert getattr(ours, fact) == getattr(theirs, fact), fact
        assert ours.scale == pytest.approx(theirs.scale)
        assert ours.norm.eps == pytest.approx(theirs.norm.eps)
        assert opened.checkpoint.stack(stack).missing() == original.checkpoint.stack(stack).missing()
        assert opened.checkpoint.stack(stack).unclaimed() == []
        a, b = opened.heads(stack=stack), original.heads(stack=stack)
        for role in ("W_Q", "W_K", "W_V", "W_O"):
            assert torch.equal(getattr(a, role), getattr(b, role)), role


@pytest.mark.parametrize("name", NAMES)
def test_what_runs_gives_the_logits_of_the_original(name: str, folder: Path) -> None:
    checkpoint = headspan.open(written(name, folder)).checkpoint
    if checkpoint_obstacle(checkpoint, None) is not None:
        assert name.startswith("t5"), "only models of two stacks do not run"
        return
    running = open_runnable(checkpoint)
    with torch.no_grad():
        ours, theirs = running.module(TOKENS)[0], model(name)(TOKENS)[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


ORACLE = (
    *(
        "llama",
        "llama, stretched",
        "llama, tied, one kv head",
        "llama, linear",
        "mistral",
        "qwen2",
        "qwen2moe",
        "qwen3",
    ),
    *("qwen3moe", "gemma2", "gemma3", "phi3", "starcoder2", "stablelm", "gpt2", "bloom", "falcon, one kv head"),
)
"""What transformers reads itself, and right. It leaves out biases of Llama, all but one kv head of Falcon and more."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ORACLE)
def test_transformers_reads_the_same_from_the_same_file(name: str, folder: Path) -> None:
    path = written(name, folder)
    with quiet_transformers():
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=path.name, dtype=torch.float32)
    store = headspan.open(path).checkpoint.store
    for key, tensor in store.read(list(store.infos)).items():
        torch.testing.assert_close(tensor, theirs.state_dict()[key], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "phi3"])
def test_packed_heads_are_off_by_what_the_store_says(name: str, kind: str, folder: Path) -> None:
    path = written(name, folder, gguf.GGMLQuantizationType[kind])
    opened, original = headspan.open(path), headspan.open(model(name)).heads()
    stored = opened.checkpoint.stack().role_linear("Q", 0)
    info = opened.checkpoint.stack().names.require(stored.weight)
    assert info.stored_as == f"{kind} ({kind[1]} bits, groups of 32)"
    assert info.dtype == "float32"
    packed = opened.heads()
    assert packed.reader.roundoff(stored) == opened.checkpoint.store.roundoff(info.name)
    for role in ("Q", "K", "V"):
        W, packed_W = getattr(original, f"W_{role}")[0], getattr(packed, f"W_{role}")[0]
        off = (packed_W - W).square().mean().sqrt() / W.square().mean().sqrt()
        # Steps of a block follow from its largest number, so the error is even within them.
        assert off == pytest.approx(packed.reader.roundoff(opened.checkpoint.stack().role_linear(role, 0)), rel=0.25)


def test_parts_are_put_together_and_one_part_stands_for_all(tmp_path: Path) -> None:
    whole = written("llama", tmp_path)
    names = write_parts(whole, tmp_path / "parts", "llama", model("llama").config)
    assert names[0] == f"model-00001-of-{len(names):05d}.gguf"
    expected = headspan.open(whole).heads().W_Q
    assert torch.equal(headspan.open(tmp_path / "parts").heads().W_Q, expected)
    assert torch.equal(headspan.open(tmp_path / "parts" / names[1]).heads().W_Q, expected)
    (tmp_path / "parts" / names[1]).unlink()
    with pytest.raises(CheckpointError, match=f"'{names[1]}' is not in .*; download the missing file"):
        headspan.open(tmp_path / "parts")


def test_without_gguf_headers_open_and_weights_say_what_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written("llama", folder, gguf.GGMLQuantizationType.Q8_0)
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setitem(sys.modules, "gguf.quants", None)
    opened = headspan.open(path)
    with pytest.raises(HeadspanError, match=r"unpacking GGUF weights needs gguf: pip install 'headspan\[gguf\]'"):
        _ = opened.heads().W_Q


def test_a_stretch_without_points_to_tell_it_by_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    changed = copy.deepcopy(model("llama, stretched"))
    changed.config.rope_parameters["factor"] = 8.0
    write_gguf(path, "llama", changed)
    content = bytearray(path.read_bytes())
    start, end = headspan.open(path).checkpoint.store.base.gguf[path.name].byte_ranges["rope_freqs.weight"]
    content[start:end] = np.linspace(1, 5, (end - start) // 4).astype(np.float32).tobytes()
    path.write_bytes(content)
    with pytest.raises(UnsupportedModel, match="its 'rope_freqs' are not those of a known rotary scaling"):
        headspan.open(path)


LETTERS = [chr(97 + index) for index in range(26)]
SPELLED = ["<unk>", "<s>", "</s>", "▁", *LETTERS, *(f"▁{letter}" for letter in LETTERS[:10])]


def add_sentence_piece(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(SPELLED)
    writer.add_token_scores([-float(index) for index in range(len(SPELLED))])
    writer.add_token_types([2, 3, 3, *([1] * (len(SPELLED) - 3))])
    writer.add_bos_token_id(1)
    writer.add_unk_token_id(0)


@pytest.mark.parametrize(("stated", "begins"), [(None, True), (False, False)])
def test_a_text_begins_as_the_metadata_say(stated: bool | None, begins: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"

    def add(writer: gguf.GGUFWriter) -> None:
        add_sentence_piece(writer)
        if stated is not None:
            writer.add_add_bos_token(stated)

    write_gguf(path, "llama", model("llama"), also=add)
    running = open_runnable(path)
    assert running.tokenizer_problem == ""
    prompt = encoded(running, "ab")
    assert prompt.special[0] is begins
    assert (prompt.ids[0] == 1) is begins


def test_files_of_another_tokenizer_beside_a_gguf_file_are_not_taken_for_its_own(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, "llama", model("llama"), also=add_sentence_piece)
    (tmp_path / "vocab.txt").write_text("\n".join(["[UNK]", "x", "y"]), encoding="utf-8")
    opened = headspan.open(path)
    tokens = tokens_of(opened.heads(), opened.heads().table("W_E").shape[0])
    assert [tokens.text(token) for token in (0, 3, 4, 30)] == ["<unk>", " ", "a", " a"]
    assert {token for token, kind in tokens.classes.items() if kind == "special"} == {0, 1, 2}
    running = opened.running()
    assert running.tokenizer_problem == ""
    assert running.tokenizer.convert_ids_to_tokens(list(range(len(SPELLED)))) == SPELLED


def test_a_list_of_token_types_that_is_too_short_for_its_numbers_leaves_ids(tmp_path: Path) -> None:
    """A list of bytes where whole numbers belong, at the very end of the facts: nothing is read beyond the file."""
    path = tmp_path / "model.gguf"

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_token_list(SPELLED)
        writer.add_array("tokenizer.ggml.token_type", [True] * 2**20)

    write_gguf(path, "llama", model("llama"), also=add)
    assert path.stat().st_size < 4 * 2**20
    opened = headspan.open(path)
    assert tokens_of(opened.heads(), opened.heads().table("W_E").shape[0]).text(4) == "#4"


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "cafe", "##s", "##ed", "##h", ",", "the", "face"]


@pytest.mark.parametrize("pieces", [PIECES, [*PIECES, "Face"]], ids=["lowered", "with capitals"])
@pytest.mark.parametrize("named", ["bos and eos", "cls and separator"])
def test_word_pieces_are_those_of_bert(pieces: list[str], named: str, tmp_path: Path) -> None:
    """Pieces as llama.cpp's converter writes them, read as `transformers`' own BERT tokenizer reads the originals."""
    path, vocabulary = tmp_path / "model.gguf", tmp_path / "original" / "vocab.txt"
    vocabulary.parent.mkdir()
    pieces = [*pieces, *(f"[unused{number}]" for number in range(model("bert").config.vocab_size - len(pieces)))]
    vocabulary.write_text("\n".join(pieces), encoding="utf-8")

    def phantom(piece: str) -> str:
        if piece.startswith("[") and piece.endswith("]"):
            return piece
        return piece[2:] if piece.startswith("##") else "\u2581" + piece

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("bert")
        writer.add_token_list([phantom(piece) for piece in pieces])
        writer.add_unk_token_id(1)
        writer.add_pad_token_id(0)
        if named == "bos and eos":
            writer.add_bos_token_id(2)
            writer.add_eos_token_id(3)
        else:
            writer.add_uint32("tokenizer.ggml.cls_token_id", 2)
            writer.add_sep_token_id(3)

    write_gguf(path, "bert", model("bert"), also=add)
    running = open_runnable(path)
    assert running.tokenizer_problem == ""
    theirs = transformers.BertTokenizer(vocab=str(vocabulary), do_lower_case="Face" not in pieces)
    for text in ("Cafés, faced the face", "the Face", "the a b caf\u00e9 zzz"):
        assert list(encoded(running, text).ids) == theirs(text)["input_ids"], text


def test_opening_loads_neither_torch_nor_gguf(folder: Path) -> None:
    path = written("llama", folder, gguf.GGMLQuantizationType.Q8_0)
    program = (
        "import sys; from headspan.checkpoint import open_checkpoint, summary; "
        f"print(summary(open_checkpoint({str(path)!r})).dtypes); assert not {{'torch', 'gguf'}} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Q8_0 (8 bits, groups of 32)" in done.stdout
