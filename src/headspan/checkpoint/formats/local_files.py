"""Weight files on this machine: which files of a folder they are, and their tensors as one `TensorStore`.

Of a Hugging Face folder the first of these that is there: `model.safetensors`, `model.safetensors.index.json` with its
shards, `pytorch_model.bin`, `pytorch_model.bin.index.json` with its shards, or a single file of another name (a GGUF
file in parts counts as one). A file
name in an index is data from a stranger: it must be a plain name, and the file must really lie in the folder (links
inside the Hugging Face cache, which point at its own blobs, are the one exception).

Headers of all files are read when the store is made. Each call of `read` maps the files it needs and lets go of them
when its tensors are gone, so memory holds what the caller holds and no more. Only a torch file in the old, non-zip
format cannot be mapped; it is loaded whole, once.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from headspan.checkpoint.config import Config, read_json
from headspan.checkpoint.formats import WeightHeader, read_weight_header
from headspan.checkpoint.formats.gguf_header import GGUFHeader
from headspan.checkpoint.formats.headers import is_torch_zip, read_safetensors_header
from headspan.checkpoint.formats.tensors import TensorInfo, merge_infos, names_by_place
from headspan.errors import CheckpointError

if TYPE_CHECKING:
    import torch


SINGLE_FILES = ("model.safetensors", "pytorch_model.bin")
WEIGHT_ENDINGS = frozenset({".safetensors", ".bin", ".gguf"})
MAX_SHARDS = 10_000
GGUF_PART = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf", re.DOTALL)
FULL_HASH_BYTES = 4 * 2**30
"""Above this the weights are not hashed whole: reading 140 GB to label a result would cost more than the result."""


def weight_files(folder: Path) -> list[Path]:
    """The weight files of `folder`, checked to be files inside it."""
    names = [path.name for path in folder.iterdir()]
    _refuse_several(folder, names)
    chosen = weight_names(names, lambda index: read_json(safe_path(folder, index)), f"'{folder}'")
    return [safe_path(folder, name) for name in chosen]


def _refuse_several(folder: Path, names: Sequence[str]) -> None:
    """Refuse a folder that holds no weights itself and checkpoints in folders of their own, as training leaves them."""
    if any(PurePath(name).suffix in WEIGHT_ENDINGS or name.endswith(".index.json") for name in names):
        return
    inner = sorted(name for name in names if (folder / name / "config.json").is_file())
    if inner:
        listed = ", ".join(inner[:4]) + (f" and {len(inner) - 4} more" if len(inner) > 4 else "")
        raise CheckpointError(
            f"'{folder}' holds {len(inner)} checkpoints, each in a folder of its own: {listed}. Open one of them, such "
            f"as '{folder / inner[-1]}', or follow all of them: headspan sweep {folder} -o STORE"
        )


def weight_names(names: Collection[str], read_index: Callable[[str], Mapping[str, Any]], place: str) -> list[str]:
    """Which of the files called `names` hold the weights; the names in an index are plain but may not be there."""
    for name in SINGLE_FILES:
        if name in names:
            return [name]
        if f"{name}.index.json" in names:
            return _shards(read_index(f"{name}.index.json"), f"{name}.index.json")
    plain = [name for name in names if "/" not in name]
    others = sorted(name for name in plain if PurePath(name).suffix in WEIGHT_ENDINGS)
    others = [name for name in others if name not in {"training_args.bin", "optimizer.bin", "scheduler.bin"}]
    # Beside a model that sees or hears, llama.cpp keeps that part in a file of its own.
    others = [name for name in others if not name.startswith("mmproj")]
    if others and len({gguf_parts(name)[0] for name in others}) == 1:
        return gguf_parts(others[0])
    if others and all(name.endswith(".gguf") for name in others):
        example = f"{place.strip(chr(39))}/{gguf_parts(others[0])[0]}"
        raise CheckpointError(f"{place} holds several GGUF files: {', '.join(others[:4])}; name one of them: {example}")
    if others:
        raise CheckpointError(
            f"{place} holds {len(others)} weight files and no index that joins them: {', '.join(others[:4])}. Open one "
            f"by itself, such as '{place.strip(chr(39))}/{others[0]}', with a config.json beside it or --config"
        )
    raise CheckpointError(
        f"{place} holds no model.safetensors, pytorch_model.bin or index of shards; found {name_list(names)}. "
        "Give a single weight file with --config to open it by itself"
    )


def gguf_parts(name: str) -> list[str]:
    """The names of all parts of a GGUF file, from that of one of them; the name alone where it is whole."""
    match = GGUF_PART.fullmatch(name)
    if match is None:
        return [name]
    count = int(match[2])
    if count > MAX_SHARDS:
        raise CheckpointError(f"'{name}' is one of {count:,} parts; headspan reads at most {MAX_SHARDS:,}")
    return [f"{match[1]}-{part:05d}-of-{count:05d}.gguf" for part in range(1, count + 1)] or [name]


def folder_config(folder: Path) -> Config:
    """The folder's config.json."""
    if not (folder / "config.json").exists():
        found = name_list([path.name for path in folder.iterdir()])
        raise CheckpointError(f"'{folder}' has no config.json (found {found}); headspan needs it for the shapes")
    return Config(read_json(safe_path(folder, "config.json")))


def plain_name(name: object) -> str:
    """`name`, refused unless it names a file without saying where."""
    if not isinstance(name, str) or name in {"", ".", ".."} or Path(name).name != name or "\\" in name or "\0" in name:
        raise CheckpointError(
            f"the index names the file {name!r:.80}; only plain file names in the same folder are read"
        )
    return name


def safe_path(folder: Path, name: object) -> Path:
    """`folder / name`, refused unless it is an existing plain file that really lies in the folder."""
    path = folder / plain_name(name)
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as problem:
        raise CheckpointError(
            f"'{name}' is not in '{folder}', though the checkpoint needs it; download the missing file"
        ) from problem
    if not any(target.is_relative_to(root) for root in _roots(folder)):
        raise CheckpointError(
            f"'{name}' in '{folder}' is a link to a file outside the folder; copy the file in, or open the file itself "
            "with --config"
        )
    if not target.is_file():
        kind = "a folder" if target.is_dir() else "not a plain file"
        raise CheckpointError(f"'{name}' in '{folder}' is {kind} where a file was expected")
    return path


def _roots(folder: Path) -> list[Path]:
    real = folder.resolve()
    in_cache = real.parent.name == "snapshots" and real.parent.parent.name.startswith("models--")
    return [real, real.parent.parent / "blobs"] if in_cache else [real]


def _shards(index: Mapping[str, Any], index_name: str) -> list[str]:
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"'{index_name}' has no 'weight_map' from tensor names to files")
    if not all(isinstance(name, str) for name in weight_map.values()):
        raise CheckpointError(f"'{index_name}' names a file that is not text; only plain file names are read")
    names = sorted(set(weight_map.values()))
    if len(names) > MAX_SHARDS:
        raise CheckpointError(f"'{index_name}' names {len(names):,} files; headspan reads at most {MAX_SHARDS:,}")
    return [plain_name(name) for name in names]


def name_list(names: Collection[str]) -> str:
    """The first few names, in words."""
    first = ", ".join(sorted(names)[:5])
    return first + (f" and {len(names) - 5} more" if len(names) > 5 else "") if names else "nothing"


def read_header(path: Path) -> WeightHeader:
    """Every tensor of one weight file, by its format."""
    try:
        if path.is_dir():
            raise CheckpointError(f"'{path.name}' is a folder where a weight file was expected")
        with path.open("rb") as file:
            return read_weight_header(file, path.stat().st_size, path.name)
    except OSError as problem:
        raise CheckpointError(f"'{path.name}' cannot be read: {problem.strerror or problem}") from problem


@dataclass(frozen=True)
class LocalFiles:
    """The tensors of one or several weight files."""

    files: Mapping[str, Path]
    """File name as messages show it -> where it is."""
    infos: Mapping[str, TensorInfo]
    gguf: Mapping[str, GGUFHeader] = field(default_factory=dict, repr=False)
    """The headers of GGUF files, by the files' names."""
    bytes_transferred: None = None
    _roundoffs: dict[str, float] = field(default_factory=dict, repr=False, compare=False)
    _loaded_whole: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, paths: Sequence[Path]) -> LocalFiles:
        headers = {path.name: read_header(path) for path in paths}
        gguf = {name: header for name, header in headers.items() if isinstance(header, GGUFHeader)}
        return cls({path.name: path for path in paths}, merge_infos(h.infos for h in headers.values()), gguf)

    @property
    def bytes_on_disk(self) -> int:
        return sum(path.stat().st_size for path in self.files.values())

    def read(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        tensors: dict[str, torch.Tensor] = {}
        for place, wanted in names_by_place(self.infos, names).items():
            path = self.files[place]
            if place in self.gguf:
                tensors |= {name: self._read_gguf(name) for name in wanted}
                continue
            read = self._read_safetensors if path.suffix == ".safetensors" else self._read_torch
            tensors |= read(path, wanted)
        return tensors

    def _read_gguf(self, name: str) -> torch.Tensor:
        from headspan.checkpoint.formats.gguf_numbers import unpacked

        header = self.gguf[self.infos[name].place]
        return unpacked(self._gguf_bytes(name), self.infos[name], header.types[name])

    def _gguf_bytes(self, name: str) -> Any:
        import numpy as np

        place = self.infos[name].place
        start, end = self.gguf[place].byte_ranges[name]
        try:
            return (
                np.memmap(self.files[place], np.uint8, "r", start, (end - start,))
                if end > start
                else np.empty(0, np.uint8)
            )
        except (OSError, ValueError) as problem:
            raise CheckpointError(f"'{place}' can no longer be read: {problem}") from problem

    def _read_safetensors(self, path: Path, names: Sequence[str]) -> dict[str, torch.Tensor]:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                return {name: file.get_tensor(name) for name in names}
        except (SafetensorError, OSError) as problem:
            raise CheckpointError(f"'{path.name}' can no longer be read: {problem}") from problem

    def read_bytes(self, names: Sequence[str]) -> dict[str, bytes]:
        """Contents of tensors in safetensors files as bytes, without torch."""
        contents: dict[str, bytes] = {}
        for place, wanted in names_by_place(self.infos, names).items():
            path = self.files[place]
            with path.open("rb") as file:
                header = read_safetensors_header(file, path.stat().st_size, place)
                for name in wanted:
                    start, end = header.byte_ranges[name]
                    file.seek(start)
                    contents[name] = file.read(end - start)
        return contents

    def _read_torch(self, path: Path, names: Sequence[str]) -> dict[str, torch.Tensor]:
        state_dict = self._loaded_whole.get(path.name)
        if state_dict is None:
            mapped = is_torch_zip(path)
            state_dict = _torch_state_dict(path, mapped)
            if not mapped:
                self._loaded_whole[path.name] = state_dict
        return {name: _as_described(state_dict.get(name), self.infos[name]) for name in names}

    def roundoff(self, name: str) -> float:
        if self.infos[name].packing is None:
            return 0.0
        if name not in self._roundoffs:
            from headspan.checkpoint.formats.gguf_numbers import block_roundoff

            kind = self.gguf[self.infos[name].place].types[name]
            self._roundoffs[name] = block_roundoff(self._gguf_bytes(name), kind)
        return self._roundoffs[name]

    def content_hash(self) -> str:
        return self._content_hash

    @cached_property
    def _content_hash(self) -> str:
        if self.bytes_on_disk > FULL_HASH_BYTES:
            headers = sorted((info.place, info.name, info.dtype, info.shape) for info in self.infos.values())
            return f"sha256-of-headers:{hashlib.sha256(repr(headers).encode()).hexdigest()}"
        digests = {name: file_digest(path) for name, path in sorted(self.files.items())}
        return hash_of_files(digests)


def hash_of_files(digests: Mapping[str, str]) -> str:
    """One label for all weight files, from the SHA-256 of each by name (in order of the names)."""
    if len(digests) == 1:
        return f"sha256:{next(iter(digests.values()))}"
    return f"sha256-of-files:{hashlib.sha256(repr(dict(digests)).encode()).hexdigest()}"


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content; the Hugging Face cache already keeps it as the name of the file it links to."""
    target = path.resolve().name
    if path.is_symlink() and re.fullmatch(r"[0-9a-f]{64}", target):
        return target
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _as_described(tensor: object, info: TensorInfo) -> torch.Tensor:
    """A tensor that torch loaded, held against what the file's header said of it."""
    import torch

    if not isinstance(tensor, torch.Tensor) or str(tensor.dtype).removeprefix("torch.") != info.dtype:
        raise CheckpointError(f"'{info.place}' is damaged: tensor '{info.name}' is not what its header says")
    return tensor


def _torch_state_dict(path: Path, mapped: bool) -> dict[str, torch.Tensor]:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as problem:  # on damaged bytes torch's reader raises whatever it stumbles over
        first_line = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise CheckpointError(f"'{path.name}' cannot be loaded by torch: {first_line}") from problem
    return dict(content)
