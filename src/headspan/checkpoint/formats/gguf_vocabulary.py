"""The vocabulary that a GGUF file's metadata hold: every token's piece, and which tokens are no text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headspan.checkpoint.formats.gguf_header import Skipped, texts_at, whole_numbers_at
from headspan.errors import CheckpointError

NO_TEXT = (2, 3)
"""llama.cpp's types of tokens that stand for no text: unknown and control."""


def stored_pieces(file: Path, metadata: Mapping[str, Any]) -> tuple[list[str], set[int]]:
    """The pieces of all tokens in order, as the file spells them, and the ids of special ones.

    Opening a checkpoint passes over these lists; `metadata` say where in the file they are.
    """
    tokens, types = (metadata.get(f"tokenizer.ggml.{name}") for name in ("tokens", "token_type"))
    if not isinstance(tokens, Skipped):
        raise CheckpointError(f"'{file}' holds no list of tokens")
    with file.open("rb") as content:
        whole = (content, file.stat().st_size, f"'{file}'")
        pieces = texts_at(*whole, tokens)
        kinds = whole_numbers_at(*whole, types) if isinstance(types, Skipped) else types
    listed = kinds if isinstance(kinds, list | tuple) else ()
    return pieces, {token for token, kind in enumerate(listed) if kind in NO_TEXT}
