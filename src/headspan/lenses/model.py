"""A model as lenses see it: its checkpoint, its heads, and the running model, each opened once."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any, cast

from headspan.checkpoint import Checkpoint, open_checkpoint
from headspan.errors import ArgumentError, FoldError, NotRun, UnsupportedModel
from headspan.lenses.catalog import lenses

if TYPE_CHECKING:
    from headspan.checkpoint import StoredStack
    from headspan.dims import Fold
    from headspan.heads import Heads
    from headspan.result import Lens
    from headspan.runtime import RunnableModel

MOST_PARAMETERS = 1_000_000_000
"""Larger models are not run without being asked for: it would take hours, or more memory than there is."""


class Model:
    """What `headspan.open` returns; every lens takes it.

    >>> import headspan
    >>> model = headspan.open("demo")
    >>> model.heads().W_Q.shape
    torch.Size([2, 8, 128, 16])
    """

    def __init__(
        self, checkpoint: Checkpoint, heads: Heads | None = None, running: RunnableModel | None = None
    ) -> None:
        self.checkpoint = checkpoint
        self._chosen = heads
        self._heads: dict[tuple[Any, ...], Heads] = {}
        self._running: dict[tuple[Any, ...], RunnableModel] = {}
        self._given = running

    @property
    def source(self) -> str:
        """The path or name it was opened by."""
        return self.checkpoint.source

    @property
    def family(self) -> str:
        return self.checkpoint.family

    @property
    def stacks(self) -> tuple[str, ...]:
        """The stacks it has; one, but in models with an encoder and a decoder."""
        return tuple(self.checkpoint.stacks)

    @property
    def has_chosen_heads(self) -> bool:
        """Whether it stands for heads that were given, of one stack."""
        return self._chosen is not None

    def stored(self, stack: str | None = None) -> StoredStack:
        """What the checkpoint holds of a stack: of the one named, of the heads that were given, or of the only one."""
        if stack is None and self._chosen is not None:
            return self._chosen.reader.stored
        return self.checkpoint.stack(stack)

    def heads(
        self,
        *,
        stack: str | None = None,
        fold: str = "none",
        dtype: Any = None,
        device: Any = "cpu",
        layers: Any = None,
        center: bool = False,
    ) -> Heads:
        """Every head's weights, lazily; the same object for the same choices.

        Parameters
        ----------
        stack
            Which stack, for a model with several.
        fold, center
            "layernorm" multiplies the norm before the attention into W_Q, W_K and W_V; `center` also removes what
            LayerNorm discards.
        dtype, device, layers
            Precision and place of the weights, and which layers; as stored, on the CPU, all.
        """
        if self._chosen is not None:
            return self._changed(self._chosen, stack, fold, dtype, center)
        key = (stack, fold, str(dtype), str(device), None if layers is None else tuple(layers), center)
        if key not in self._heads:
            self._heads[key] = self.checkpoint.heads(
                layers=layers,
                dtype=dtype,
                device=device,
                fold=cast("Fold", fold),  # checked where it is used
                center=center,
                stack=stack,
            )
        return self._heads[key]

    def allowed_fold(self, fold: str, stack: str | None = None) -> str:
        """A lens's own fold state where this model allows it, else "none"; heads that were given keep theirs."""
        if fold == "none" or self._chosen is not None:
            return "none"
        from headspan.heads.norms import checked_fold

        try:
            return checked_fold(self.checkpoint.stack(stack), fold, False, self.family)
        except FoldError:
            return "none"

    @staticmethod
    def _changed(heads: Heads, stack: str | None, fold: str, dtype: Any, center: bool) -> Heads:
        """The heads that were given to a lens, with what the call asks for beyond them."""
        if stack is not None and stack != heads.stack.name:
            raise ArgumentError(f"stack={stack!r} was asked for, and the heads given are of {heads.stack.name!r}")
        if fold != "none" and fold != heads.fold:
            heads = heads.refolded(fold, center)
        return heads if dtype is None else heads.to(dtype)

    def running(
        self, *, stack: str | None = None, dtype: str = "float32", device: str = "cpu", unasked: bool = False
    ) -> RunnableModel:
        """The model, ready to run, through `transformers`; loaded once.

        With `unasked` (a report, a sweep) a model that is large or not at hand is refused with `NotRun`.
        """
        if self._given is not None:
            return self._given
        from headspan.runtime import open_runnable

        if unasked:
            reason = self.run_obstacle(stack) or self.unasked_obstacle()
            if reason is not None:
                raise NotRun(reason)
        name = self._chosen.stack.name if self._chosen is not None and stack is None else stack
        key = (name, dtype, device)
        if key not in self._running:
            try:
                self._running[key] = open_runnable(self.checkpoint, stack=name, dtype=dtype, device=device)
            except UnsupportedModel as problem:
                raise (NotRun(str(problem)) if unasked else problem) from problem
        return self._running[key]

    def run_obstacle(self, stack: str | None = None) -> str | None:
        """Why the model cannot be run, in one line; None where it can."""
        from headspan.runtime import run_obstacle

        return None if self._given is not None else run_obstacle(self.checkpoint, stack)

    def unasked_obstacle(self) -> str | None:
        """Why a report or a sweep does not run the model, in one line; None where it does."""
        n_parameters = sum(prod(info.shape) for info in self.checkpoint.store.infos.values())
        if n_parameters > MOST_PARAMETERS:
            return f"models of more than {MOST_PARAMETERS:,} parameters are run only by the lens's own command"
        if self.checkpoint.store.bytes_transferred is not None:
            return "running it would fetch the whole model from the Hub; use the lens's own command for that"
        return None

    def skip_reasons(self, stack: str | None = None) -> Mapping[str, str | None]:
        """For every lens of one checkpoint, None if it applies, else the reason why not."""
        stored, running = self.checkpoint.stack(stack), self.run_obstacle(stack)
        return {
            name: each.skip_reason(stored) or _run_reason(each, stored.parts, running)
            for name, each in lenses().items()
            if each.subjects == 1
        }

    def __repr__(self) -> str:
        lines = [f"<headspan model {self.source}>"]
        for name, stored in self.checkpoint.stacks.items():
            stack, which = stored.stack, f" {name}" if len(self.stacks) > 1 else ""
            shared = f" on {stack.n_kv_heads} kv heads" if stack.n_kv_heads < stack.n_heads else ""
            lines.append(
                f"  {self.family}{which}: {stack.n_layers} layers x {stack.n_heads} heads{shared}, "
                f"d_model {stack.d_model}, d_head {stack.d_head}, {stack.positions} positions"
            )
            reasons = self.skip_reasons(name)
            lines.append(f"  applies: {', '.join(lens for lens, reason in reasons.items() if reason is None)}")
            lines += [f"  {lens}: {reason}" for lens, reason in reasons.items() if reason is not None]
        return "\n".join(lines)


def _run_reason(lens: Lens, parts: frozenset[str], running: str | None) -> str | None:
    """What keeps a lens from what it needs of a running model, given what keeps the model from running."""
    lacking = sorted(lens.without_running - parts)
    if running is None or not (lens.runs or lacking):
        return None
    return running if lens.runs else f"needs {lacking[0]} or a model that runs: {running}"


def open_model(source: Any, config: Any = None) -> Model:
    """Open a model without reading its weights.

    Parameters
    ----------
    source
        A checkpoint folder or weight file, a name on the Hub (org/name, org/name@revision), "demo",
        synthetic:SHAPE, a `transformers` model in memory, `(state_dict, config)`, a Checkpoint, Heads or a Model.
    config
        A config for a source that has none of its own.

    >>> import headspan
    >>> headspan.open("demo").family
    'llama'
    """
    if isinstance(source, Model):
        return source
    if isinstance(source, Checkpoint):
        return Model(source)
    if type(source).__module__.startswith("headspan."):
        return _opened(source)
    return Model(open_checkpoint(source, config))


def _opened(source: Any) -> Model:
    """A model out of heads, or out of one that is ready to run; these load torch, which reading headers does not."""
    from headspan.heads import Heads
    from headspan.runtime import RunnableModel

    if isinstance(source, Heads):
        return Model(source.checkpoint, heads=source)
    if isinstance(source, RunnableModel):
        return Model(source.checkpoint, running=source)
    return Model(open_checkpoint(source))
