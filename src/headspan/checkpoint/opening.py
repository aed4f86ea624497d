"""From what the user names (a folder, a file, a model on the Hub or in memory, "demo") to an opened Checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from headspan.checkpoint.adapter import MergedAdapter, adapter_settings, is_adapter
from headspan.checkpoint.checkpoint import Checkpoint, Folder
from headspan.checkpoint.config import Config, read_json
from headspan.checkpoint.formats.local_files import LocalFiles, folder_config, weight_files
from headspan.checkpoint.formats.tensors import InMemory, TensorStore
from headspan.checkpoint.hub import HubReference, hub_reference
from headspan.checkpoint.recognition import language_config, stored_stacks
from headspan.demo import demo_folder
from headspan.errors import CheckpointError, HeadspanError


def open_checkpoint(source: Any, config: Any = None) -> Checkpoint:
    """Open a checkpoint: headers are read and checked, weights are not.

    Parameters
    ----------
    source
        A folder in Hugging Face layout; one weight file (with `config`, or a config.json beside it); a name on the
        Hugging Face Hub, `"org/name"` or `"org/name@revision"`, of which only what is asked for is read; `"demo"`;
        `"synthetic:SHAPE?seed=1"` (see `headspan.synthetic`); a `transformers` model in memory; or a pair
        `(state_dict, config)`. A local path goes before a name on the Hub.
    config
        Path of a config.json, a dict, or a `transformers` config, for a source that has none of its own.
    """
    if isinstance(source, str | PathLike):
        return _open_path(str(source), config, may_be_on_the_hub=isinstance(source, str))
    if isinstance(source, tuple) and len(source) == 2:
        state_dict, own_config = source
        return _checkpoint("in memory", _config(own_config), InMemory.of(state_dict))
    if hasattr(source, "state_dict") and hasattr(source, "config"):
        return _checkpoint(
            f"{type(source).__name__} in memory", _config(config or source.config), InMemory.of(source.state_dict())
        )
    raise CheckpointError(
        f'cannot open a {type(source).__name__}; give a folder, a weight file, a name on the Hub, "demo", '
        "a transformers model, or a pair (state_dict, config)"
    )


def _open_path(source: str, config: Any, may_be_on_the_hub: bool) -> Checkpoint:
    if source.startswith("synthetic:"):
        # Drawing numbers needs torch, which reading headers does not.
        from headspan.checkpoint.synthetic import open_synthetic

        return open_synthetic(source)
    path = demo_folder() if source == "demo" else Path(source).expanduser()
    try:
        if is_adapter(path):
            return _open_adapter(source, path, config)
        if path.is_dir():
            store = LocalFiles.of(weight_files(path))
            settings = folder_config(path) if config is None else _config(config)
            return _checkpoint(source, settings, store, _snapshot_revision(path), path)
        if path.is_file():
            store = LocalFiles.of([path])
            return _checkpoint(source, _config_for_file(path, config), store, folder=path.parent)
    except (OSError, ValueError) as problem:
        raise CheckpointError(f"'{source}' cannot be opened: {problem}") from problem
    reference = hub_reference(source) if may_be_on_the_hub else None
    if reference is None:
        raise CheckpointError(
            f"there is no file or folder '{source}'; give a path, a name on the Hub (org/name, org/name@revision), "
            'or "demo" for the embedded model'
        )
    return _open_on_the_hub(reference, config)


def _open_on_the_hub(reference: HubReference, config: Any) -> Checkpoint:
    # huggingface_hub takes a third of a second to load, which an analysis of a local folder need not pay.
    from headspan.checkpoint.hub.model import open_hub_model

    model = open_hub_model(reference)
    settings = model.config() if config is None else _config(config)
    return _checkpoint(reference.repo, settings, model.store, model.commit, model.folder)


def _open_adapter(source: str, folder: Path, config: Any) -> Checkpoint:
    """The model that an adapter adapts, with the adapter merged into its weights."""
    name = adapter_settings(folder).get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        raise CheckpointError(f"'{source}' is an adapter that does not say which model it adapts")
    if is_adapter(Path(name)):
        raise CheckpointError(f"'{source}' adapts another adapter, '{name}'; merge that one first")
    try:
        base = open_checkpoint(name, config)
    except HeadspanError as problem:
        raise CheckpointError(
            f"'{source}' is an adapter of '{name}', which is not at hand; download that model, or merge the two with "
            f"peft (merge_and_unload): {problem}"
        ) from problem
    store = MergedAdapter.of(base.store, folder)
    return _checkpoint(source, base.config, store, base.revision, base.beside)


def _config_for_file(path: Path, config: Any) -> Config:
    if config is None and not (path.parent / "config.json").is_file():
        raise CheckpointError(f"'{path.name}' needs a config: pass the model's config.json with --config (config=...)")
    return _config(path.parent / "config.json" if config is None else config)


def _config(config: Any) -> Config:
    if isinstance(config, str | PathLike):
        path = Path(config).expanduser()
        if not path.is_file():
            raise CheckpointError(f"there is no config file '{path}'")
        return Config(read_json(path), path.name)
    if hasattr(config, "to_dict"):
        return Config({**config.to_dict(), "model_type": config.model_type}, "the model's config")
    if isinstance(config, Mapping):
        return Config(dict(config), "the given config")
    raise CheckpointError(f"a config is a path, a dict or a transformers config, not a {type(config).__name__}")


def _checkpoint(
    source: str, config: Config, store: TensorStore, revision: str | None = None, folder: Folder = None
) -> Checkpoint:
    config = language_config(config)
    return Checkpoint(source, config, store, stored_stacks(source, config, store.infos), revision, folder)


def _snapshot_revision(folder: Path) -> str | None:
    """The commit a Hugging Face cache snapshot stands for, which is its folder's name."""
    real = folder.resolve()
    return real.name if real.parent.name == "snapshots" else None
