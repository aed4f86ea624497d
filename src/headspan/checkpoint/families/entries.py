"""What a family does to token plus position before its first layer, where that is more than the layer's own norm.

Only families with an added position table are listed or need to be: elsewhere nothing is added to a token. A family
with such a table whose first layer norms the sum itself, as GPT-2's does, has no entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A LayerNorm of the sum, a table whose first row is added to every token, and a field of the config for a scale.

    Parameters
    ----------
    norm
        Name of the norm, relative to the model's root; with `{stack}` where encoder and decoder have their own.
    constant
        Name of the table whose row 0 joins the sum (BERT's token types: a single text is all of type 0).
    root_scale
        The config's flag for tokens times sqrt(d_model) (BART).
    """

    norm: str
    constant: str | None = None
    root_scale: str | None = None


_TYPES = "embeddings.token_type_embeddings.weight"
_TEXT = Entry("embeddings.LayerNorm", _TYPES)

ENTRIES: Mapping[str, Entry] = {
    "bert": _TEXT,
    "roberta": _TEXT,
    "xlm-roberta": _TEXT,
    "electra": _TEXT,
    "albert": _TEXT,
    "deberta-v2": _TEXT,
    "distilbert": Entry("embeddings.LayerNorm"),
    "mpnet": Entry("embeddings.LayerNorm"),
    "bart": Entry("{stack}.layernorm_embedding", root_scale="scale_embedding"),
}
