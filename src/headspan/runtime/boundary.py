"""What `transformers` and `tokenizers` are given, and what comes out of them: checked before, one line after.

Before: both libraries believe what a config or a tokenizer says, and would build it.

1. A size in the config must be one that the weights can have; their shapes are known from headers.
2. A module is laid out without memory first. It must not be much larger than the weights are.
3. Fields that say how `transformers` answers are headspan's to choose. Token ids that the model lacks are left out.
4. Files of a tokenizer are regular and bounded, and its rules must not make a text many times longer.

After: whatever is raised inside either library becomes an `UnsupportedModel` in one line. What is raised by headspan's
own code stays as it is: a mistake of ours must not look like one of the model's.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headspan.checkpoint import Checkpoint
from headspan.errors import HeadspanError, UnsupportedModel
from headspan.input_files import LARGEST_TOKENIZER, check_regular, read_json

LIBRARIES = ("transformers", "tokenizers", "huggingface_hub", "sentencepiece")
OURS = frozenset(
    {"model_type", "use_cache", "return_dict", "output_attentions", "output_hidden_states", "torchscript", "auto_map"}
    | {"id2label", "label2id", "num_labels", "problem_type", "pruned_heads", "dtype", "torch_dtype"}
    | {"quantization_config", "compression_config"}
    | {"attn_implementation", "_attn_implementation", "task_specific_params", "chunk_size_feed_forward"}
)
"""Fields of a config that decide how `transformers` answers, and nothing about the model; weights come unpacked."""
NOT_SIZES = re.compile(r"position|context|window|length|_ids?$|seed|theta|factor|token|version|steps|n_ctx")
"""Names of whole numbers in a config that are no size of a tensor."""
SPARE_SIZE = 65_536
"""A size up to this is built whatever the weights are: it costs little."""
MOST_GROWTH = 64
"""How many times longer a tokenizer's rules may make a text; real ones do not reach 4."""
MOST_CHARACTERS = 4_000_000
"""Of a text that is tokenized; longer than any context."""


@contextmanager
def library_boundary(what: str) -> Iterator[None]:
    """Within the block, an exception out of `transformers` or `tokenizers` becomes one line about `what`."""
    try:
        yield
    except HeadspanError:
        raise
    except BaseException as problem:
        if not _from_library(problem):
            raise
        said = " ".join(str(problem).split()) or "no reason given"
        raise UnsupportedModel(f"transformers cannot run {what} ({type(problem).__name__}: {said:.300})") from problem


def _from_library(problem: BaseException) -> bool:
    """Whether it was raised within one of the libraries; panics of compiled code are no `Exception`s."""
    if type(problem).__name__ == "PanicException":
        return True
    modules = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(problem.__traceback__))
    return isinstance(problem, Exception) and any(name.partition(".")[0] in LIBRARIES for name in modules)


def config_fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """The fields that `transformers` builds a model from; refused where they do not fit the weights."""
    shapes = [info.shape for info in checkpoint.store.infos.values()]
    largest = max((length for shape in shapes for length in shape), default=0)
    most = max(largest, len(shapes), SPARE_SIZE)
    fields = {name: value for name, value in checkpoint.config.fields.items() if name not in OURS}
    _check_sizes(fields, most, checkpoint.config.place)
    for name in [name for name in fields if name.endswith("_token_id")]:
        value = fields[name]
        if isinstance(value, int) and not 0 <= value < largest:
            fields[name] = None
    return fields


def _check_sizes(fields: Mapping[str, Any], most: int, place: str) -> None:
    for name, value in fields.items():
        if isinstance(value, dict):
            _check_sizes({str(key): each for key, each in value.items()}, most, place)
        elif isinstance(value, int) and not NOT_SIZES.search(name) and abs(value) > most:
            raise UnsupportedModel(
                f"{place}: '{name}' is {value}, and no dimension of the weights exceeds {most:,}; the config is not "
                "that of these weights"
            )
        elif isinstance(value, list) and len(value) > most:
            raise UnsupportedModel(f"{place}: '{name}' has {len(value):,} entries; the config is not that of a model")


def check_layout(module: Any, checkpoint: Checkpoint) -> None:
    """Refuse a module, laid out without memory, that is much larger than the weights it is to hold."""
    planned = sum(each.numel() for each in (*module.parameters(), *module.buffers()))
    stored = sum(info.n_items for info in checkpoint.store.infos.values())
    if planned > 2 * stored + SPARE_SIZE**2 // 64:
        raise UnsupportedModel(
            f"the config of '{checkpoint.source}' describes a model of {planned:,} numbers, and its weights hold "
            f"{stored:,}; the config is not that of these weights"
        )


def check_tokenizer_files(folder: Path) -> None:
    """Refuse a tokenizer whose files cannot be read safely, or whose rules make texts many times longer."""
    for path in sorted(folder.iterdir()):
        if path.suffix in {".json", ".txt", ".model", ".jinja"} and not path.is_dir():
            check_regular(path, LARGEST_TOKENIZER)
    if (folder / "tokenizer.json").exists():
        check_tokenizer(folder / "tokenizer.json")


def check_tokenizer(path: Path) -> None:
    """Refuse a tokenizer.json whose rules make texts many times longer."""
    content = read_json(path, most=LARGEST_TOKENIZER)
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        growth = _growth(content.get(part))
        if growth > MOST_GROWTH:
            raise HeadspanError(
                f"'{path.name}' has a {part.replace('_', '-')} that can make a text {min(growth, 1e12):,.0f} times "
                f"longer; no real one exceeds {MOST_GROWTH}"
            )


def _growth(rule: Any) -> float:
    """How many times longer a rule of a tokenizer can make a text; rules one after another multiply."""
    if not isinstance(rule, dict):
        return 1.0
    growth = 1.0
    for inner in ("normalizers", "pretokenizers", "decoders"):
        listed = rule.get(inner)
        for each in listed if isinstance(listed, list) else ():
            growth *= _growth(each)
    if rule.get("type") == "Replace":
        pattern, content = rule.get("pattern"), rule.get("content")
        plain = pattern.get("String") if isinstance(pattern, dict) else None
        # A regular expression can match between any two characters.
        shortest = len(plain) if isinstance(plain, str) and plain else 0
        added = len(content) if isinstance(content, str) else 0
        growth *= max(1.0, added / shortest) if shortest else 1.0 + added
    if rule.get("type") == "Prepend":
        growth *= 1.0 + len(str(rule.get("prepend"))) / 8
    return growth
