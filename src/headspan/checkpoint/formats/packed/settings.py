"""What a config says of the quantization: enough to read the tensors, which decide themselves which are quantized.

Methods write the same facts under different names: `bits` and `group_size` (GPTQ, AWQ), `weight_block_size` (fp8),
`config_groups.*.weights` (compressed-tensors).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headspan.checkpoint.config import MAX_WIDTH, Config
from headspan.errors import CheckpointError

FIELDS = ("quantization_config", "compression_config")


@dataclass(frozen=True)
class Settings:
    """The quantization part of a config; every fact may be absent."""

    method: str = ""
    form: str = ""
    """`format`, `checkpoint_format` or `version`, in lower case."""
    bits: frozenset[int] = frozenset()
    """Bits of a code, where the config states them; several where layers differ."""
    groups: frozenset[int] = frozenset()
    """Numbers along a row that share a scale."""
    blocks: frozenset[tuple[int, int]] = frozenset()
    mixed: bool = False
    """Whether single layers may depart from what is stated for all."""

    @classmethod
    def of(cls, config: Config) -> Settings:
        name = next((name for name in FIELDS if isinstance(config.get(name), dict)), None)
        if name is None:
            return cls()
        own = config.part(name)
        parts = [own, *_weight_schemes(own)]
        size = own.get("weight_block_size")
        blocks = [size] if size is not None else []
        blocks += [part.get("block_structure") for part in parts if part.get("block_structure") is not None]
        widths = [part.integer("bits", "num_bits", "w_bit", most=64, default=0) for part in parts]
        groups = [part.integer("group_size", "q_group_size", most=MAX_WIDTH, least=-1, default=0) for part in parts]
        return cls(
            method=str(own.get("quant_method") or "")[:40].lower(),
            form=str(own.get("checkpoint_format", "format", "version") or "")[:40].lower(),
            bits=frozenset(filter(None, widths)),
            groups=frozenset(group for group in groups if group > 0),
            blocks=frozenset(_block(block, own.place) for block in blocks),
            mixed=bool(own.get("dynamic") or own.get("extra_config")),
        )

    def stated_blocks(self) -> list[tuple[int, int]]:
        """Groups and blocks alike as rows x columns."""
        return [*sorted(self.blocks), *((1, group) for group in sorted(self.groups))]


def _weight_schemes(config: Config) -> Iterator[Config]:
    """The `weights` of every group of layers, in compressed-tensors' layout."""
    layers = config.get("config_groups")
    if not isinstance(layers, dict):
        return
    for group in layers.values():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, dict):
            yield Config(weights, f"{config.place}: 'weights'")


def _block(value: Any, place: str) -> tuple[int, int]:
    if (
        not isinstance(value, list)
        or len(value) != 2
        or not all(isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= MAX_WIDTH for size in value)
    ):
        raise CheckpointError(f"{place}: a block of weights is {value!r:.60}, not two whole numbers above 0")
    return value[0], value[1]
