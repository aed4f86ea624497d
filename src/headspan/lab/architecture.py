"""The small transformer's shape, checked, and the config.json that says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headspan.errors import HeadspanError

POSITIONS = ("rotary", "learned", "none")
NORMS = ("layernorm", "rmsnorm", "none")
MODEL_TYPE = "headspan-lab"
EPS = 1e-5


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
        Rotary (pairs half a head apart), a learned table, or none.
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
        for name in ("layers", "heads", "d_model"):
            if getattr(self, name) < 1:
                raise HeadspanError(f"a model needs at least 1 for {name}, found {getattr(self, name)}")
        if self.d_head == 0:
            if self.d_model % self.heads:
                raise HeadspanError(
                    f"d_model {self.d_model} is not divisible by {self.heads} heads; change one or give --set d_head=N"
                )
            object.__setattr__(self, "d_head", self.d_model // self.heads)
        if self.d_head < 1 or self.mlp < 0 or not 0 <= self.dropout < 1 or self.theta <= 0:
            raise HeadspanError(
                f"needed d_head >= 1, mlp >= 0, 0 <= dropout < 1 and theta > 0, found {self.d_head}, {self.mlp}, "
                f"{self.dropout} and {self.theta}"
            )
        if self.positions not in POSITIONS or self.norm not in NORMS:
            raise HeadspanError(
                f"positions are {', '.join(POSITIONS)} and norms {', '.join(NORMS)}; found "
                f"{self.positions!r} and {self.norm!r}"
            )
        if self.positions == "rotary" and self.d_head % 2:
            raise HeadspanError(f"rotary positions turn pairs, so d_head must be even, found {self.d_head}")

    def config(self) -> dict[str, Any]:
        """The content of config.json, in the words that headspan's families read."""
        return {
            "model_type": MODEL_TYPE,
            "architectures": ["HeadspanLab"],
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.length,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "hidden_size": self.d_model,
            "head_dim": self.d_head,
            "position_type": self.positions,
            "rope_theta": self.theta,
            "norm_type": self.norm,
            "norm_gains": self.norm_gains,
            "layer_norm_eps": EPS,
            "intermediate_size": self.mlp,
            "attention_bias": self.bias,
            "dropout": self.dropout,
            "tie_word_embeddings": self.tied,
        }

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Architecture:
        """The shape that a config.json says."""
        try:
            return cls(
                vocabulary=config["vocab_size"],
                length=config["max_position_embeddings"],
                layers=config["num_hidden_layers"],
                heads=config["num_attention_heads"],
                d_model=config["hidden_size"],
                d_head=config["head_dim"],
                positions=config["position_type"],
                norm=config["norm_type"],
                norm_gains=config["norm_gains"],
                mlp=config["intermediate_size"],
                dropout=config["dropout"],
                bias=config["attention_bias"],
                tied=config["tie_word_embeddings"],
                theta=config["rope_theta"],
            )
        except KeyError as missing:
            raise HeadspanError(
                f"config.json has no {missing}; it is not that of a lab model (model_type {MODEL_TYPE!r})"
            ) from missing
