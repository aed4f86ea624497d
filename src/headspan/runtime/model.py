"""A model that can be run: its module, tokenizer and description in one record."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from headspan.checkpoint import Checkpoint, StoredStack, open_checkpoint
from headspan.checkpoint.families import Stack
from headspan.dims import Role
from headspan.errors import ArgumentError, UnknownTokens, UnsupportedModel
from headspan.heads import Heads
from headspan.runtime import checkpoint_obstacle
from headspan.runtime.budget import cache_limit, require_model
from headspan.runtime.module import load_module, load_tokenizer, require_transformers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


LEAST_KNOWN = 0.1
"""Share of a model's tokens that its tokenizer knows at least."""
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True, eq=False, repr=False)
class RunnableModel:
    """A causal language model or an encoder, ready to run. Made by `open_runnable`."""

    checkpoint: Checkpoint
    stored: StoredStack
    module: PreTrainedModel
    """Eager attention, in eval mode, parameters without gradients; its weights may be changed, see `interventions`."""
    tokenizer: PreTrainedTokenizerBase | None
    tokenizer_problem: str = ""
    """Why there is no tokenizer; empty where there is one."""

    def __repr__(self) -> str:
        return f"RunnableModel({self.checkpoint.source!r}, {self.depth} layers x {self.n_heads} heads)"

    @property
    def stack(self) -> Stack:
        return self.stored.stack

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that have attention, by number: all of them but in hybrids."""
        return self.stored.attention_layers

    @property
    def depth(self) -> int:
        """How many attentions run, one after another; more than `layers` where layers are shared (ALBERT)."""
        return len(self.layers) * self.stack.repeats

    @property
    def layer_numbers(self) -> tuple[int, ...]:
        """The number under which each attention that runs is shown: its layer, or its place where layers are shared."""
        return self.layers if self.stack.repeats == 1 else tuple(range(self.depth))

    @property
    def n_heads(self) -> int:
        return self.stack.n_heads

    @property
    def causal(self) -> bool:
        return self.stack.causal

    @property
    def n_tokens(self) -> int:
        """Rows of the token table: ids below this number can be looked up."""
        return int(self.module.get_input_embeddings().get_parameter("weight").shape[0])

    @property
    def writes(self) -> bool:
        """Whether it is a causal model with a language-model head, which can continue a text."""
        module: Any = self.module
        return self.causal and module.get_output_embeddings() is not None

    @property
    def device(self) -> torch.device:
        return self.module.device

    @property
    def max_context(self) -> int | None:
        """Positions the model knows; None where its positions have no end (ALiBi, relative)."""
        return _max_context(self.checkpoint, self.stored)

    def heads(self) -> Heads:
        """The same model's weights as stored, for lenses."""
        found = self.checkpoint.heads(stack=self.stack.name)
        found.cache.limit = cache_limit(found.cache.limit)
        return found

    def linear(self, role: Role, layer: int) -> nn.Module:
        """The module that holds a role's matrix in the running model; fused roles share one."""
        return self.submodule(self.stored.role_linear(role, layer).weight.rpartition(".")[0])

    def entry(self, role: Role, layer: int) -> nn.Module:
        """The module that first reads the stream on a role's behalf: its own matrix, or that of its latent space."""
        latent = self.stack.projections[role].latent
        if latent is None:
            return self.linear(role, layer)
        return self.submodule(self.stored.at_layer(latent.linear, layer).weight.rpartition(".")[0])

    def attention(self, layer: int) -> nn.Module:
        """The module inside which a layer's softmax is taken."""
        return self.submodule(self.stored.role_linear("V", layer).weight.rpartition(".")[0].rpartition(".")[0])

    def submodule(self, name: str) -> nn.Module:
        """A module by its name relative to the model's root, as family descriptions spell it."""
        found = self._modules.get(self._prefix + name)
        if found is None:
            raise UnsupportedModel(
                f"the running {self.checkpoint.family} has no module '{self._prefix}{name}', where its weights are "
                "stored; headspan cannot follow this layout"
            )
        return found

    @cached_property
    def _modules(self) -> dict[str, nn.Module]:
        return dict(self.module.named_modules())

    @cached_property
    def _prefix(self) -> str:
        """What the running model puts before the names of the description; a checkpoint may put something else."""
        layer = self.stored.attention_layers[0]
        name = self.stored.role_linear("Q", layer).weight.rpartition(".")[0]
        ending = [own for own in self._modules if own == name or own.endswith(f".{name}")]
        return min(ending, key=len).removesuffix(name) if ending else ""

    def provenance(self) -> dict[str, str]:
        """Where a result of running this model comes from, as flat attributes of a Dataset."""
        return {
            **self.heads().provenance(),
            "dtype": str(self.module.dtype).removeprefix("torch."),
            "run_by": _version(),
        }


def open_runnable(
    source: Any,
    *,
    config: Any = None,
    dtype: str = "float32",
    device: str = "cpu",
    stack: str | None = None,
    tokenizer: Any = None,
) -> RunnableModel:
    """Open a model for running, through `transformers` (the extra `headspan[run]`).

    Parameters
    ----------
    source
        Anything `open_checkpoint` takes, or a Checkpoint.
    config
        A config for a source that has none of its own.
    dtype
        "float32" or "float64": what is computed in, whatever is stored.
    device
        Where: cpu, cuda, cuda:1.
    stack
        Which stack, for a model with several; only causal language models and text encoders can be run.
    tokenizer
        A `transformers` tokenizer, in place of the one beside the weights.
    """
    checkpoint = source if isinstance(source, Checkpoint) else open_checkpoint(source, config)
    if dtype not in DTYPES:
        raise ArgumentError(f"dtype needs to be {' or '.join(DTYPES)}, found {dtype!r}")
    try:
        place = torch.device(device)
    except RuntimeError as problem:
        raise ArgumentError(f"device needs to be like cpu, cuda or cuda:1, found {device!r}") from problem
    reason = checkpoint_obstacle(checkpoint, stack)
    if reason is not None:
        raise UnsupportedModel(f"'{checkpoint.source}' cannot be run: {reason}")
    stored = checkpoint.stack(stack)
    require_model(checkpoint, DTYPES[dtype])
    module = load_module(checkpoint, stored, DTYPES[dtype], place)
    own, problem_text = (tokenizer, "") if tokenizer is not None else load_tokenizer(checkpoint)
    model = RunnableModel(checkpoint, stored, module, own, problem_text)
    # A tokenizer that was given is the caller's choice.
    mismatch = None if own is None or tokenizer is not None else _mismatch(own, model.n_tokens)
    if mismatch is None:
        return model
    problem_text = f"the tokenizer beside the weights does not fit: {mismatch}"
    warnings.warn(f"'{checkpoint.source}' is run without tokenizer: {problem_text}", UnknownTokens, stacklevel=2)
    return replace(model, tokenizer=None, tokenizer_problem=problem_text)


def _mismatch(tokenizer: PreTrainedTokenizerBase, n_tokens: int) -> str | None:
    """Why a tokenizer cannot be that of a model; None where it may. Tables are padded, so it may know fewer tokens."""
    known = len(tokenizer)
    if known < LEAST_KNOWN * n_tokens or known <= len(set(tokenizer.all_special_ids)):
        return f"it knows {known} tokens, the model has {n_tokens}"
    return None


def _max_context(checkpoint: Checkpoint, stored: StoredStack) -> int | None:
    table = stored.stack.position_table
    if table is not None:
        return stored.names.require(*table.names).shape[0] - table.unused_rows
    if stored.stack.positions in ("alibi", "relative", "none"):
        return None
    stated = checkpoint.config.get("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
    return stated if isinstance(stated, int) else None


def _version() -> str:
    return f"transformers {require_transformers().__version__}"
