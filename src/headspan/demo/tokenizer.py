"""The demo model's tokenizer: one token per character, 64 symbols.

Ids 0 to 25 are a-z, 26 to 51 are A-Z, 52 to 61 are 0-9; then come `<bos>` and `<pad>`, which no training
sequence holds and which encoding never adds. A character outside the 62 is dropped: no unknown-token exists.
"""

from __future__ import annotations

import string

from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

LETTERS = string.ascii_lowercase + string.ascii_uppercase + string.digits
BOS, PAD = "<bos>", "<pad>"
BOS_ID, PAD_ID = len(LETTERS), len(LETTERS) + 1
VOCABULARY_SIZE = len(LETTERS) + 2


def character_tokenizer(model_max_length: int) -> PreTrainedTokenizerFast:
    """Build the tokenizer, with `model_max_length` written into its config."""
    vocabulary = {symbol: index for index, symbol in enumerate([*LETTERS, BOS, PAD])}
    # Byte-pair encoding without a single merge is a character tokenizer, and drops what it does not know.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers leaves it unannotated
        tokenizer_object=tokenizer, bos_token=BOS, pad_token=PAD, model_max_length=model_max_length
    )
