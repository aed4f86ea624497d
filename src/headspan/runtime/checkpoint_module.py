"""From an opened checkpoint to a `transformers` module and tokenizer, quietly, or one line that says why not.

The module is built from the checkpoint's own config and tensors, so that every source which headspan opens can be run:
a folder, a single file, the Hub, an adapter merged into its model, a model in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from headspan.checkpoint import Checkpoint, StoredStack
from headspan.errors import CheckpointError, HeadspanError, UnsupportedModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json", "spiece.model")
BESIDE_ATTENTION = ("pooler",)
"""Parts that no attention and no logit depends on; a checkpoint may lack them."""


def require_transformers() -> Any:
    """The package `transformers`, or an error that says how to get it."""
    try:
        import transformers
    except ImportError as problem:
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
    fields = {name: value for name, value in checkpoint.config.fields.items() if name != "model_type"}
    with quiet_transformers():
        try:
            config = transformers.AutoConfig.for_model(checkpoint.family, **fields)
            tensors = _own_tensors(checkpoint)
            for auto in _candidates(checkpoint, stored):
                module, lacking = _load(getattr(transformers, auto), config, tensors, dtype)
                if not lacking:
                    module.requires_grad_(False)
                    found: PreTrainedModel = module.eval().to(device)
                    return found
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError, OSError) as problem:
            raise UnsupportedModel(
                f"transformers cannot run '{checkpoint.source}' ({checkpoint.family}): {problem}"
            ) from problem
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


def _load(auto: Any, config: Any, tensors: dict[str, torch.Tensor], dtype: torch.dtype) -> tuple[Any, list[str]]:
    """A module with these weights, and the names of those it needs and was not given."""
    with torch.device("meta"):
        kind = type(auto.from_config(config))
    module, report = kind.from_pretrained(
        None, config=config, state_dict=tensors, dtype=dtype, attn_implementation="eager", output_loading_info=True
    )
    missing = {*report["missing_keys"], *(str(key) for key in report["mismatched_keys"])}
    return module, sorted(name for name in missing if not any(part in name for part in BESIDE_ATTENTION))


def load_tokenizer(checkpoint: Checkpoint) -> tuple[PreTrainedTokenizerBase | None, str]:
    """The tokenizer beside the weights, or None and why there is none."""
    folder = checkpoint.folder
    if folder is None or not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return None, f"there is no tokenizer beside the weights of '{checkpoint.source}'"
    auto = require_transformers().AutoTokenizer
    # Rust threads of the tokenizer would warn about every fork that follows.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with quiet_transformers():
        try:
            # Said outright: where it is left open, a tokenizer that brings code of its own makes transformers ask.
            return auto.from_pretrained(folder, local_files_only=True, trust_remote_code=False), ""
        except Exception as problem:  # noqa: BLE001  # whatever a stranger's tokenizer files make it raise
            return None, f"the tokenizer of '{checkpoint.source}' cannot be opened: {problem}"
