"""Names, dtypes and shapes in a `pytorch_model.bin`, without torch.

A file written since torch 1.6 is a zip archive: `<root>/data.pkl` describes the tensors, `<root>/data/<key>` holds each
storage, uncompressed. An older one is a row of pickles: magic number, protocol, system facts, the state dict, then the
storages. Both describe the state dict with the same pickle, read by `torch_pickle`.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

from headspan.checkpoint.tensors import ITEM_BYTES, TensorInfo
from headspan.checkpoint.torch_pickle import MAX_PICKLE_BYTES, PickledTensor, Storage, pickled_value
from headspan.errors import CheckpointError

ZIP_MAGIC = b"PK\x03\x04"
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_PROTOCOL = 1001


def is_torch_zip(path: Path) -> bool:
    """Whether `path` is in the zip format, which torch can map instead of loading."""
    with path.open("rb") as file:
        return file.read(4) == ZIP_MAGIC


def read_torch_header(path: Path) -> dict[str, TensorInfo]:
    """Every tensor of the state dict that the file at `path` holds."""
    state_dict = _zip_state_dict(path) if is_torch_zip(path) else _legacy_state_dict(path)
    if not isinstance(state_dict, dict):
        raise CheckpointError(f"{path.name} holds a {type(state_dict).__name__}, not a state dict")
    infos = {
        name: TensorInfo(name, tensor.storage.dtype, tensor.shape, path.name)
        for name, tensor in state_dict.items()
        if isinstance(name, str) and isinstance(tensor, PickledTensor)
    }
    if not infos:
        keys = ", ".join(repr(key) for key in list(state_dict)[:5]) or "nothing"
        raise CheckpointError(
            f"{path.name} has no tensor at its top level (it holds {keys}); save the model's state dict by itself"
        )
    return infos


def _zip_state_dict(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            pickle_name = next((name for name in members if name.rpartition("/")[2] == "data.pkl"), None)
            if pickle_name is None:
                raise CheckpointError(f"{path.name} is a zip archive but not a torch checkpoint: it has no data.pkl")
            if max(members[pickle_name].file_size, members[pickle_name].compress_size) > MAX_PICKLE_BYTES:
                raise CheckpointError(f"{path.name}: its data.pkl is larger than {MAX_PICKLE_BYTES:,} bytes")
            value = pickled_value(io.BytesIO(archive.read(pickle_name)), path.name)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as problem:
        raise CheckpointError(f"{path.name} is damaged or cut short ({problem}); download it again") from problem
    _check_storages(value, pickle_name.removesuffix("data.pkl"), members, path.name)
    return value


def _check_storages(value: Any, root: str, members: dict[str, zipfile.ZipInfo], place: str) -> None:
    for storage in _storages(value):
        member = members.get(f"{root}data/{storage.key}")
        needed = storage.n_items * ITEM_BYTES[storage.dtype]
        if member is None or member.compress_type != zipfile.ZIP_STORED or member.file_size < needed:
            found = "none" if member is None else f"{member.file_size:,} bytes"
            raise CheckpointError(
                f"{place}: storage '{storage.key}' should hold {needed:,} uncompressed bytes; found {found}"
            )


def _storages(value: Any) -> set[Storage]:
    tensors = value.values() if isinstance(value, dict) else ()
    return {tensor.storage for tensor in tensors if isinstance(tensor, PickledTensor)}


def _legacy_state_dict(path: Path) -> Any:
    size = path.stat().st_size
    with path.open("rb") as file:
        magic, protocol = pickled_value(file, path.name), pickled_value(file, path.name)
        if magic != LEGACY_MAGIC or protocol != LEGACY_PROTOCOL:
            raise CheckpointError(f"{path.name} is not a checkpoint written by torch.save")
        pickled_value(file, path.name)
        value = pickled_value(file, path.name)
    needed = sum(storage.n_items * ITEM_BYTES[storage.dtype] for storage in _storages(value))
    if needed > size:
        raise CheckpointError(f"{path.name} should hold {needed:,} bytes of weights but is {size:,} bytes long")
    return value
