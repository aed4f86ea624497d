"""From an opened checkpoint to a `transformers` module and tokenizer, quietly, or one line that says why not.

The module is built from the checkpoint's own config and tensors, so that every source which headspan opens can be run:
a folder, a single file, the Hub, an adapter merged into its model, a model in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch

from headspan.checkpoint import Checkpoint, StoredStack
from headspan.checkpoint.converted import GGUFTensors
from headspan.errors import CheckpointError, HeadspanError, UnsupportedModel
from headspan.loading import uncollected
from headspan.runtime.boundary import check_layout, check_tokenizer_files, config_fields, library_boundary
from headspan.runtime.gguf_tokenizer import gguf_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json", "spiece.model")
BESIDE_ATTENTION = ("pooler",)
"""Parts that no attention and no logit depends on; a checkpoint may lack them."""


def require_transformers() -> Any:
    """The package `transformers`, or an error that says how to get it."""
    try:
        with uncollected():
            import transformers
    except (ImportError, ValueError) as problem:  # a ValueError where HF_ENDPOINT is no address
        raise HeadspanError(f"running a model needs transformers: pip install 'headspan[run]' ({problem})") from problem
    return transformers


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars and no load reports while a model is opened; as before afterwards."""
    logging = require_transformers().utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def load_module(
    checkpoint: Checkpoint, stored: StoredStack, dtype: torch.dtype, device: torch.device
) -> PreTrainedModel:
    """The checkpoint as a module that can be run: eager attention, eval, no gradients asked for.

    The module has its language-model head where the checkpoint has one; an encoder without gives states only.
    """
    transformers = require_transformers()
    with quiet_transformers(), library_boundary(f"'{checkpoint.source}', a {checkpoint.family}"):
        with uncollected():  # most of transformers is imported by its first config and its first class of a model
            config = transformers.AutoConfig.for_model(checkpoint.family, **config_fields(checkpoint))
            _ = transformers.PreTrainedModel
        tensors = _own_tensors(checkpoint)
        for auto in _candidates(checkpoint, stored):
            module, lacking = _load(getattr(transformers, auto), config, tensors, dtype, checkpoint)
            if not lacking:
                module.requires_grad_(False)
                found: PreTrainedModel = module.eval().to(device)
                return found
    raise UnsupportedModel(
        f"'{checkpoint.source}' cannot be run: it lacks {len(lacking)} tensors of a {checkpoint.family}, such as "
        f"'{lacking[0]}'; open the complete checkpoint"
    )


def _own_tensors(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """All tensors, checked to be finite, in memory of their own: changing the module leaves file and source alone."""
    tensors = {name: tensor.clone() for name, tensor in checkpoint.store.read(list(checkpoint.store.infos)).items()}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor.sum(dtype=torch.float64))):
            raise CheckpointError(
                f"tensor '{name}' holds NaN or Inf; the model cannot be run: open an earlier checkpoint"
            )
    return tensors


def _candidates(checkpoint: Checkpoint, stored: StoredStack) -> tuple[str, ...]:
    """The kinds of module to try, the one with a language-model head first where there may be one."""
    if stored.stack.causal:
        return ("AutoModelForCausalLM",) if "W_U" in stored.parts else ("AutoModel",)
    names = checkpoint.config.get("architectures") or []
    masked = isinstance(names, list) and any(str(name).endswith("ForMaskedLM") for name in names)
    return ("AutoModelForMaskedLM", "AutoModel") if masked else ("AutoModel",)


def _load(
    auto: Any, config: Any, tensors: dict[str, torch.Tensor], dtype: torch.dtype, checkpoint: Checkpoint
) -> tuple[Any, list[str]]:
    """A module with these weights, and the names of those it needs and was not given."""
    with torch.device("meta"):
        planned = auto.from_config(config)
    check_layout(planned, checkpoint)
    kind = type(planned)
    module, report = kind.from_pretrained(
        None, config=config, state_dict=tensors, dtype=dtype, attn_implementation="eager", output_loading_info=True
    )
    missing = {*report["missing_keys"], *(str(key) for key in report["mismatched_keys"])}
    return module, sorted(name for name in missing if not any(part in name for part in BESIDE_ATTENTION))


def load_tokenizer(checkpoint: Checkpoint) -> tuple[PreTrainedTokenizerBase | None, str]:
    """The tokenizer in or beside the weights, or None and why there is none.

    A GGUF file's own comes first: the files beside it may belong to another model. They serve where it has none that
    `transformers` can make.
    """
    folder, store = checkpoint.folder, checkpoint.store
    beside = folder is not None and any((folder / name).is_file() for name in TOKENIZER_FILES)
    if folder is None or not (beside or isinstance(store, GGUFTensors)):
        return None, f"there is no tokenizer beside the weights of '{checkpoint.source}'"
    transformers = require_transformers()
    # Rust threads of the tokenizer would warn about every fork that follows.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with quiet_transformers():
        try:
            if isinstance(store, GGUFTensors):
                with suppress(*((HeadspanError, OSError) if beside else ())), library_boundary("this tokenizer"):
                    return gguf_tokenizer(transformers, folder, store), ""
            with library_boundary("this tokenizer"):
                check_tokenizer_files(folder)
                # Said outright: where it is left open, a tokenizer that brings code of its own makes transformers ask.
                # The config is given for the same reason: left to itself it reads the file, and builds all its labels.
                config = transformers.AutoConfig.for_model(checkpoint.family, **config_fields(checkpoint))
                auto = transformers.AutoTokenizer
                found = auto.from_pretrained(folder, config=config, local_files_only=True, trust_remote_code=False)
                _ = len(found), found.all_special_ids
                return found, ""
        except (HeadspanError, OSError) as problem:
            return None, f"the tokenizer of '{checkpoint.source}' cannot be opened: {problem}"
