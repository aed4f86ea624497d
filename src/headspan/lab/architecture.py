"""The small transformer's shape, checked, and the config.json that says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headspan.errors import ArgumentError, CheckpointError
from headspan.lab.settings import check_settings, one_of

POSITIONS = ("rotary", "learned", "sinusoidal", "alibi", "relative", "none")
NORMS = ("layernorm", "rmsnorm", "none")
MODEL_TYPE = "headspan-lab"
EPS = 1e-5
CONFIG_KEYS = {
    "vocabulary": "vocab_size",
    "length": "max_position_embeddings",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "d_model": "hidden_size",
    "d_head": "head_dim",
    "positions": "position_type",
    "theta": "rope_theta",
    "norm": "norm_type",
    "norm_gains": "norm_gains",
    "mlp": "intermediate_size",
    "bias": "attention_bias",
    "dropout": "dropout",
    "tied": "tie_word_embeddings",
}
"""Names of the settings in config.json."""


@dataclass(frozen=True)
class Architecture:
    """A decoder: attention, optionally with MLPs, pre-norm, no final norm.

    Parameters
    ----------
    vocabulary, length
        Tokens, and positions of a sequence (rows of a learned position table).
    layers, heads, d_model, d_head
        `d_head` is d_model / heads unless it is given.
    positions
        Rotary (pairs half a head apart); a table that is added to the tokens, learned or of sines; a term that is added
        to the logits and depends on the offset, falling in a line (alibi) or learned (relative); or none.
    norm, norm_gains
        What stands before attention and MLP, and whether it has gain and bias of its own.
    mlp
        Width of the MLPs, 0 for attention only.
    dropout
        On what the attention writes, while training.
    bias, tied
        Biases in the attention (and MLP); unembedding shared with the token table.
    theta
        Base of the rotary frequencies.
    """

    vocabulary: int = 64
    length: int = 64
    layers: int = 2
    heads: int = 1
    d_model: int = 64
    d_head: int = 0
    positions: str = "rotary"
    norm: str = "layernorm"
    norm_gains: bool = True
    mlp: int = 0
    dropout: float = 0.1
    bias: bool = True
    tied: bool = False
    theta: float = 10_000.0

    def __post_init__(self) -> None:
        counts = {name: (getattr(self, name) >= 1, "at least 1") for name in ("layers", "heads", "d_model")}
        check_settings(self, **counts)
        if self.d_head == 0:
            if self.d_model % self.heads:
                raise ArgumentError(
                    f"d_model {self.d_model} is not divisible by {self.heads} heads; change one or give --set d_head=N"
                )
            object.__setattr__(self, "d_head", self.d_model // self.heads)
        check_settings(
            self,
            d_head=(self.d_head >= 1, "at least 1"),
            mlp=(self.mlp >= 0, "at least 0"),
            dropout=(0 <= self.dropout < 1, "at least 0 and below 1"),
            theta=(self.theta > 0, "above 0"),
            positions=(self.positions in POSITIONS, one_of(POSITIONS)),
            norm=(self.norm in NORMS, one_of(NORMS)),
        )
        if self.positions == "rotary" and self.d_head % 2:
            raise ArgumentError(f"d_head needs to be even, since rotary positions turn pairs; found {self.d_head}")

    def config(self) -> dict[str, Any]:
        """The content of config.json, in the words that headspan's families read."""
        own = {key: getattr(self, name) for name, key in CONFIG_KEYS.items()}
        return {"model_type": MODEL_TYPE, "architectures": ["HeadspanLab"], **own, "layer_norm_eps": EPS}

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Architecture:
        """The shape that a config.json says."""
        try:
            return cls(**{name: config[key] for name, key in CONFIG_KEYS.items()})
        except KeyError as missing:
            raise CheckpointError(
                f"config.json has no {missing}; it is not that of a lab model (model_type {MODEL_TYPE!r})"
            ) from missing
