"""The tokenizer that a GGUF file's metadata describe, made by `transformers`.

Whether a text begins with a special token is said by the metadata (`add_bos_token`), or follows from the kind of
tokenizer as in llama.cpp: SentencePiece begins with one, byte-level BPE does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headspan.checkpoint.converted import GGUFTensors

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BEGINS = ("llama",)
"""Kinds of tokenizers that begin a text with a special token unless the metadata say otherwise."""


def gguf_tokenizer(transformers: Any, folder: Path, store: GGUFTensors) -> PreTrainedTokenizerBase:
    """The tokenizer of the file in `folder`; raises whatever strange metadata make `transformers` raise."""
    # `AutoTokenizer` would look for a config that it makes of the metadata, which it does for few architectures.
    made: PreTrainedTokenizerBase = transformers.PreTrainedTokenizerFast.from_pretrained(
        folder, gguf_file=store.first_file, local_files_only=True
    )
    _, header = next(iter(store.base.gguf.items()))
    if _begins(header.metadata) and made.bos_token is not None:
        _set_beginning(made, str(made.bos_token))
    return made


def _begins(metadata: Mapping[str, Any]) -> bool:
    stated = metadata.get("tokenizer.ggml.add_bos_token")
    return stated if isinstance(stated, bool) else metadata.get("tokenizer.ggml.model") in BEGINS


def _set_beginning(tokenizer: Any, token: str) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=[token, "$A"], pair=[token, "$A", "$B"], special_tokens=[(token, tokenizer.bos_token_id)]
    )
