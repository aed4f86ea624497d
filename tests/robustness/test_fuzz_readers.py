"""Damaged headers, indexes, pickles and configs end in a HeadspanError or a checkpoint, never in anything else."""

from __future__ import annotations

import builtins
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headspan
from headspan.errors import HeadspanError
from tests.robustness import hostile

FEW, MANY = 200, 20_000

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


def attempt(fill: Callable[[Path], None]) -> None:
    """Open what `fill` writes, and read it if it opens; only the reader's own errors may come out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        folder.mkdir()
        fill(folder)
        try:
            checkpoint = headspan.open(folder)
            for block in checkpoint.heads().blocks():
                assert block.W_Q.isfinite().all()
        except HeadspanError as refusal:
            message = str(refusal)
        else:
            message = "opened"
        assert "\n" not in message


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


def check_config(changes: dict[str, Any]) -> None:
    attempt(lambda folder: hostile.write(folder, config={**hostile.CONFIG, **changes}))


STRATEGIES: dict[str, tuple[Callable[[Any], None], st.SearchStrategy[Any]]] = {
    "safetensors bytes": (check_bytes, damaged(INTACT)),
    "safetensors header": (check_header, headers()),
    "torch zip bytes": (check_torch, damaged(TORCH[True])),
    "torch legacy bytes": (check_torch, damaged(TORCH[False])),
    "config": (
        check_config,
        st.dictionaries(st.sampled_from([*hostile.CONFIG, "head_dim", "quantization_config"]), JSON),
    ),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_damage_never_gets_past_the_readers_own_errors(name: str) -> None:
    check, strategy = STRATEGIES[name]
    settings(max_examples=FEW)(given(strategy)(lambda value: check(value)))()


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_much_damage_never_gets_past_the_readers_own_errors(name: str) -> None:
    check, strategy = STRATEGIES[name]
    settings(max_examples=MANY // len(STRATEGIES), database=None)(given(strategy)(lambda value: check(value)))()


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
    real_open = io.open

    def watching_open(file: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, str | Path):
            opened.append(Path(file).resolve())
        return real_open(file, *args, **kwargs)

    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name).resolve() / "model"
        folder.mkdir()
        (folder.parent / "secret.safetensors").write_bytes(INTACT)
        (folder / "link.safetensors").symlink_to(folder.parent / "secret.safetensors")
        (folder / "config.json").write_text(json.dumps(hostile.CONFIG))
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        patch.setattr(io, "open", watching_open)
        patch.setattr(builtins, "open", watching_open)
        with pytest.raises(HeadspanError, match=r"\w"):
            headspan.open(folder)
    assert opened, "the watch saw nothing, so it proves nothing"
    assert all(path.is_relative_to(folder) for path in opened)
