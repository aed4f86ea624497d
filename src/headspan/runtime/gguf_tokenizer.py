"""The tokenizer that a GGUF file's metadata describe, made by `transformers`.

Whether a text begins with a special token is said by the metadata (`add_bos_token`), or follows from the kind of
tokenizer as in llama.cpp: SentencePiece begins with one, byte-level BPE does not.

WordPiece (kind "bert"), which `transformers` does not make of a GGUF file, is made here. The converter writes a piece
that begins a word with a mark before it and one that continues a word without its "##". Whether letters are lowered is
not in the file: they are if no ordinary piece has a capital.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from headspan.checkpoint.converted import GGUFTensors

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WORD = "\u2581"
"""The mark before a piece that begins a word."""
BEGINS = ("llama",)
"""Kinds of tokenizers that begin a text with a special token unless the metadata say otherwise."""


def gguf_tokenizer(transformers: Any, folder: Path, store: GGUFTensors) -> PreTrainedTokenizerBase:
    """The tokenizer of the file in `folder`; raises whatever strange metadata make `transformers` raise."""
    _, header = next(iter(store.base.gguf.items()))
    if header.metadata.get("tokenizer.ggml.model") == "bert":
        return _word_piece(transformers, store.pieces(folder)[0], header.metadata)
    # `AutoTokenizer` would look for a config that it makes of the metadata, which it does for few architectures.
    # It would also take a tokenizer's files that lie in the same folder, so it sees one with nothing but the model.
    with TemporaryDirectory() as alone:
        (Path(alone) / store.first_file).symlink_to((folder / store.first_file).resolve())
        made: PreTrainedTokenizerBase = transformers.PreTrainedTokenizerFast.from_pretrained(
            alone, gguf_file=store.first_file, local_files_only=True
        )
    if _begins(header.metadata) and made.bos_token is not None:
        _set_beginning(made, str(made.bos_token))
    return made


def _word_piece(transformers: Any, tokens: Sequence[str], metadata: Mapping[str, Any]) -> PreTrainedTokenizerBase:
    from tokenizers import Tokenizer
    from tokenizers.decoders import WordPiece as Joined
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing

    pieces = [_piece(token) for token in tokens]
    names = {
        "unk": "unknown_token_id", "sep": "seperator_token_id", "cls": "cls_token_id", "mask": "mask_token_id",
        "pad": "padding_token_id", "bos": "bos_token_id", "eos": "eos_token_id",
    }  # fmt: skip
    ids = {name: metadata.get(f"tokenizer.ggml.{key}") for name, key in names.items()}
    ids["cls"] = ids["bos"] if ids["cls"] is None else ids["cls"]
    ids["sep"] = ids["eos"] if ids["sep"] is None else ids["sep"]
    special = {f"{name}_token": pieces[i] for name, i in ids.items() if isinstance(i, int) and 0 <= i < len(pieces)}
    ordinary = set(pieces) - set(special.values())
    lowered = not any(piece != piece.lower() for piece in ordinary if not _bracketed(piece))
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    made = Tokenizer(WordPiece(vocabulary, unk_token=special.get("unk_token", "[UNK]")))
    made.normalizer, made.pre_tokenizer = BertNormalizer(lowercase=lowered), BertPreTokenizer()
    made.decoder = Joined(prefix="##")
    ends = [special[name] for name in ("cls_token", "sep_token") if name in special]
    if len(ends) == 2:
        made.post_processor = TemplateProcessing(
            single=[ends[0], "$A", ends[1]],
            pair=[ends[0], "$A", ends[1], "$B:1", f"{ends[1]}:1"],
            special_tokens=[(each, vocabulary[each]) for each in ends],
        )
    found: PreTrainedTokenizerBase = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special)
    return found


def _piece(token: str) -> str:
    """A piece as WordPiece spells it."""
    if _bracketed(token):
        return token
    return token.removeprefix(WORD) if token.startswith(WORD) else f"##{token}"


def _bracketed(token: str) -> bool:
    return token.startswith("[") and token.endswith("]") and len(token) > 2


def _begins(metadata: Mapping[str, Any]) -> bool:
    stated = metadata.get("tokenizer.ggml.add_bos_token")
    return stated if isinstance(stated, bool) else metadata.get("tokenizer.ggml.model") in BEGINS


def _set_beginning(tokenizer: Any, token: str) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=[token, "$A"], pair=[token, "$A", "$B"], special_tokens=[(token, tokenizer.bos_token_id)]
    )
