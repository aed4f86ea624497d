"""Checkpoints that someone broke, by accident or on purpose. Each maker writes one into a folder."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.robustness import hostile_gguf

CONFIG = {"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 4, "n_positions": 8, "vocab_size": 10}
SHAPES = {
    "h.0.attn.c_attn.weight": (4, 12),
    "h.0.attn.c_attn.bias": (12,),
    "h.0.attn.c_proj.weight": (4, 4),
    "h.0.attn.c_proj.bias": (4,),
}


def header_and_data(value: float = 0.5) -> tuple[dict[str, Any], bytes]:
    header: dict[str, Any] = {}
    data = b""
    for name, shape in SHAPES.items():
        numbers = torch.full(shape, value).numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    return header, data


def safetensors_bytes(header: object, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write(folder: Path, weights: bytes | None = None, config: object = CONFIG) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(
        weights if weights is not None else safetensors_bytes(*header_and_data())
    )


def changed_config(**changes: object) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        write(folder, config={k: v for k, v in {**CONFIG, **changes}.items() if v != "absent"})

    return make


def changed_header(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        header, data = header_and_data()
        replaced = change(header)
        write(folder, safetensors_bytes(header if replaced is None else replaced, data))

    return make


def set_entry(field: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda header: header["h.0.attn.c_attn.bias"].__setitem__(field, value)


def truncated(folder: Path) -> None:
    write(folder, safetensors_bytes(*header_and_data())[:-20])


def header_longer_than_file(folder: Path) -> None:
    write(folder, struct.pack("<Q", 10**9) + b"{}")


def huge_header(folder: Path) -> None:
    write(folder, b"")
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", 100_000_000))
        file.truncate(100_000_008)


def trailing_bytes(folder: Path) -> None:
    write(folder, safetensors_bytes(*header_and_data()) + b"more")


def twice_the_same_name(folder: Path) -> None:
    header, data = header_and_data()
    text = json.dumps(header)[:-1] + ', "h.0.attn.c_attn.bias": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}'
    write(folder, struct.pack("<Q", len(text)) + text.encode() + data)


def deeply_nested_header(folder: Path) -> None:
    text = b"[" * 200_000
    write(folder, struct.pack("<Q", len(text)) + text)


def index_naming(name: object) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps(CONFIG))
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"h.0.attn.c_attn.weight": name}})
        )

    return make


def link_out_of_the_folder(folder: Path) -> None:
    write(folder)
    outside = folder.parent / "outside.safetensors"
    (folder / "model.safetensors").rename(outside)
    (folder / "model.safetensors").symlink_to(outside)


def linked_config(folder: Path) -> None:
    write(folder)
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/etc/hostname")


def dangling_link(folder: Path) -> None:
    write(folder)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder / "model.safetensors")


def folder_for_a_file(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").mkdir()


def no_config(folder: Path) -> None:
    write(folder)
    (folder / "config.json").unlink()


def broken_config(text: bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        write(folder)
        (folder / "config.json").write_bytes(text)

    return make


class Malicious:
    """Unpickling this creates a file: the sign that code ran."""

    def __init__(self, sign: Path) -> None:
        self.sign = sign

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.sign),))


def code_in_a_pickle(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    payload = pickle.dumps({"h.0.attn.c_attn.weight": Malicious(folder / "code-ran")}, protocol=2)
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", payload)
        archive.writestr("archive/version", "3")


def code_in_an_old_pickle(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    buffer = io.BytesIO()
    for part in (0x1950A86A20F9469CFC6C, 1001, {}, Malicious(folder / "code-ran")):
        pickle.dump(part, buffer, protocol=2)
    (folder / "pytorch_model.bin").write_bytes(buffer.getvalue())


def code_as_the_whole_file(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Malicious(folder / "code-ran"), protocol=2))


def text_with_a_bad_escape(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "pytorch_model.bin").write_bytes(b"P\\K\n.")


def truncated_torch_file(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    buffer = io.BytesIO()
    torch.save({name: torch.zeros(shape) for name, shape in SHAPES.items()}, buffer)
    (folder / "pytorch_model.bin").write_bytes(buffer.getvalue()[:-200])


def torch_storage_too_small(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    buffer = io.BytesIO()
    torch.save({name: torch.zeros(shape) for name, shape in SHAPES.items()}, buffer)
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(folder / "pytorch_model.bin", "w") as target:
        for member in source.infolist():
            content = source.read(member)
            target.writestr(member.filename, content[:8] if member.filename.endswith("data/0") else content)


def zip_with_a_huge_directory(folder: Path) -> None:
    """The archive's last bytes claim a directory of 1 GB, which `zipfile` would read in one go."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    claimed = 10**9
    with (folder / "pytorch_model.bin").open("wb") as file:
        file.write(b"PK\x03\x04")
        file.truncate(claimed + 100)
        file.seek(claimed + 100)
        file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, claimed, 100, 0))


def compressed_pickle(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    buffer = io.BytesIO()
    torch.save({name: torch.zeros(shape) for name, shape in SHAPES.items()}, buffer)
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(folder / "pytorch_model.bin", "w") as target:
        for member in source.infolist():
            packed = zipfile.ZIP_DEFLATED if member.filename.endswith("data.pkl") else zipfile.ZIP_STORED
            target.writestr(member.filename, source.read(member), packed)


def nested_state_dict(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    torch.save(
        {"state_dict": {name: torch.zeros(shape) for name, shape in SHAPES.items()}}, folder / "pytorch_model.bin"
    )


def quantized(method: str, names: dict[str, str]) -> Callable[[Path], None]:
    """A checkpoint whose attention tensors are renamed or retyped as a quantizer does."""

    def make(folder: Path) -> None:
        header: dict[str, Any] = {}
        data = b""
        for name, shape in SHAPES.items():
            stored, dtype = name, "F32"
            if name.endswith("c_attn.weight"):
                stored, dtype = name.removesuffix(".weight") + names["suffix"], names["dtype"]
            size = torch.Size(shape).numel() * {"F32": 4, "I32": 4, "U8": 1, "I8": 1, "F8_E4M3": 1}[dtype]
            header[stored] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + size]}
            data += bytes(size)
        config = {**CONFIG, "quantization_config": {"quant_method": method}} if method else CONFIG
        write(folder, safetensors_bytes(header, data), config)

    return make


def named_pipe(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    os.mkfifo(folder / "model.safetensors")


def two_weight_files(folder: Path) -> None:
    write(folder)
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    (folder / "b.safetensors").write_bytes(b"")


def empty(folder: Path) -> None:
    pass


def overlapping(header: dict[str, Any]) -> None:
    header["h.0.attn.c_proj.weight"]["data_offsets"] = [0, 64]


CASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "empty folder": (empty, r"holds no model\.safetensors, pytorch_model\.bin or index of shards; found nothing"),
    "truncated file": (truncated, r"truncated or corrupt: download it again"),
    "three bytes": (lambda folder: write(folder, b"abc"), r"3 bytes long, too short for a safetensors file"),
    "header longer than the file": (
        header_longer_than_file,
        r"claims a header of 1,000,000,000 bytes but is 10 bytes long",
    ),
    "header of 100 MB": (huge_header, r"has a header of 100,000,000 bytes; headspan reads at most 33,554,432"),
    "trailing bytes": (trailing_bytes, r"the file holds 324"),
    "a name twice": (twice_the_same_name, r"read as JSON: a name occurs twice"),
    "deeply nested header": (deeply_nested_header, r"header cannot be read as JSON: it is nested"),
    "header is a list": (changed_header(lambda header: [1, 2]), r"header is a JSON list, not an object"),
    "overlapping offsets": (changed_header(overlapping), r"overlaps the tensor before it; the header is corrupt"),
    "offsets out of range": (
        changed_header(set_entry("data_offsets", [10**12, 10**12 + 48])),
        r"leaves a gap before it",
    ),
    "negative offsets": (changed_header(set_entry("data_offsets", [-48, 0])), r"not whole numbers >= 0"),
    "offsets that do not fit the shape": (
        changed_header(set_entry("data_offsets", [192, 193])),
        r"needs 48 bytes, but its",
    ),
    "offsets that are text": (changed_header(set_entry("data_offsets", "ab")), r"not whole numbers >= 0"),
    "unknown dtype": (changed_header(set_entry("dtype", "F31")), r"has dtype 'F31', which headspan does not know"),
    "dtype that is a list": (changed_header(set_entry("dtype", [])), r"has dtype \[\], which headspan does not know"),
    "huge shape": (changed_header(set_entry("shape", [2**62, 2**62])), r"bytes, but its offsets"),
    "shape of the wrong kind": (changed_header(set_entry("shape", 7)), r"header entry of tensor .* is malformed"),
    "integer weights": (
        changed_header(lambda header: header["h.0.attn.c_attn.weight"].__setitem__("dtype", "I32")),
        r"is stored as int32: quantized weights \(method not stated\)",
    ),
    "missing shard": (
        index_naming("model-00001-of-00002.safetensors"),
        r"'model-00001-of-00002\.safetensors' is not in",
    ),
    "index naming a path": (index_naming("../../etc/passwd"), r"only plain file names in the same folder are read"),
    "index naming an absolute path": (index_naming("/etc/passwd"), r"the index names the file '/etc/passwd'"),
    "index naming a windows path": (index_naming("..\\..\\secret"), r"only plain file names"),
    "index naming nothing": (index_naming(""), r"the index names the file ''"),
    "index naming a number": (index_naming(7), r"names a file that is not text"),
    "index naming its own folder": (index_naming("."), r"only plain file names"),
    "link out of the folder": (link_out_of_the_folder, r"is a link to a file outside the folder"),
    "config that is a link": (linked_config, r"'config\.json' .* is a link to a file outside the folder"),
    "link to itself": (dangling_link, r"'model\.safetensors' is not in"),
    "folder where a file was expected": (folder_for_a_file, r"is a folder where a file was expected"),
    "named pipe for a file": (named_pipe, r"is not a plain file where a file was expected"),
    "two weight files": (
        two_weight_files,
        r"2 weight files and no index that joins them: a\.safetensors, b\.safetensors",
    ),
    "no config": (no_config, r"has no config\.json \(found model\.safetensors\)"),
    "config that is no JSON": (broken_config(b"{,"), r"config\.json cannot be read as JSON"),
    "config that is binary": (broken_config(bytes(range(128, 256))), r"config\.json cannot be read as JSON"),
    "config that is a list": (broken_config(b"[]"), r"config\.json holds a JSON list, not an object"),
    "config without a type": (changed_config(model_type="absent"), r"has no 'model_type'"),
    "config without a field": (changed_config(n_layer="absent"), r"has no 'n_layer', which model_type 'gpt2' needs"),
    "config with 0 heads": (changed_config(n_head=0), r"'n_head' is 0, not a whole number in 1\.\.65536"),
    "config with 10^9 layers": (
        changed_config(n_layer=10**9),
        r"'n_layer' is 1000000000, not a whole number in 1\.\.10000",
    ),
    "config with text for a number": (changed_config(n_embd="wide"), r"'n_embd' is 'wide', not a whole number"),
    "config with a truth value": (changed_config(n_head=True), r"'n_head' is True, not a whole number"),
    "config with an endless number": (
        changed_config(n_embd=10**4000),
        r"it holds an integer of 4,001 digits",
    ),
    "width not divisible": (changed_config(n_head=3), r"'n_embd' = 4 is not divisible by 'n_head' = 3"),
    "shape against config": (
        changed_config(n_embd=6),
        r"'h\.0\.attn\.c_attn\.weight' has shape \(4, 12\), but the config implies \(6, 18\)",
    ),
    "config of another model": (
        changed_config(model_type="gpt_neox", hidden_size=4, num_attention_heads=2, num_hidden_layers=1),
        r"has no tensor named like 'layers\.\{layer\}\.attention\.query_key_value\.weight'",
    ),
    "unknown family": (changed_config(model_type="rwkv"), r"model_type 'rwkv' is not described in headspan"),
    "type with a newline and HTML": (changed_config(model_type="a\n<b>"), r"model_type 'a\\n<b>' is not described"),
    "code in a pickle": (code_in_a_pickle, r"refers to '(posix|nt)\.mkdir'.* headspan runs no code"),
    "code in an old pickle": (code_in_an_old_pickle, r"refers to '(posix|nt)\.mkdir'.* headspan runs no code"),
    "code as the whole file": (code_as_the_whole_file, r"refers to '(posix|nt)\.mkdir'.* headspan runs no code"),
    "text with a bad escape": (text_with_a_bad_escape, r"uses the opcode PERSID, which no state dict needs"),
    "truncated torch file": (truncated_torch_file, r"pytorch_model\.bin is damaged or cut short"),
    "compressed pickle": (compressed_pickle, r"damaged or cut short \('archive/data\.pkl' is compressed\)"),
    "zip with a directory of 1 GB": (
        zip_with_a_huge_directory,
        r"pytorch_model\.bin is damaged or cut short \(its directory claims 1,000,000,000 bytes\)",
    ),
    "torch storage too small": (
        torch_storage_too_small,
        r"storage '0' should hold 192 uncompressed bytes; found 8 bytes",
    ),
    "nested state dict": (nested_state_dict, r"no tensor at its top level \(it holds 'state_dict'\)"),
    "GPTQ codes alone": (
        quantized("gptq", {"suffix": ".qweight", "dtype": "I32"}),
        r"c_attn\.qweight' has no '.*scales'",
    ),
    "AWQ codes alone": (
        quantized("awq", {"suffix": ".qweight", "dtype": "I32"}),
        r"c_attn\.qweight' has no '.*scales'",
    ),
    "an unknown method": (
        quantized("hqq", {"suffix": ".W_q", "dtype": "U8"}),
        r"quantized \(HQQ\), which headspan does not read; open the original",
    ),
    "bitsandbytes": (
        quantized("bitsandbytes", {"suffix": ".weight", "dtype": "U8"}),
        r"quantized weights \(bitsandbytes\)",
    ),
    "fp8": (
        quantized("fp8", {"suffix": ".weight", "dtype": "F8_E4M3"}),
        r"'h\.0\.attn\.c_attn\.weight' has no 'h\.0\.attn\.c_attn\.weight_scale_inv'",
    ),
    **hostile_gguf.CASES,
}
