"""What token ids stand for, and which of them are no text: special, unused and byte tokens.

Texts come from the metadata of a GGUF file, from a `tokenizer.json`, `vocab.json` or `vocab.txt` beside the weights, or
from a tokenizer that is given; without any, ids stand for themselves. A byte-level vocabulary is spelled out (`Ġthe` is
` the`), and so is the word mark of SentencePiece (`▁the`).

- special: the tokenizer says so, or it is written like one (`<s>`, `<|endoftext|>`, `[CLS]`);
- unused: reserved by name (`[unused7]`, `<unused7>`, `<|reserved_special_token_7|>`) or a row that no token has;
- byte: a piece of a character: `<0x0A>`, or bytes that are no text by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headspan.checkpoint.converted import GGUFTensors
from headspan.errors import HeadspanError
from headspan.heads import Heads
from headspan.input_files import LARGEST_TOKENIZER, decoded, file_bytes, json_object

CLASSES = ("special", "unused", "byte")
UNUSED = re.compile(
    r"[\[<]\|?(?:unused|reserved|extra_id|extra_token|dummy|madeupword|pad_?token)[\w ]{0,40}\|?[\]>]", re.I
)
BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
SPECIAL = re.compile(
    r"<\|[\w ]{1,60}\|>|</?(?:s|pad|unk|bos|eos|mask|cls|sep)>|\[(?:CLS|SEP|PAD|UNK|MASK|BOS|EOS)\]", re.I
)
WORD_MARK = "\u2581"


@dataclass(frozen=True)
class Tokens:
    """The tokens of a table: `n_tokens` rows, the text of those that have one, and the class of those that are none."""

    n_tokens: int
    texts: Mapping[int, str] = field(default_factory=dict)
    classes: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def kept(self) -> Int[Tensor, " kept"]:
        """Ids of tokens that are text, ascending; all where nothing is known."""
        keep = torch.ones(self.n_tokens, dtype=torch.bool)
        left_out = [token for token in self.classes if 0 <= token < self.n_tokens]
        keep[left_out] = False
        return keep.nonzero().flatten()

    @property
    def counts(self) -> dict[str, int]:
        """How many tokens of each class there are."""
        found = list(self.classes.values())
        return {name: found.count(name) for name in CLASSES}

    def text(self, token: int) -> str:
        """How a token reads; `#17` where it has no text."""
        return self.texts.get(token, f"#{token}")

    def spelled(self, ids: np.ndarray) -> np.ndarray:
        """Texts of an array of ids, of the same shape; empty for -1."""
        flat = ["" if token < 0 else self.text(int(token)) for token in ids.ravel()]
        return np.array(flat, dtype=object).reshape(ids.shape)

    @cached_property
    def by_text(self) -> dict[str, int]:
        """Ids of tokens by their text; of two with one text the first."""
        found: dict[str, int] = {}
        for token in sorted(self.texts, reverse=True):
            found[self.texts[token]] = token
        return found


def tokens_of(heads: Heads, n_tokens: int, tokenizer: Any = None) -> Tokens:
    """The tokens of a table with `n_tokens` rows: by a tokenizer that is given, or by the checkpoint's files."""
    raw, special = _given(tokenizer) if tokenizer is not None else _stored(heads)
    raw = {token: text for token, text in raw.items() if 0 <= token < n_tokens}
    if not raw:
        return Tokens(n_tokens)
    byte_level = _is_byte_level(raw)
    texts, classes = {}, {token: "unused" for token in range(n_tokens) if token not in raw}
    for token, piece in raw.items():
        text = piece if token in special else _spelled(piece, byte_level)
        kind = _class(piece, text, token in special)
        texts[token] = piece if text is None else text
        if kind is not None:
            classes[token] = kind
    return Tokens(n_tokens, texts, classes)


def _class(piece: str, text: str | None, special: bool) -> str | None:
    if UNUSED.fullmatch(piece):
        return "unused"
    if special or SPECIAL.fullmatch(piece):
        return "special"
    return "byte" if text is None or BYTE.fullmatch(piece) else None


def _given(tokenizer: Any) -> tuple[dict[int, str], set[int]]:
    """Pieces and special ids of a `transformers` tokenizer."""
    special = {int(token) for token in tokenizer.all_special_ids}
    return {int(token): str(piece) for piece, token in tokenizer.get_vocab().items()}, special


def _stored(heads: Heads) -> tuple[dict[int, str], set[int]]:
    """Pieces and special ids out of a GGUF file itself; otherwise, or where it holds none, by the files beside it."""
    folder, store = heads.checkpoint.folder, heads.checkpoint.store
    if folder is not None and isinstance(store, GGUFTensors):
        with suppress(HeadspanError, OSError):
            pieces, special = store.pieces(Path(folder))
            return dict(enumerate(pieces)), special
    return _beside(heads)


def _beside(heads: Heads) -> tuple[dict[int, str], set[int]]:
    """Pieces and special ids by the files beside the weights; nothing where there are none or they are damaged."""
    folder = heads.checkpoint.folder
    if folder is None:
        return {}, set()
    for name, read in (("tokenizer.json", _tokenizer_json), ("vocab.json", _vocab_json), ("vocab.txt", _vocab_txt)):
        file = Path(folder) / name
        if file.exists():
            try:
                pieces, special = read(file_bytes(file, LARGEST_TOKENIZER))
            except (HeadspanError, ValueError, KeyError, TypeError, AttributeError):
                continue
            if pieces:
                return pieces, special
    return {}, set()


def _tokenizer_json(file: bytes) -> tuple[dict[int, str], set[int]]:
    content = json_object(file, "tokenizer.json")
    vocab = content["model"]["vocab"]
    if isinstance(vocab, dict):
        pieces = {token: str(piece) for piece, token in vocab.items() if isinstance(token, int)}
    else:
        pieces = {token: str(entry[0]) for token, entry in enumerate(vocab) if isinstance(entry, list) and entry}
    added = [each for each in content.get("added_tokens") or () if isinstance(each.get("id"), int)]
    pieces |= {each["id"]: str(each.get("content", "")) for each in added}
    return pieces, {each["id"] for each in added if each.get("special")}


def _vocab_json(file: bytes) -> tuple[dict[int, str], set[int]]:
    return {
        token: str(piece) for piece, token in json_object(file, "vocab.json").items() if isinstance(token, int)
    }, set()


def _vocab_txt(file: bytes) -> tuple[dict[int, str], set[int]]:
    return dict(enumerate(decoded(file, "vocab.txt").splitlines())), set()


@cache
def _byte_of() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for: printable ones themselves."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(rest)}


def _is_byte_level(raw: Mapping[int, str]) -> bool:
    """Whether a vocabulary spells bytes as characters: it has a `Ġ` (the space) and no mark of SentencePiece."""
    pieces = list(raw.values())
    return any(piece.startswith("Ġ") for piece in pieces) and not any(piece.startswith(WORD_MARK) for piece in pieces)


def _spelled(piece: str, byte_level: bool) -> str | None:
    """A piece as text; None where it is bytes that are no text by themselves."""
    if not byte_level:
        return piece.replace(WORD_MARK, " ")
    known = _byte_of()
    if any(character not in known for character in piece):
        return piece
    try:
        return bytes(known[character] for character in piece).decode("utf-8")
    except UnicodeDecodeError:
        return None
