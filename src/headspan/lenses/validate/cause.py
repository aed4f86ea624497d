r"""Does affinity say what causes what? Take a source's message from one target, at equal read energy.

For a target t that reads through the role r (Q, K or V), and a group of heads of one earlier layer:

1. The message v of each source stands in the input of t (`runtime.interventions.messages`); v W_r of it arrives. Its
   *read energy* is sum |v W_r|^2 over all tokens.
2. All messages are scaled to one read energy, that of the message which t reads most. One at a time they are taken
   from the input of that one matrix; all other readers, and t through its other roles, keep them.
3. Effects: `pattern_change`, the Jensen-Shannon divergence of the target's attention rows from before, in nats, mean
   over queries (none for V, which reads no pattern); `loss_change`, the change of the mean token loss, in nats.

A source of high affinity is read more, so that removing its message does more: that holds by algebra, in untrained
weights too. At equal read energy it does not, and what is left is whether the target *responds* to what this source
says more than to what other heads of its layer say. `headspan.lenses.validate.contrast` tests it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.dims import HeadLabel
from headspan.lenses.validate.contrast import OUTCOMES, additive_fit
from headspan.lenses.validate.selection import SCORES, Block
from headspan.runtime import Forward, RunnableModel
from headspan.runtime.forward_pass import AttentionRun, full_logs, js_rows
from headspan.runtime.interventions import head_space, intervened
from headspan.runtime.interventions.ablation import reading_matrix
from headspan.runtime.interventions.messages import (
    NormedStream,
    WithoutMessage,
    arriving_message,
    obstacle_to_messages,
    readable_part,
)
from headspan.runtime.replay import Replay

Array = npt.NDArray[np.float64]
Messages = Float[Tensor, "source batch position d_model"]
COLUMNS = (
    *("pairing", "src", "dst", "drawn", "read_share", "scale", "pattern_change", "loss_change", "loss_size"),
    *("pattern_expected", "loss_expected", *SCORES, "chosen", "block"),
)
MOST_LOGITS = 50_000_000
"""Logits of one run: more sources than fit are run one after another."""


def causal_effects(plain: Forward, blocks: Sequence[Block], progress: Callable[[str], None]) -> pd.DataFrame:
    """One row per block, source and target: scores, how the message is read, and the effects of taking it away."""
    streams: dict[int, NormedStream] = {}
    replay = Replay.of(plain)
    rows = []
    for number, block in enumerate(blocks):
        layer = block.targets[0].layer
        progress(f"{block.pairing}: layer {block.sources[0].layer} to layer {layer}")
        if layer not in streams:
            streams[layer] = NormedStream.of(plain, layer)
        rows.append(_block_rows(replay, streams[layer], block).assign(block=number))
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=COLUMNS)


def _block_rows(replay: Replay, stream: NormedStream, block: Block) -> pd.DataFrame:
    messages = torch.stack([arriving_message(replay.plain, stream, source) for source in block.sources])
    columns = [_target_effects(replay, messages, block, target) for target in block.targets]
    found: dict[str, npt.NDArray[Any]] = {
        name: np.stack([column[name] for column in columns], axis=1) for name in columns[0]
    }
    for outcome, (expected, floor) in OUTCOMES.items():
        found[expected] = np.exp(additive_fit(np.log(np.maximum(found[outcome], floor))))
    found |= {**dict(zip(SCORES, block.scores, strict=True)), "chosen": block.chosen}
    names = [[str(label) for label in side] for side in (block.sources, block.targets)]
    src, dst = np.meshgrid(*(np.array(side, dtype=object) for side in names), indexing="ij")
    return pd.DataFrame(
        {"pairing": block.pairing, "src": src.ravel(), "dst": dst.ravel(), "drawn": block.drawn}
        | {name: values.ravel() for name, values in found.items()}
    )


def _target_effects(replay: Replay, messages: Messages, block: Block, target: HeadLabel) -> dict[str, Array]:
    """Of every source for one target; effects are NaN where nothing is read of some source."""
    model, role = replay.plain.model, block.role
    read = (messages @ reading_matrix(model, role, target).to(messages)).square().sum((1, 2, 3))
    seen = readable_part(messages, head_space(model, target, role)).square().sum((1, 2, 3))
    scale = (read.max() / read).sqrt()
    pattern = loss = np.full(len(messages), math.nan)
    if bool(torch.isfinite(scale).all()):
        pattern, loss = _effects(replay, block, target, messages * scale[:, None, None, None])
    return {
        "read_share": (seen / messages.square().sum((1, 2, 3))).cpu().numpy(),
        "scale": scale.nan_to_num(math.nan, posinf=math.nan).cpu().numpy(),
        "pattern_change": pattern,
        "loss_change": loss,
        "loss_size": np.abs(loss),
    }


def _effects(replay: Replay, block: Block, target: HeadLabel, removed: Messages) -> tuple[Array, Array]:
    """Change of the target's pattern and of the loss for every message that is taken away, several in one run."""
    plain, model = replay.plain, replay.plain.model
    width = max(1, MOST_LOGITS // (plain.tokens.numel() * model.n_tokens))
    scored = model.causal and plain.logits is not None
    patterns, losses = [], []
    for some in torch.split(removed, width):
        with intervened(model, WithoutMessage(target, block.role, some.flatten(0, 1))):
            run, logits = replay.run(target.layer, len(some), to_the_end=scored)
        nothing = torch.full((len(some),), math.nan, dtype=torch.float64)
        patterns.append(nothing if block.role == "V" else _pattern_changes(run, plain, target))
        losses.append(nothing if logits is None else replay.loss_changes(logits))
    return torch.cat(patterns).cpu().numpy(), torch.cat(losses).cpu().numpy()


def _pattern_changes(run: AttentionRun, plain: Forward, target: HeadLabel) -> Float[Tensor, " source"]:
    """Mean Jensen-Shannon divergence of the target's rows, in nats; of all its readers where it is a kv head."""
    model, place = plain.model, plain.model.layers.index(target.layer)
    group = model.n_heads // model.stack.n_kv_heads if target.kv else 1
    heads = slice(target.head * group, (target.head + 1) * group)
    first = 1 if model.causal else 0
    after, before = (full_logs(each)[:, heads, first:] for each in (run, plain.runs[place]))
    after = after.reshape(-1, *before.shape)
    return js_rows(before.expand_as(after), after).mean((1, 2, 3))


def obstacle_to_cause(model: RunnableModel) -> str | None:
    """Why causes cannot be measured in this model; None where they can."""
    if len(model.layers) < 2:
        return "nothing composes: there is only one layer"
    if model.n_heads < 2:
        return "its layers have one head each, so that there is no other source to compare with"
    return obstacle_to_messages(model)
