"""Which files of a Hugging Face folder hold the weights.

The first of these that is there: `model.safetensors`, `model.safetensors.index.json` with its shards,
`pytorch_model.bin`, `pytorch_model.bin.index.json` with its shards, or a single file of another name. A file name in an
index is data from a stranger: it must be a plain name, and the file must really lie in the folder (links inside the
Hugging Face cache, which point at its own blobs, are the one exception).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePath
from typing import Any

from headspan.checkpoint.config import Config, read_json
from headspan.errors import CheckpointError

SINGLE_FILES = ("model.safetensors", "pytorch_model.bin")
MAX_SHARDS = 10_000


def weight_files(folder: Path) -> list[Path]:
    """The weight files of `folder`, checked to be files inside it."""
    names = [path.name for path in folder.iterdir()]
    chosen = weight_names(names, lambda index: read_json(safe_path(folder, index)), f"'{folder}'")
    return [safe_path(folder, name) for name in chosen]


def weight_names(names: Collection[str], read_index: Callable[[str], Mapping[str, Any]], place: str) -> list[str]:
    """Which of the files called `names` hold the weights; the names in an index are plain but may not be there."""
    for name in SINGLE_FILES:
        if name in names:
            return [name]
        if f"{name}.index.json" in names:
            return _shards(read_index(f"{name}.index.json"), f"{name}.index.json")
    others = sorted(name for name in names if PurePath(name).suffix in {".safetensors", ".bin", ".gguf"})
    others = [name for name in others if name not in {"training_args.bin", "optimizer.bin", "scheduler.bin"}]
    if len(others) == 1:
        return others
    found = f"several weight files and no index: {', '.join(others[:4])}" if others else listed(names)
    raise CheckpointError(
        f"{place} holds no model.safetensors, pytorch_model.bin or index of shards; found {found}. "
        "Give a single weight file with --config to open it by itself"
    )


def folder_config(folder: Path) -> Config:
    """The folder's config.json."""
    if not (folder / "config.json").exists():
        found = listed([path.name for path in folder.iterdir()])
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
        raise CheckpointError(f"'{name}' is not in '{folder}'; download the missing file") from problem
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


def listed(names: Collection[str]) -> str:
    """The first few names, in words."""
    first = ", ".join(sorted(names)[:5])
    return first + (f" and {len(names) - 5} more" if len(names) > 5 else "") if names else "nothing"
