"""A LoRA adapter in PEFT's layout, merged into the weights of its base model as they are read.

W' = W + s B A, with s = alpha / r (alpha / sqrt(r) for rank-stabilized LoRA), transposed where the base stores its
matrices the other way round. Tensors that the adapter replaces whole (biases, `modules_to_save`) are taken from it.
Anything else that an adapter can hold changes the model in another way, and is refused rather than left out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headspan.checkpoint.config import MAX_WIDTH, Config, read_json
from headspan.checkpoint.formats.local_files import LocalFiles, safe_path
from headspan.checkpoint.formats.tensors import TensorInfo, TensorStore, check_readable
from headspan.checkpoint.stored_stack import check_shape
from headspan.errors import CheckpointError, UnsupportedModel

if TYPE_CHECKING:
    import torch

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
ROOT = "base_model.model."


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter and no weights of its own."""
    own = [path for path in folder.glob("*.safetensors") if path.name not in WEIGHTS] if folder.is_dir() else []
    return (folder / CONFIG).is_file() and not own and not (folder / "pytorch_model.bin").exists()


def adapter_settings(folder: Path) -> Config:
    """The adapter's config, refused unless it is plain LoRA."""
    settings = Config(read_json(safe_path(folder, CONFIG)), CONFIG)
    kind = settings.get("peft_type")
    if kind != "LORA" or settings.flag("use_dora"):
        name = "DoRA" if kind == "LORA" else kind
        raise UnsupportedModel(
            f"'{folder}' holds a {name!s:.40} adapter; headspan merges plain LoRA: merge it with peft "
            "(merge_and_unload) and save the model"
        )
    return settings


@dataclass(frozen=True)
class Change:
    """What the adapter does to one tensor of the base: replace it, or add `scale` B A."""

    scale: float
    parts: tuple[str, ...]
    """The adapter's own names: (replacement,) or (A, B)."""


@dataclass(frozen=True)
class MergedAdapter:
    """A base model's tensors with an adapter's changes."""

    base: TensorStore
    adapter: LocalFiles
    changes: Mapping[str, Change]
    transposed: bool

    @classmethod
    def of(cls, base: TensorStore, folder: Path) -> MergedAdapter:
        settings = adapter_settings(folder)
        name = next((name for name in WEIGHTS if (folder / name).exists()), None)
        if name is None:
            raise CheckpointError(f"'{folder}' has an {CONFIG} but no {WEIGHTS[0]}; download the missing file")
        adapter = LocalFiles.of([safe_path(folder, name)])
        transposed = settings.flag("fan_in_fan_out")
        merged = cls(base, adapter, _changes(base.infos, adapter.infos, settings), transposed)
        merged._check_shapes()
        return merged

    @property
    def infos(self) -> Mapping[str, TensorInfo]:
        return self.base.infos

    @property
    def bytes_on_disk(self) -> int | None:
        sizes = (self.base.bytes_on_disk, self.adapter.bytes_on_disk)
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def bytes_transferred(self) -> int | None:
        return self.base.bytes_transferred

    def read(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        changed = {name: self.changes[name] for name in names if name in self.changes}
        parts = self.adapter.read([part for change in changed.values() for part in change.parts])
        tensors = self.base.read(names)
        for name, change in changed.items():
            tensors[name] = self._merge(tensors[name], [parts[part] for part in change.parts], change.scale)
        return tensors

    def roundoff(self, name: str) -> float:
        return self.base.roundoff(name)

    def content_hash(self) -> str:
        both = f"{self.base.content_hash()} {self.adapter.content_hash()}"
        return f"sha256-of-base-and-adapter:{hashlib.sha256(both.encode()).hexdigest()}"

    def _merge(self, weight: torch.Tensor, parts: list[torch.Tensor], scale: float) -> torch.Tensor:
        import torch

        if len(parts) == 1:
            return parts[0]
        # Half precision would round the change away where it is small beside the weight.
        dtype = torch.promote_types(weight.dtype, torch.float32)
        A, B = (part.to(dtype) for part in parts)
        change = scale * (B @ A)
        return weight.to(dtype) + (change.T if self.transposed else change)

    def _check_shapes(self) -> None:
        for name, change in self.changes.items():
            infos = [self.adapter.infos[part] for part in change.parts]
            for info in infos:
                check_readable(info, None)
            expected = self.infos[name].shape
            if len(infos) == 1:
                check_shape(infos[0], expected)
                continue
            n_out, n_in = expected[::-1] if self.transposed else expected
            rank = infos[0].shape[0] if infos[0].shape else 0
            check_shape(infos[0], (rank, n_in))
            check_shape(infos[1], (n_out, rank))


def _changes(base: Mapping[str, TensorInfo], adapter: Mapping[str, TensorInfo], settings: Config) -> dict[str, Change]:
    """What changes, by the base's names."""
    changes: dict[str, Change] = {}
    for name in adapter:
        module, _, kind = name.removeprefix(ROOT).rpartition(".lora_A.")
        if kind == "weight":
            second = f"{ROOT}{module}.lora_B.weight"
            if second not in adapter:
                raise CheckpointError(f"the adapter has '{name}' but no '{second}'; it is damaged: download it again")
            changes[_base_name(base, f"{module}.weight")] = Change(_scale(settings, module), (name, second))
        elif re.search(r"\.(lora|ia3)_(?!A\.|B\.)|\.lora_[AB]\.bias$", name):
            raise UnsupportedModel(
                f"the adapter holds '{name}', which headspan does not merge; merge it with peft (merge_and_unload)"
            )
        elif not name.endswith(".lora_B.weight"):
            whole = name.removeprefix(ROOT).replace(".base_layer.", ".")
            changes[_base_name(base, whole)] = Change(1.0, (name,))
    return changes


def _base_name(base: Mapping[str, TensorInfo], name: str) -> str:
    """The tensor of the base that an adapter means: the same name, or one with fewer or more words before it."""
    words = name.split(".")
    for start in range(len(words) - 1):
        rest = ".".join(words[start:])
        if rest in base:
            return rest
    longer = [candidate for candidate in base if candidate.endswith(f".{name}")]
    if len(longer) == 1:
        return longer[0]
    raise CheckpointError(f"the adapter changes '{name}', which the base model does not have; is it the right base?")


def _scale(settings: Config, module: str) -> float:
    rank = _by_pattern(settings, "rank_pattern", module, settings.integer("r", most=MAX_WIDTH, default=8))
    alpha = _by_pattern(settings, "alpha_pattern", module, settings.number("lora_alpha", default=8.0))
    return alpha / (rank**0.5 if settings.flag("use_rslora") else rank)


def _by_pattern(settings: Config, name: str, module: str, default: float) -> float:
    """A module's own number, under the last words of its name; the adapter's one otherwise.

    PEFT reads the words as a regular expression. One from a stranger's file is not run: plain words are enough for what
    PEFT itself writes, and anything else is refused.
    """
    patterns = settings.get(name) or {}
    if not isinstance(patterns, dict):
        raise CheckpointError(f"{CONFIG}: '{name}' is not a table of modules and numbers")
    for pattern, value in patterns.items():
        if not re.fullmatch(r"\^?[\w.\\-]+\$?", pattern) or not isinstance(value, int | float) or value <= 0:
            raise UnsupportedModel(
                f"{CONFIG}: '{name}' has the entry {pattern!r:.60}: {value!r:.20}, which headspan does not read; merge "
                "the adapter with peft (merge_and_unload)"
            )
        words = pattern.strip("^$").replace("\\.", ".")
        if f".{module}".endswith(f".{words}"):
            return float(value)
    return default
