"""Which files of a Hugging Face folder hold the weights.

The first of these that is there: `model.safetensors`, `model.safetensors.index.json` with its shards,
`pytorch_model.bin`, `pytorch_model.bin.index.json` with its shards, or a single file of another name. A file name in an
index is data from a stranger: it must be a plain name, and the file must really lie in the folder (links inside the
Hugging Face cache, which point at its own blobs, are the one exception).
"""

from __future__ import annotations

from pathlib import Path

from headspan.checkpoint.config import Config, read_json
from headspan.errors import CheckpointError

SINGLE_FILES = ("model.safetensors", "pytorch_model.bin")
MAX_SHARDS = 10_000


def weight_files(folder: Path) -> list[Path]:
    """The weight files of `folder`, checked to be files inside it."""
    for name in SINGLE_FILES:
        if (folder / name).exists() or (folder / name).is_symlink():
            return [safe_path(folder, name)]
        if (folder / f"{name}.index.json").exists():
            return _shards(folder, f"{name}.index.json")
    others = sorted(path.name for path in folder.iterdir() if path.suffix in {".safetensors", ".bin", ".gguf"})
    others = [name for name in others if name not in {"training_args.bin", "optimizer.bin", "scheduler.bin"}]
    if len(others) == 1:
        return [safe_path(folder, others[0])]
    found = f"several weight files and no index: {', '.join(others[:4])}" if others else _listing(folder)
    raise CheckpointError(
        f"'{folder}' holds no model.safetensors, pytorch_model.bin or index of shards; found {found}. "
        "Give a single weight file with --config to open it by itself"
    )


def folder_config(folder: Path) -> Config:
    """The folder's config.json."""
    if not (folder / "config.json").exists():
        raise CheckpointError(
            f"'{folder}' has no config.json (found {_listing(folder)}); headspan needs it for the shapes"
        )
    return Config(read_json(safe_path(folder, "config.json")))


def safe_path(folder: Path, name: object) -> Path:
    """`folder / name`, refused unless it is an existing plain file that really lies in the folder."""
    if not isinstance(name, str) or name in {"", ".", ".."} or Path(name).name != name or "\\" in name or "\0" in name:
        raise CheckpointError(
            f"the index names the file {name!r:.80}; only plain file names in the same folder are read"
        )
    path = folder / name
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


def _shards(folder: Path, index_name: str) -> list[Path]:
    weight_map = read_json(safe_path(folder, index_name)).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"'{index_name}' has no 'weight_map' from tensor names to files")
    if not all(isinstance(name, str) for name in weight_map.values()):
        raise CheckpointError(f"'{index_name}' names a file that is not text; only plain file names are read")
    names = sorted(set(weight_map.values()))
    if len(names) > MAX_SHARDS:
        raise CheckpointError(f"'{index_name}' names {len(names):,} files; headspan reads at most {MAX_SHARDS:,}")
    return [safe_path(folder, name) for name in names]


def _listing(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") if names else "nothing"
