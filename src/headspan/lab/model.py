"""The small transformer: embeddings, pre-norm attention (and MLP) layers, unembedding. No final norm.

Attention is fused while training; `trace` computes it in the open and returns logits and patterns of every layer,
which also is what second derivatives need. Dropout draws from a generator that is handed in, so that a run depends on
its seed alone. Tensor names are those of Llama, so that the checkpoint reads like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from headspan.errors import ShapeError
from headspan.lab.architecture import EPS, Architecture
from headspan.lab.positions import alibi_terms, bucket_count, offset_buckets, rotary_angles, rotate, sinusoids

Rotation = tuple[Tensor, Tensor]
"""Cosines and signed sines of rotary positions, [position, d_head] each."""


@dataclass(frozen=True)
class Trace:
    """One run of the model in the open.

    `scores` are the attention's logits before the mask, with what positions add to them, `patterns` their causal
    softmax: [layer, sequence, head, query, key]. `reads` is what each layer's attention read, behind the norm: [layer,
    sequence, position, d_model].
    """

    logits: Float[Tensor, "sequence position token"]
    scores: Float[Tensor, "layer sequence head query key"]
    patterns: Float[Tensor, "layer sequence head query key"]
    reads: Float[Tensor, "layer sequence position d_model"]


class Attention(nn.Module):
    """Q, K, V and O of one layer, for row vectors x @ W^T as torch stores them."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.shape, width = shape, shape.heads * shape.d_head
        self.q_proj = nn.Linear(shape.d_model, width, bias=shape.bias)
        self.k_proj = nn.Linear(shape.d_model, width, bias=shape.bias)
        self.v_proj = nn.Linear(shape.d_model, width, bias=shape.bias)
        self.o_proj = nn.Linear(width, shape.d_model, bias=shape.bias)
        if shape.positions == "relative":
            self.relative_bias = nn.Parameter(torch.zeros(bucket_count(shape.length), shape.heads))

    def split(self, x: Tensor) -> Tensor:
        """[sequence, position, head * d_head] to [sequence, head, position, d_head]."""
        return x.view(*x.shape[:2], self.shape.heads, self.shape.d_head).transpose(1, 2)

    def roles(self, x: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys (both turned by their positions) and values."""
        q, k, v = (self.split(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        return (q, k, v) if rotation is None else (rotate(q, *rotation), rotate(k, *rotation), v)

    def forward(self, x: Tensor, rotation: Rotation | None) -> Tensor:
        q, k, v = self.roles(x, rotation)
        terms = self.position_terms(x)
        if terms is None:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = terms.masked_fill(future(x), -torch.inf)
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[None])
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out

    def trace(self, x: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """What the layer writes, its logits, and its pattern."""
        q, k, v = self.roles(x, rotation)
        scores, pattern = self.pattern(q, k)
        return self.o_proj((pattern @ v).transpose(1, 2).flatten(2)), scores, pattern

    def pattern(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of queries and keys, and their causal softmax, [sequence, head, query, key]."""
        scores, terms = q @ k.mT * self.shape.d_head**-0.5, self.position_terms(q)
        scores = scores if terms is None else scores + terms
        return scores, scores.masked_fill(future(q), -torch.inf).softmax(-1)

    def position_terms(self, like: Tensor) -> Tensor | None:
        """What positions add to the logits, [head, query, key]; None where they add nothing."""
        T, shape = like.shape[-2], self.shape
        if shape.positions == "alibi":
            return torch.from_numpy(alibi_terms(T, shape.heads)).to(like.device, like.dtype)
        if shape.positions == "relative":
            bucket = torch.from_numpy(offset_buckets(T, shape.length)).to(like.device)
            return self.relative_bias[bucket].permute(2, 0, 1)
        return None


def future(like: Tensor) -> Tensor:
    """[query, key]: whether the key lies ahead."""
    T = like.shape[-2]
    return torch.ones(T, T, dtype=torch.bool, device=like.device).triu(1)


class MLP(nn.Module):
    """d_model -> width -> d_model, GELU between."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.up_proj = nn.Linear(shape.d_model, shape.mlp, bias=shape.bias)
        self.down_proj = nn.Linear(shape.mlp, shape.d_model, bias=shape.bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.gelu(self.up_proj(x)))
        return out


class Layer(nn.Module):
    """Attention and, where the model has them, an MLP, each behind its norm."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.input_layernorm = norm_of(shape)
        self.self_attn = Attention(shape)
        if shape.mlp:
            self.post_attention_layernorm = norm_of(shape)
            self.mlp = MLP(shape)


class Sines(nn.Module):
    """A position table that is not trained."""

    weight: Tensor


class LabModel(nn.Module):
    """The model of an `Architecture`, its weights drawn from a seed.

    Tables are N(0, 1), matrices and biases uniform within 1/sqrt(fan-in) as torch draws them, gains 1.
    """

    def __init__(self, shape: Architecture, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.d_model)
        if shape.positions == "learned":
            self.embed_positions: nn.Embedding | Sines = nn.Embedding(shape.length, shape.d_model)
        elif shape.positions == "sinusoidal":  # kept with the weights, as other models do, and never trained
            self.embed_positions = Sines()
            self.embed_positions.register_buffer("weight", self.sines(shape.length))
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        if not shape.tied:
            self.lm_head = nn.Linear(shape.d_model, shape.vocabulary, bias=False)
        self._draw(seed)

    @torch.no_grad()
    def _draw(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                module.weight.normal_(generator=generator)
            elif isinstance(module, nn.Linear):
                bound = module.in_features**-0.5
                for parameter in module.parameters():
                    parameter.uniform_(-bound, bound, generator=generator)

    def embed(self, tokens: Int[Tensor, "sequence position"]) -> Float[Tensor, "sequence position d_model"]:
        """What enters the first layer."""
        T = tokens.shape[1]
        x: Tensor = self.embed_tokens(tokens)
        if self.shape.positions == "sinusoidal":
            return x + self.sines(T).to(x)
        if self.shape.positions != "learned":
            return x
        rows = self.shape.length
        if rows < T:
            raise ShapeError(f"the position table has {rows} rows, too few for {T} positions")
        return x + self.embed_positions.weight[:T]

    def sines(self, T: int) -> Float[Tensor, "position d_model"]:
        """The table of sines for as many positions as are asked for."""
        return torch.from_numpy(sinusoids(T, self.shape.d_model, self.shape.theta)).float()

    def unembed(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows token"]:
        """Logits of the next token."""
        return functional.linear(x, self.embed_tokens.weight if self.shape.tied else self.lm_head.weight)

    def rotation(self, T: int, like: Tensor) -> Rotation | None:
        """Cosines and signed sines [position, d_head] of rotary positions; None without them."""
        if self.shape.positions != "rotary":
            return None
        cosine, sine = rotary_angles(T, self.shape.d_head, self.shape.theta)
        return torch.from_numpy(cosine).to(like.device, like.dtype), torch.from_numpy(sine).to(like.device, like.dtype)

    @property
    def stack(self) -> list[Layer]:
        """The layers, typed."""
        return [layer for layer in self.layers if isinstance(layer, Layer)]

    def forward(
        self, tokens: Int[Tensor, "sequence position"], dropout: torch.Generator | None = None
    ) -> Float[Tensor, "sequence position token"]:
        """Logits of the next token; with a generator, as in training, some of what the attention writes is dropped."""
        x = self.embed(tokens)
        rotation = self.rotation(tokens.shape[1], x)
        for layer in self.stack:
            written = layer.self_attn(layer.input_layernorm(x), rotation)
            x = x + (written if dropout is None else self._drop(written, dropout))
            x = self.add_mlp(layer, x)
        return self.unembed(x)

    def trace(self, tokens: Int[Tensor, "sequence position"]) -> Trace:
        """Logits, and every layer's attention in the open."""
        x = self.embed(tokens)
        rotation = self.rotation(tokens.shape[1], x)
        scores, patterns, reads = [], [], []
        for layer in self.stack:
            read = layer.input_layernorm(x)
            written, score, pattern = layer.self_attn.trace(read, rotation)
            x = self.add_mlp(layer, x + written)
            scores.append(score)
            patterns.append(pattern)
            reads.append(read)
        return Trace(self.unembed(x), torch.stack(scores), torch.stack(patterns), torch.stack(reads))

    def add_mlp(self, layer: Layer, x: Tensor) -> Tensor:
        """The stream with what the layer's MLP writes, where the model has them."""
        if not self.shape.mlp:
            return x
        written: Tensor = layer.mlp(layer.post_attention_layernorm(x))
        return x + written

    def _drop(self, x: Tensor, generator: torch.Generator) -> Tensor:
        if self.shape.dropout == 0:
            return x
        return x * dropout_factors(x.shape, self.shape.dropout, generator).to(x)


def dropout_factors(shape: torch.Size, share: float, generator: torch.Generator) -> Tensor:
    """0 with probability `share` (to the nearest 1/65,536), otherwise what keeps the mean at 1.

    Four factors come of each 64 random bits: one draw per factor took a seventh of a training step.
    """
    bits = torch.empty(-(-shape.numel() // 4), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    kept = bits.view(torch.int16)[: shape.numel()] >= min(round(share * 2**16), 2**16 - 1) - 2**15
    return kept.view(shape) / (1.0 - share)


def norm_of(shape: Architecture) -> nn.Module:
    """The norm before a branch."""
    if shape.norm == "layernorm":
        return nn.LayerNorm(shape.d_model, eps=EPS, elementwise_affine=shape.norm_gains)
    if shape.norm == "rmsnorm":
        return nn.RMSNorm(shape.d_model, eps=EPS, elementwise_affine=shape.norm_gains)
    return nn.Identity()
