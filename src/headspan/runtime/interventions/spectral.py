"""Changing singular values and singular vectors of heads: W = U S V^T, decomposed once, put together anew at will.

- truncated: the r largest singular values stay;
- flattened: all become their root mean square, so that ||W||_F stays;
- given: other singular values on the same bases;
- random bases: the same singular values on bases drawn uniformly (Haar).

A bias of Q, K or V keeps its coordinates in the right singular basis V: it turns with a new basis and loses the
coordinates that a truncation drops, so that truncated queries have no more than r dimensions, bias included. Changed
singular values leave it as it is.

Scaling the singular values of W_Q and W_K by alpha, and with them all attention logits by alpha^2.

A logit is q k with q = x W_Q + b_Q and k = y W_K + b_K, so both matrices and both biases are multiplied by alpha: the
logits are then exactly alpha^2 times as large for the same inputs, which is a softmax at temperature 1 / alpha^2.
Where that cannot be done as said, the same logits are reached another way:

- a kv head whose readers are not all chosen keeps its keys, and the chosen queries take alpha^2;
- so do the queries of latent attention, whose turned keys all heads share;
- norms of queries and keys cancel any factor of W_Q: their gains (and biases) are multiplied instead.

Deeper layers read other inputs than before. Parts of the logits that are no product of query and key stay: ALiBi and
relative positions, sinks. A cap or a clip bends what is scaled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.dims import KV_ROLES, HeadLabel, Role
from headspan.errors import ArgumentError, ShapeError, UnsupportedModel
from headspan.runtime.interventions.edits import (
    Edits,
    Label,
    head_bias,
    head_gains,
    head_slice,
    head_weight,
    heads_by_layer,
    shared_gain,
    weight_view,
    whole_groups,
)
from headspan.runtime.model import RunnableModel
from headspan.subspaces import random_subspaces
from headspan.threads import one_thread

Place = tuple[Role, int]


@dataclass(frozen=True, eq=False)
class Factors:
    """Singular vectors and values of some heads of one role and layer; S is non-negative and descends."""

    heads: tuple[int, ...]
    U: Float[Tensor, "head n_in k"]
    S: Float[Tensor, "head k"]
    Vh: Float[Tensor, "head k n_out"]


@dataclass(frozen=True, eq=False)
class HeadSpectra:
    """The decompositions of chosen heads as they were when it was made: one for all changes that follow."""

    factors: Mapping[Place, Factors]
    d_head: int

    @classmethod
    @torch.no_grad()
    def of(
        cls, model: RunnableModel, roles: Sequence[Role] = ("Q", "K"), heads: Iterable[Label] | None = None
    ) -> HeadSpectra:
        """Decompose the matrices of some roles; of all heads, or of those named and the kv heads they read."""
        through = next((role for role in roles if model.stack.projections[role].latent is not None), None)
        if through is not None:
            raise UnsupportedModel(
                f"W_{through} of a {model.checkpoint.family} reads through a latent space that its heads share; its "
                "singular values are not those of one stored matrix"
            )
        found = {}
        for layer, own in heads_by_layer(model, None if heads is None else list(heads)).items():
            for role in roles:
                found[role, layer] = _decompose(model, role, layer, _role_heads(model, role, layer, own))
        widths = (model.stack.projections[role].rows.d_head for role in roles)
        return cls(found, min(widths))

    def truncated(self, rank: int) -> SpectrumChange:
        """The `rank` largest singular values of every head; the others become zero."""
        if not 1 <= rank <= self.d_head:
            raise ArgumentError(f"rank needs to be in 1..{self.d_head} (d_head), found {rank}")
        return SpectrumChange(self, f"rank {rank}", lambda S: S[..., :rank])

    def flattened(self) -> SpectrumChange:
        """All singular values of a head alike, with the Frobenius norm it had."""
        return SpectrumChange(
            self, "flat spectrum", lambda S: S.square().mean(-1, keepdim=True).sqrt().expand_as(S).clone()
        )

    def with_values(self, values: Callable[[Tensor], Tensor], name: str = "given spectrum") -> SpectrumChange:
        """Singular values replaced by a function of them: [head, k] to [head, k or fewer]."""
        return SpectrumChange(self, name, values)

    def with_random_bases(self, seed: int) -> SpectrumChange:
        """The same singular values between uniformly random bases on both sides."""
        generator = torch.Generator().manual_seed(seed)
        turned = {
            place: Factors(each.heads, _haar(each.U, generator), each.S, _haar(each.Vh.mT, generator).mT)
            for place, each in self.factors.items()
        }
        return SpectrumChange(HeadSpectra(turned, self.d_head), f"random bases (seed {seed})", lambda S: S, self)


@dataclass(frozen=True, eq=False)
class SpectrumChange:
    """Heads put together from bases and changed singular values."""

    spectra: HeadSpectra
    name: str
    values: Callable[[Tensor], Tensor]
    before: HeadSpectra | None = None
    """Where the bases are new, the decompositions they replace."""

    def apply(self, edits: Edits) -> None:
        for (role, layer), factors in self.spectra.factors.items():
            S = self.values(factors.S)
            k = S.shape[-1]
            if S.shape[:-1] != factors.S.shape[:-1] or not 1 <= k <= factors.S.shape[-1]:
                raise ShapeError(
                    f"new singular values have shape {tuple(S.shape)}, needed {tuple(factors.S.shape)} or fewer columns"
                )
            made = (factors.U[..., :k] * S[:, None, :]) @ factors.Vh[:, :k]
            old = factors if self.before is None else self.before.factors[role, layer]
            for place, head in enumerate(factors.heads):
                head_weight(edits, role, layer, head).copy_(made[place])
                bias = None if role == "O" else head_bias(edits, role, layer, head)
                if bias is not None and (k < factors.Vh.shape[-1] or self.before is not None):
                    coordinates = old.Vh[place, :k] @ bias.to(old.Vh)
                    bias.copy_(coordinates @ factors.Vh[place, :k])

    def notes(self, model: RunnableModel) -> tuple[str, ...]:
        normed = model.stack.query_norm is not None and any(role in ("Q", "K") for role, _ in self.spectra.factors)
        return ("queries and keys are normed after this change",) if normed else ()


def _role_heads(model: RunnableModel, role: Role, layer: int, heads: Sequence[int]) -> tuple[int, ...]:
    """Where the matrices of these heads are; a kv head can be changed only for all that read it."""
    if role not in KV_ROLES:
        return tuple(heads)
    group = model.n_heads // model.stack.n_kv_heads
    whole = whole_groups(model, heads)
    if len(whole) * group < len(heads):
        split = next(head // group for head in heads if head // group not in whole)
        readers = ", ".join(str(HeadLabel(layer, head)) for head in range(split * group, (split + 1) * group))
        raise ArgumentError(f"W_{role} of {HeadLabel(layer, split, kv=True)} is read by {readers}; choose all of them")
    return tuple(whole)


def _decompose(model: RunnableModel, role: Role, layer: int, heads: tuple[int, ...]) -> Factors:
    weight, projection = model.linear(role, layer).get_parameter("weight"), model.stack.projections[role]
    W = torch.stack([weight_view(weight, projection, role, head) for head in heads]).double()
    with one_thread():
        U, S, Vh = torch.linalg.svd(W, full_matrices=False)
    return Factors(heads, U, S, Vh)


def _haar(like: Float[Tensor, "head n k"], generator: torch.Generator) -> Float[Tensor, "head n k"]:
    """Orthonormal columns drawn uniformly, of the same shape."""
    n_heads, n, k = like.shape
    return random_subspaces((n_heads,), n, k, generator).basis.to(like)


@dataclass(frozen=True)
class ScaledLogits:
    """Singular values of W_Q and W_K times alpha, so logits times alpha^2; of all heads, or of those named."""

    alpha: float
    heads: tuple[Label, ...] | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and self.alpha > 0):
            raise ArgumentError(f"alpha needs to be a number above 0, found {self.alpha}")

    @property
    def name(self) -> str:
        return f"alpha {self.alpha:.4g}" + ("" if self.heads is None else f" of {', '.join(map(str, self.heads))}")

    def apply(self, edits: Edits) -> None:
        model = edits.model
        for layer, heads in heads_by_layer(model, self.heads).items():
            kv_heads = [] if model.stack.apart else whole_groups(model, heads)
            group = model.n_heads // model.stack.n_kv_heads
            _check_shared_gain(model, layer, heads)
            factors = {head: self.alpha if head // group in kv_heads else self.alpha**2 for head in heads}
            _scale(edits, "Q", layer, factors)
            _scale(edits, "K", layer, dict.fromkeys(kv_heads, self.alpha))

    def notes(self, model: RunnableModel) -> tuple[str, ...]:
        stack = model.stack
        partial = self.heads is not None and any(
            len(whole_groups(model, own)) * (model.n_heads // stack.n_kv_heads) < len(own)
            for own in heads_by_layer(model, self.heads).values()
        )
        said = {
            "queries and keys are normed, which cancels a factor of W_Q: the gains of those norms were scaled": (
                stack.query_norm is not None
            ),
            "a kv head has readers that were not chosen, so their queries alone were scaled, by alpha^2": partial,
            "all heads share the turned keys, so queries alone were scaled, by alpha^2": bool(stack.apart),
            f"{stack.positions} position terms of the logits are not scaled": stack.positions in ("alibi", "relative"),
            "sinks are not scaled": stack.sinks is not None,
            "logits are capped after scaling": stack.softcap is not None,
            "queries and keys are clipped after scaling": stack.clip is not None,
            "biases are scaled with the matrices": any(
                getattr(model.linear(role, model.layers[0]), "bias", None) is not None for role in ("Q", "K")
            ),
        }
        return tuple(note for note, holds in said.items() if holds)


def _check_shared_gain(model: RunnableModel, layer: int, heads: Sequence[int]) -> None:
    if shared_gain(model) and len(heads) < model.n_heads:
        raise ArgumentError(
            f"the heads of layer {layer} share one gain of their query norm, so they can only be scaled together; "
            "choose all heads of the layer"
        )


def _scale(edits: Edits, role: Literal["Q", "K"], layer: int, factors: dict[int, float]) -> None:
    """Multiply the queries or keys of some heads, each by its factor."""
    stack = edits.model.stack
    norm = stack.query_norm if role == "Q" else stack.key_norm
    if norm is not None:
        shared = norm.span == "head" and "{head}" not in norm.weight
        for head, factor in list(factors.items())[: 1 if shared else None]:
            for values, offset in head_gains(edits, role, layer, head):
                values.copy_((values + offset) * factor - offset)
        return
    for head, factor in factors.items():
        head_weight(edits, role, layer, head).mul_(factor)
        bias = head_bias(edits, role, layer, head)
        if bias is not None:
            bias.mul_(factor)
        if role in stack.apart:
            _scale_apart(edits, role, layer, head, factor)


def _scale_apart(edits: Edits, role: Literal["Q", "K"], layer: int, head: int, factor: float) -> None:
    """The features that positions turn, where latent attention keeps them in rows of their own."""
    projection = edits.model.stack.apart[role]
    linear = edits.model.submodule(edits.model.stored.at_layer(projection.linear, layer).weight.rpartition(".")[0])
    for name in ("weight", "bias"):
        values = edits.parameter(linear, name)
        if values is not None:
            features = values.mT if name == "weight" and projection.linear.stored == "out_in" else values
            head_slice(features, projection.rows, head).mul_(factor)
