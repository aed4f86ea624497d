"""One run of a model, with everything its attention did.

1. Hooks open and close a record around every attention module, in the order in which they run.
2. Inside, the watch notes what goes into the softmax and what comes out. `transformers` hands out attention
   probabilities only, and one that rounds to zero has lost its logarithm, and with it exact entropies and divergences.
   Nothing is computed twice and nothing is copied.
3. Hooks keep what the attention read (the stream behind its norm) and what its heads hand to the output matrix.

All tensors are those of the run itself; what is derived from them (log-probabilities, what each head writes) is
computed when it is asked for.

Entropy and divergence of attention from exact logarithms: right also where a probability rounds to zero.

A sink's column counts where a model has one, so that rows sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headspan.errors import HeadspanError, UnsupportedModel
from headspan.heads.block import head_features, head_weights
from headspan.runtime.budget import require_run
from headspan.runtime.model import RunnableModel

SOFTMAXES = frozenset({torch.nn.functional.softmax, torch.softmax, Tensor.softmax})

Noted = Callable[[Tensor, Tensor], None]


@dataclass(frozen=True, eq=False)
class AttentionRun:
    """What one attention did."""

    layer: int
    """The layer whose weights it used."""
    scores: Tensor | None
    """What entered the softmax, mask included: [batch, head, query, key], one more column where there are sinks. None
    where it was not to be kept."""
    pattern: Tensor
    """What came out, without a sink's column: [batch, head, query, key]; rows sum to 1, or to less with sinks."""
    read: Tensor
    """What the query matrix read: [batch, position, d_model], behind the norm where the norm comes before."""
    mixed: Tensor
    """What entered the output matrix: A (x W_V) of all heads side by side, [batch, position, features]."""


@dataclass(frozen=True, eq=False)
class Forward:
    """One run of a model over a batch of sequences of equal length."""

    model: RunnableModel
    tokens: Int[Tensor, "batch position"]
    runs: tuple[AttentionRun, ...]
    states: Float[Tensor, "batch layers position d_model"]
    """The stream entering each layer that has attention."""
    final: Float[Tensor, "batch position d_final"]
    """The state after the last layer, behind the final norm if there is one."""
    logits: Float[Tensor, "batch position token"] | None
    """None for a model without language-model head."""

    def pattern(self) -> Float[Tensor, "batch depth head query key"]:
        """Attention probabilities; rows in [0, 1] that sum to 1 (to less with sinks). Chance: 1 / (i + 1) if causal."""
        return torch.stack([run.pattern for run in self.runs], dim=1)

    def log_pattern(self, place: int | None = None) -> Float[Tensor, "batch *depth head query key"]:
        """Natural logarithms of the attention probabilities, from the scores: exact where a probability is tiny.

        Entries are <= 0; -inf where the mask forbids. All attentions, or only the one at `place`. Where scores were not
        kept, the logarithm of the probability, -inf where that is 0.
        """
        if place is None:
            return torch.stack([self.log_pattern(each) for each in range(len(self.runs))], dim=1)
        scores, pattern = self.runs[place].scores, self.runs[place].pattern
        if scores is None:
            return pattern.log()
        logs = torch.log_softmax(scores.to(torch.promote_types(scores.dtype, torch.float32)), dim=-1)
        logs = logs[..., : pattern.shape[-1]]
        # A mask of large negative numbers instead of -inf leaves finite logarithms of probabilities that are zero.
        lowest = torch.finfo(logs.dtype).min / 4
        return logs.masked_fill(logs < lowest, -torch.inf)

    def mixed_values(self, place: int) -> Float[Tensor, "batch position head d_value"]:
        """A (x W_V) for every head: the values it mixed, before its output matrix."""
        return head_features(self.runs[place].mixed, self.model.stack.projections["O"].rows)

    def head_writes(self, place: int) -> Float[Tensor, "batch position head d_model"]:
        """A (x W_V) W_O: what every head adds to the stream, without the bias that belongs to the layer.

        In a model that norms what its attention writes, this is before that norm.
        """
        W_O = output_matrices(self.model, self.runs[place].layer)
        return torch.einsum("bphv,hvd->bphd", self.mixed_values(place), W_O)

    def write_norms(self) -> Float[Tensor, "batch depth position head"]:
        """||A (x W_V) W_O||, the norm of what every head writes at every position; >= 0.

        Through the small matrices W_O W_O^T, so that no vector of length d_model is formed.
        """
        norms = []
        for place, run in enumerate(self.runs):
            W_O, mixed = output_matrices(self.model, run.layer), self.mixed_values(place)
            squares = torch.einsum("bphv,hvw,bphw->bph", mixed, W_O @ W_O.mT, mixed)
            norms.append(squares.clamp(min=0).sqrt())
        return torch.stack(norms, dim=1)

    def token_losses(self) -> Float[Tensor, "batch position_1"]:
        """-log p of every token after the first, in nats; log(vocabulary) for a uniform guess. Causal models only."""
        if self.logits is None or not self.model.causal:
            raise UnsupportedModel("a loss needs a causal model with a language-model head")
        return token_losses(self.logits, self.tokens)

    def loss(self) -> float:
        """Mean of `token_losses`; its exponential is the perplexity."""
        return float(self.token_losses().double().mean())


def token_losses(logits: Float[Tensor, "batch position token"], tokens: Int[Tensor, "batch position"]) -> Tensor:
    """-log p of every token after the first, in nats: [batch, position - 1]."""
    logs = torch.log_softmax(logits[:, :-1], dim=-1)
    return -logs.gather(-1, tokens[:, 1:, None]).squeeze(-1)


def output_matrices(model: RunnableModel, layer: int) -> Float[Tensor, "head d_value d_model"]:
    """W_O of every head as the running module holds it now."""
    projection, linear = model.stack.projections["O"], model.linear("O", layer)
    weight = linear.get_parameter("weight")
    return head_weights(weight[None], projection.rows, projection.linear.stored, "O")[0]


@torch.no_grad()
def forward(model: RunnableModel, tokens: Int[Tensor, "batch position"], scores: bool = True) -> Forward:
    """Run the model once over these token ids and keep what every attention did.

    Parameters
    ----------
    model
        From `open_runnable`.
    tokens
        Sequences of equal length; `encoded` makes them from text and checks them.
    scores
        Whether to keep what enters the softmax, which takes as much memory again as the patterns.

    Returns
    -------
    Forward
        Patterns and scores of every layer and head, what was read and mixed, states and logits.
    """
    require_run(model, tokens.shape[0], tokens.shape[1], scores)
    placed = tokens.to(model.device)
    recorder = Recorder(model, scores, model.layers)
    with recorder.attach():
        output = model.module(input_ids=placed, output_hidden_states=True, **without_cache(model))
    runs = recorder.runs(tokens.shape[0])
    *entering, final = output.hidden_states
    if len(entering) != model.depth:
        entering = [entering[layer] for layer in model.layers]
    return Forward(model, placed, runs, torch.stack(entering, dim=1), final, getattr(output, "logits", None))


def without_cache(model: RunnableModel) -> dict[str, Any]:
    """The argument that keeps a run from filling a cache, for modules that know it."""
    return {"use_cache": False} if hasattr(model.module.config, "use_cache") and model.causal else {}


class SoftmaxWatch(TorchFunctionMode):
    """A context in which `noted(scores, probabilities)`, where one is set, hears of every softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: Noted | None = None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        result = func(*args, **given)
        if self.noted is not None and func in SOFTMAXES:
            self.noted(args[0] if args else given["input"], result)
        return result


class RunEnds(Exception):
    """Ends a run where the attention that was asked for reaches its output matrix; never seen by a caller."""


@dataclass(eq=False)
class Recorder:
    """Hooks that note what the attentions of a run do."""

    model: RunnableModel
    keep_scores: bool
    layers: tuple[int, ...]
    """Those that are watched."""
    stops: bool = False
    """Whether the first of them ends the run, by `RunEnds`."""
    notes: list[tuple[int, dict[str, Tensor]]] = field(default_factory=list)
    """The layer of each attention that ran, and what was seen of it."""
    watch: SoftmaxWatch = field(default_factory=SoftmaxWatch)

    @contextmanager
    def attach(self) -> Iterator[None]:
        hooks = []
        for layer in self.layers:
            attention = self.model.attention(layer)
            hooks += [
                attention.register_forward_pre_hook(self._opening(layer), with_kwargs=True),
                attention.register_forward_hook(self._closing()),
                self.model.entry("Q", layer).register_forward_pre_hook(self._keeping("read")),
                self.model.linear("O", layer).register_forward_pre_hook(self._keeping("mixed")),
            ]
        try:
            with self.watch:
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def runs(self, batch: int) -> tuple[AttentionRun, ...]:
        """Every attention, checked to have been seen whole; scores and patterns with an axis of heads."""
        expected = 1 if self.stops else len(self.layers) * self.model.stack.repeats
        if len(self.notes) != expected:
            raise UnsupportedModel(f"{expected} attentions were expected to run, {len(self.notes)} did")
        n_heads, sinks = self.model.n_heads, self.model.stack.sinks is not None
        runs = []
        for place, (layer, note) in enumerate(self.notes):
            if not {"pattern", "read", "mixed"} <= set(note):
                raise UnsupportedModel(
                    f"attention {place} of '{self.model.checkpoint.source}' shows no softmax over its scores; "
                    "this model cannot return attentions"
                )
            scores = _by_head(note["scores"], batch, n_heads) if self.keep_scores else None
            pattern = _by_head(note["pattern"], batch, n_heads)
            pattern = pattern[..., :-1] if sinks else pattern
            if not bool(torch.isfinite(pattern).all()):
                raise UnsupportedModel(
                    f"the attention of layer {layer} of '{self.model.checkpoint.source}' is NaN, though its weights "
                    "are finite; look for an epsilon or a rotary base of 0 in config.json"
                )
            runs.append(AttentionRun(layer, scores, pattern, note["read"], note["mixed"]))
        return tuple(runs)

    def _opening(self, layer: int) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            note: dict[str, Tensor] = {}
            self.notes.append((layer, note))
            self.watch.noted = lambda scores, pattern: note.update(
                {"scores": scores, "pattern": pattern} if self.keep_scores else {"pattern": pattern}
            )

        return hook

    def _closing(self) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
            self.watch.noted = None

        return hook

    def _keeping(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            if self.notes:
                self.notes[-1][1].setdefault(name, args[0])
            if self.stops and name == "mixed":
                raise RunEnds

        return hook


def _by_head(scores: Tensor, batch: int, n_heads: int) -> Tensor:
    """Scores with axes [batch, head, query, key], where a family keeps batch and heads on one."""
    if scores.ndim == 3:
        scores = scores.reshape(batch, n_heads, *scores.shape[1:])
    if scores.ndim != 4 or scores.shape[:2] != (batch, n_heads):
        raise UnsupportedModel(f"attention scores of shape {tuple(scores.shape)} were not expected for {n_heads} heads")
    return scores


Logs = Float[Tensor, "batch head query key"]


def full_logs(run: AttentionRun) -> Logs:
    """Log-probabilities of one attention, with the column of its sinks where it has any: rows sum to 1."""
    scores = run.scores
    if scores is None:
        raise HeadspanError("exact divergences need a run that kept its scores; run forward(..., scores=True)")
    logs = torch.log_softmax(scores.double(), dim=-1)
    return logs.masked_fill(logs < torch.finfo(torch.float32).min / 4, -torch.inf)


def row_entropy(logs: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """-sum p log p of distributions given by log p, in nats: 0 to log of the number of keys."""
    return -torch.where(torch.isneginf(logs), 0.0, logs.exp() * logs).sum(-1)


def kl_rows(p: Float[Tensor, "*batch key"], q: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """KL(p || q) of distributions given by their logarithms, in nats: 0 if equal, infinite where q lacks what p has."""
    gaps = torch.where(torch.isneginf(p), 0.0, p.exp() * (p - q))
    return gaps.sum(-1).clamp(min=0)


def js_rows(p: Float[Tensor, "*batch key"], q: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """Jensen-Shannon divergence of distributions given by their logarithms, in nats: in [0, log 2]."""
    middle = torch.logaddexp(p, q) - math.log(2.0)
    return 0.5 * (kl_rows(p, middle) + kl_rows(q, middle))
