"""Small models with tokenizers of every kind, for tests that run them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedTokenizerFast

from headspan.runtime import RunnableModel, open_runnable

TEXT = "The café's naïve owner didn't tokenize “日本語” — 🙂👍🏽 the café re-opened; the the."
VOCABULARY = 420


def _byte_level() -> tuple[Tokenizer, Any]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return tokenizer, trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>"], initial_alphabet=alphabet)


def _metaspace() -> tuple[Tokenizer, Any]:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    special = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    return tokenizer, trainers.BpeTrainer(vocab_size=300, special_tokens=special)


def _word_piece() -> tuple[Tokenizer, Any]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer, trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[UNK]", "<s>"])


KINDS = {"byte-level": _byte_level, "metaspace": _metaspace, "word-piece": _word_piece}


@cache
def tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """A tokenizer trained on a few words, which puts `<s>` before every text."""
    bare, trainer = KINDS[kind]()
    bare.train_from_iterator(["the owner tokenize opened the café tell", TEXT], trainer)
    bare.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", bare.token_to_id("<s>"))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=bare, bos_token="<s>")


@cache
def running(kind: str = "byte-level", causal: bool = True) -> RunnableModel:
    """A random model of two layers and three heads with that tokenizer; not to be changed."""
    return fresh(kind, causal)


def fresh(kind: str = "byte-level", causal: bool = True, layers: int = 2, own: Any = None) -> RunnableModel:
    """The same model, made anew."""
    torch.manual_seed(0)
    size = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
    if causal:
        config = AutoConfig.for_model("gpt2", **size, n_embd=24, n_head=3, n_layer=layers, n_positions=128)
        model = AutoModelForCausalLM.from_config(config)
    else:
        shape = {"hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": layers, "intermediate_size": 30}
        model = AutoModel.from_config(AutoConfig.for_model("bert", **size, **shape, max_position_embeddings=128))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn_like(parameter))
    return open_runnable(model, tokenizer=own or tokenizer(kind))
