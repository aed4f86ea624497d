"""Damaged headers, indexes, pickles and configs end in a HeadspanError or a checkpoint, never in anything else."""

from __future__ import annotations

import atexit
import builtins
import io
import json
import math
import os
import resource
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headspan
from headspan.checkpoint import open_checkpoint
from headspan.errors import HeadspanError
from tests.robustness import hostile, hostile_gguf, hostile_packed

FEW = 200
MANY = 9_100
"""Cases of each kind in the slow suite; with fourteen kinds, here and in `test_fuzz_hub`, over 100,000."""
LONGEST_SECONDS, MOST_MEMORY = 5, 300 * 2**20

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=8,
)
HEADER, DATA = hostile.header_and_data()
INTACT = hostile.safetensors_bytes(HEADER, DATA)


def torch_bytes(zipped: bool) -> bytes:
    buffer = io.BytesIO()
    tensors = {name: torch.full(shape, 0.5) for name, shape in hostile.SHAPES.items()}
    torch.save(tensors, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


GGUF = hostile_gguf.INTACT.content()
GGUF_HEADER_BYTES = len(GGUF) - sum(len(tensor.content) for tensor in hostile_gguf.TENSORS)
TORCH = {True: torch_bytes(True), False: torch_bytes(False)}


@st.composite
def damaged(draw: st.DrawFn, intact: bytes) -> bytes:
    """`intact` with a few bytes overwritten, removed or inserted."""
    content = bytearray(intact)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        patch = draw(st.binary(max_size=8))
        content[at : at + draw(st.sampled_from([0, 1, len(patch)]))] = patch
    return bytes(content[: draw(st.sampled_from([len(content), len(content) // 2, len(content) - 3]))])


FIELDS = (0, 1, 2, 0xFF, 0x100, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)


@st.composite
def zip_directories(draw: st.DrawFn) -> bytes:
    """A torch file whose zip directory, and the record that points to it, hold other numbers than they should."""
    content = bytearray(TORCH[True])
    directory = content.index(b"PK\x01\x02")
    for _ in range(draw(st.integers(1, 4))):
        width = draw(st.sampled_from([2, 4]))
        value = draw(st.sampled_from(FIELDS) | st.integers(0, 2**32 - 1)) % 256**width
        at = draw(st.integers(directory, len(content) - width) | st.integers(len(content) - 22, len(content) - width))
        content[at : at + width] = value.to_bytes(width, "little")
    return bytes(content)


@st.composite
def gguf_numbers(draw: st.DrawFn) -> bytes:
    """A GGUF file some of whose counts, types, lengths and offsets are others than they should be."""
    content = bytearray(GGUF)
    for _ in range(draw(st.integers(1, 3))):
        width = draw(st.sampled_from([1, 4, 8]))
        value = draw(st.sampled_from((*FIELDS, 2**60, 2**63, 2**64 - 1)) | st.integers(0, 2**64 - 1)) % 256**width
        at = draw(st.integers(4, GGUF_HEADER_BYTES - width))
        content[at : at + width] = value.to_bytes(width, "little")
    return bytes(content)


@st.composite
def torch_pickles(draw: st.DrawFn) -> bytes:
    """A torch file that is intact but for the program in its pickle."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(TORCH[True])) as source, zipfile.ZipFile(buffer, "w") as target:
        for member in source.infolist():
            content = source.read(member)
            target.writestr(member.filename, draw(damaged(content)) if "data.pkl" in member.filename else content)
    return buffer.getvalue()


@st.composite
def headers(draw: st.DrawFn) -> object:
    """A header with some entry, field or the whole replaced by arbitrary JSON."""
    header: Any = json.loads(json.dumps(HEADER))
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(hostile.SHAPES)))
        field = draw(st.sampled_from(["dtype", "shape", "data_offsets", "all", "extra"]))
        value = draw(JSON | st.lists(st.integers(-(2**70), 2**70), max_size=4))
        if field == "all":
            header[name] = value
        elif field == "extra":
            header[draw(st.text(max_size=20))] = value
        elif isinstance(header[name], dict):
            header[name][field] = value
    return header


_opened: list[str] = []
_watching = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event == "open" and isinstance(arguments[0], str | bytes):
        _opened.append(os.fsdecode(arguments[0]))


sys.addaudithook(_watch)


@contextmanager
def nothing_read_outside(folder: Path) -> Iterator[None]:
    """Every file that Python opens in the block is in `folder`, or part of an installed program."""
    global _watching
    _opened.clear()
    _watching = True
    try:
        yield
    finally:
        _watching = False
    programs = (sys.prefix, sys.base_prefix, str(Path(headspan.__file__).parent), "/proc/", "/sys/", "/dev/")
    strangers = [name for name in _opened if not name.startswith((str(folder), *programs))]
    assert not strangers, f"opened outside the folder: {strangers}"


def attempt(fill: Callable[[Path], None]) -> None:
    """Open what `fill` writes, and read it if it opens; only the reader's own errors may come out."""
    folder = _workplace()
    for left in folder.iterdir():
        left.unlink()
    fill(folder)
    message = "opened"
    with nothing_read_outside(folder):
        try:
            checkpoint = open_checkpoint(folder)
            for block in checkpoint.heads().blocks():
                assert block.W_Q.isfinite().all()
        except HeadspanError as refusal:
            message = str(refusal)
    assert "\n" not in message


@cache
def _workplace() -> Path:
    """One folder for all cases: making and removing one takes longer than reading what is in it."""
    place = tempfile.TemporaryDirectory()
    atexit.register(place.cleanup)
    folder = Path(place.name) / "model"
    folder.mkdir()
    return folder


def fill_safetensors(content: bytes) -> Callable[[Path], None]:
    return lambda folder: hostile.write(folder, content)


def fill_torch(content: bytes) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps(hostile.CONFIG))
        (folder / "pytorch_model.bin").write_bytes(content)

    return fill


def check_bytes(content: bytes) -> None:
    attempt(fill_safetensors(content))


def check_header(header: object) -> None:
    attempt(fill_safetensors(hostile.safetensors_bytes(header, DATA)))


def check_torch(content: bytes) -> None:
    attempt(fill_torch(content))


def check_gguf(content: bytes) -> None:
    attempt(lambda folder: (folder / "model.gguf").write_bytes(content) and None)


def check_index(index: bytes) -> None:
    def fill(folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps(hostile.CONFIG))
        (folder / "shard.safetensors").write_bytes(INTACT)
        (folder / "model.safetensors.index.json").write_bytes(index)

    attempt(fill)


def check_config(changes: dict[str, Any]) -> None:
    attempt(lambda folder: hostile.write(folder, config={**hostile.CONFIG, **changes}))


FILES = st.sampled_from(["shard.safetensors", "../model/shard.safetensors", "/etc/passwd", "config.json", "\0", "."])
INDEXES = st.dictionaries(st.text(max_size=10), FILES | st.text(max_size=30) | JSON, max_size=4).map(
    lambda weight_map: json.dumps({"weight_map": weight_map}).encode()
)
INTACT_INDEX = json.dumps({"weight_map": dict.fromkeys(hostile.SHAPES, "shard.safetensors")}).encode()

PACKED = (
    *("GPTQ act-order", "AWQ", "fp8 blocks", "int4 asymmetric", "int8 asymmetric"),
    *("NVFP4", "MXFP4", "nf4", "LLM.int8"),
)
SETTINGS = ("quant_method", "bits", "group_size", "weight_block_size", "checkpoint_format", "config_groups", "version")
ALIKE = {"U8": ["I8", "F8_E4M3", "F8_E5M2"], "F16": ["BF16", "I16"], "F32": ["I32"], "I32": ["F32", "U32"]}
"""Dtypes by others of the same size."""


@cache
def packed_file(scheme: str) -> tuple[bytes, dict[str, Any]]:
    """An intact quantized checkpoint as the bytes of its file, and its settings."""
    with tempfile.TemporaryDirectory() as name:
        tensors, settings = hostile_packed.tensors_and_settings(scheme)
        hostile_packed.write(Path(name), tensors, settings)
        return (Path(name) / "model.safetensors").read_bytes(), settings


@st.composite
def packed_checkpoints(draw: st.DrawFn) -> tuple[bytes, object]:
    """A quantized checkpoint with tensors renamed or of another shape or dtype, other bytes or other settings."""
    content, settings = packed_file(draw(st.sampled_from(PACKED)))
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    for _ in range(draw(st.integers(1, 3))):
        own = draw(st.sampled_from(sorted(name for name in header if "q_proj" in name)))
        what = draw(st.sampled_from(["bytes", "dtype", "shape", "name", "settings"]))
        shape = header[own]["shape"]
        if what == "bytes":
            start, end = header[own]["data_offsets"]
            at, patch = draw(st.integers(start, end - 1)), draw(st.binary(min_size=1, max_size=8))
            data[at : min(end, at + len(patch))] = patch[: min(end, at + len(patch)) - at]
        elif what == "dtype":
            header[own]["dtype"] = draw(st.sampled_from(ALIKE.get(header[own]["dtype"], ["U8"])))
        elif what == "shape":
            items = math.prod(shape)
            header[own]["shape"] = draw(st.sampled_from([shape[::-1], [items], [1, items], [items, 1], [*shape, 1]]))
        elif what == "name":
            header[own + draw(st.sampled_from(["2", ".weight", "_scale"]))] = header.pop(own)
        else:
            settings = {**settings, draw(st.sampled_from(SETTINGS)): draw(JSON | st.integers(-2, 9))}
    return hostile.safetensors_bytes(header, bytes(data)), settings


def check_packed(case: tuple[bytes, object]) -> None:
    attempt(lambda folder: hostile.write(folder, case[0], {**hostile_packed.CONFIG, "quantization_config": case[1]}))


STRATEGIES: dict[str, tuple[Callable[[Any], None], st.SearchStrategy[Any]]] = {
    "safetensors bytes": (check_bytes, damaged(INTACT)),
    "safetensors header": (check_header, headers()),
    "torch zip bytes": (check_torch, damaged(TORCH[True])),
    "torch legacy bytes": (check_torch, damaged(TORCH[False])),
    "torch zip directory": (check_torch, zip_directories()),
    "torch pickle": (check_torch, torch_pickles()),
    "GGUF bytes": (check_gguf, damaged(GGUF)),
    "GGUF numbers": (check_gguf, gguf_numbers()),
    "index": (check_index, INDEXES | damaged(INTACT_INDEX)),
    "quantized tensors": (check_packed, packed_checkpoints()),
    "config": (
        check_config,
        st.dictionaries(st.sampled_from([*hostile.CONFIG, "head_dim", "quantization_config"]), JSON, max_size=3),
    ),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_damage_never_gets_past_the_readers_own_errors(name: str) -> None:
    check, strategy = STRATEGIES[name]
    settings(max_examples=FEW)(given(strategy)(lambda value: check(value)))()


def quick(check: Callable[[Any], None], value: Any) -> None:
    """The check of one case, which may take so much processor time and no more, however busy the machine is."""
    start = time.process_time()
    check(value)
    assert time.process_time() - start < LONGEST_SECONDS


def run_many(check: Callable[[Any], None], strategy: st.SearchStrategy[Any]) -> None:
    """Many cases, each quick, all together in little memory."""
    check_one = settings(max_examples=MANY, database=None, suppress_health_check=list(HealthCheck))(
        given(strategy)(lambda value: quick(check, value))
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    check_one()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MOST_MEMORY


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_much_damage_never_gets_past_the_readers_own_errors(name: str) -> None:
    run_many(*STRATEGIES[name])


def test_the_watch_sees_a_file_outside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("x")
    with pytest.raises(AssertionError, match="opened outside the folder"), nothing_read_outside(tmp_path / "inside"):
        (tmp_path / "outside").read_text()


@settings(max_examples=FEW)
@given(
    st.dictionaries(
        st.text(max_size=10),
        st.text(max_size=30)
        | st.sampled_from(
            ["../secret.safetensors", "/etc/passwd", "a/../../secret.safetensors", "\0", "link.safetensors"]
        )
        | JSON,
        min_size=1,
        max_size=4,
    )
)
def test_no_index_makes_the_reader_open_a_file_outside_the_folder(weight_map: dict[str, Any]) -> None:
    opened: list[Path] = []

    def watching(real_open: Any) -> Any:
        def watching_open(file: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(file, str | Path):
                opened.append(Path(file).resolve())
            return real_open(file, *args, **kwargs)

        return watching_open

    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name).resolve() / "model"
        folder.mkdir()
        (folder.parent / "secret.safetensors").write_bytes(INTACT)
        (folder / "link.safetensors").symlink_to(folder.parent / "secret.safetensors")
        (folder / "config.json").write_text(json.dumps(hostile.CONFIG))
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        for module in (io, builtins, os):
            patch.setattr(module, "open", watching(module.open))
        with pytest.raises(HeadspanError, match=r"\w"):
            open_checkpoint(folder)
    assert opened, "the watch saw nothing, so it proves nothing"
    assert all(path.is_relative_to(folder) for path in opened)
