r"""Taking single channels out of a running model: from what one head reads, the part that another sent along them.

A channel (`headspan.heads.channels`) has a direction `sent` that the source writes and a direction `received` along
which the destination reads. Of what the source writes at a position, m = y W_O with its mixed values y, the part
a sent with a = m . received / strength travels along the channel. Behind the destination's norm at its scale sigma it
stands as a g * C sent / sigma, and through W_r of the destination it adds a / sigma times one fixed vector. That is
taken from the output of W_r, position by position, as the model runs: for any tokens, also while it writes.

The stream is left alone, and so are all other readers of the source. A key or value is read by all heads of a group, so
that these lose it together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from headspan.dims import COMPOSING, KV_ROLES, ROLES, HeadLabel, Role
from headspan.errors import ArgumentError, UnsupportedModel
from headspan.heads.channels import Channels, check_pair, pair_channels
from headspan.runtime.forward_pass import output_matrices
from headspan.runtime.interventions.ablation import reading_matrix
from headspan.runtime.interventions.edits import Edits, head_slice
from headspan.runtime.interventions.messages import obstacle_to_messages
from headspan.runtime.model import RunnableModel


def reading_role(pairing: str) -> Role:
    """The role through which a pairing's destination reads."""
    return next(role for role in ROLES if role == pairing[1])


def read_head(model: RunnableModel, dst: HeadLabel, role: Role) -> HeadLabel:
    """The head whose matrix reads for a query head: itself, or its kv head."""
    group = model.n_heads // model.stack.n_kv_heads
    return HeadLabel(dst.layer, dst.head // group, kv=True) if role in KV_ROLES and group > 1 else dst


def model_channels(model: RunnableModel, src: HeadLabel, dst: HeadLabel, pairing: str, delta: int = 0) -> Channels:
    """The channels of a pair as the model runs them: with every norm folded in."""
    reason = obstacle_to_messages(model)
    if reason is not None:
        raise UnsupportedModel(f"channels of '{model.checkpoint.source}' cannot be told apart as it runs: {reason}")
    heads = model.heads()
    check_pair(heads, src, dst)
    return pair_channels(heads.folded(), src, dst, pairing, delta)


@dataclass(frozen=True)
class WithoutChannel:
    """A destination that reads nothing of some channels of a source.

    Parameters
    ----------
    src, dst
        Query heads; the source in an earlier layer.
    pairing
        OQ, OK or OV.
    numbers
        Which channels, strongest first from 0.
    """

    src: HeadLabel
    dst: HeadLabel
    pairing: str
    numbers: tuple[int, ...] = (0,)

    @property
    def name(self) -> str:
        first, last = self.numbers[0], self.numbers[-1]
        which = str(first) if first == last else f"{first}-{last}"
        return f"without {self.src}:{self.dst}:{self.pairing}:{which}"

    def apply(self, edits: Edits) -> None:
        model, role = edits.model, reading_role(self.pairing)
        found = model_channels(model, self.src, self.dst, self.pairing)
        if max(self.numbers) >= found.rank:
            raise ArgumentError(f"{self.src}:{self.dst}:{self.pairing} has channels 0 to {found.rank - 1}")
        at, reader = list(self.numbers), read_head(model, self.dst, role)
        W_O = output_matrices(model, self.src.layer)[self.src.head].double()
        amounts = W_O @ (found.received[at] / found.strength[at, None]).mT.to(W_O)
        norm = model.heads().norm(self.dst.layer)
        arriving = norm.gain.double() * _centered(norm.kind, found.sent[at])
        taken = arriving.to(W_O) @ reading_matrix(model, role, reader)
        seen: dict[str, Tensor] = {}
        rows = model.stack.projections["O"].rows
        edits.hooked(
            model.linear("O", self.src.layer).register_forward_pre_hook(_note_amounts(seen, rows, self.src, amounts))
        )
        edits.hooked(
            _norm_module(model, self.dst.layer).register_forward_pre_hook(_note_scale(seen, norm.kind, norm.eps))
        )
        own = model.stack.projections[role].rows
        hook = _taking(seen, own, reader.head, taken)
        edits.hooked(model.linear(role, self.dst.layer).register_forward_hook(hook))

    def notes(self, model: RunnableModel) -> tuple[str, ...]:
        role, group = reading_role(self.pairing), model.n_heads // model.stack.n_kv_heads
        shared = role in KV_ROLES and group > 1
        return (
            (f"W_{role} of {self.dst} is shared by {group} heads, which lose the channel together",) if shared else ()
        )


def _centered(kind: str, x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True) if kind == "layernorm" else x


def _norm_module(model: RunnableModel, layer: int) -> nn.Module:
    """The module of the norm before a layer's attention."""
    key = model.stack.key(layer)
    for template in model.stack.norm.weight:
        name = template.format(layer=key).rpartition(".")[0]
        try:
            return model.submodule(name)
        except (AttributeError, UnsupportedModel):
            continue
    raise UnsupportedModel(f"the norm before layer {layer} is not a module of its own")


def _note_amounts(seen: dict[str, Tensor], rows: Any, src: HeadLabel, amounts: Tensor) -> Callable[..., None]:
    def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
        mixed = head_slice(args[0], rows, src.head).double()
        seen["amounts"] = mixed @ amounts

    return hook


def _note_scale(seen: dict[str, Tensor], kind: str, eps: float) -> Callable[..., None]:
    def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
        stream = _centered(kind, args[0].double())
        seen["inverse_sigma"] = (stream.square().mean(-1, keepdim=True) + eps).rsqrt()

    return hook


def _taking(
    seen: dict[str, Tensor], rows: Any, head: int, taken: Float[Tensor, "channel d_head"]
) -> Callable[..., Any]:
    def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        changed = output.clone()
        own = head_slice(changed, rows, head)
        own.sub_(((seen["amounts"] * seen["inverse_sigma"]) @ taken).to(own))
        return changed

    return hook


def parsed_channel(text: str) -> WithoutChannel:
    """A removal from `L0H3:L1H6:OK:0`, or `L0H3:L1H6:OK:0-7` for several channels."""
    parts = [part.strip() for part in text.split(":")]
    numbers = _numbers(parts[3]) if len(parts) == 4 else None
    if numbers is None or parts[2].upper() not in COMPOSING:
        raise ArgumentError(
            f"{text!r} is no channel; write it like L0H3:L1H6:OK:0, or L0H3:L1H6:OK:0-7 for the eight strongest"
        )
    return WithoutChannel(HeadLabel.parse(parts[0]), HeadLabel.parse(parts[1]), parts[2].upper(), numbers)


def _numbers(text: str) -> tuple[int, ...] | None:
    ends: Sequence[str] = text.split("-")
    if len(ends) > 2 or not all(end.isdecimal() and len(end) < 6 for end in ends):
        return None
    found = tuple(range(int(ends[0]), int(ends[-1]) + 1))
    return found or None
