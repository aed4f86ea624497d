r"""Does affinity say what causes what? Take one head's message from one reader, and see what changes.

For a source s in an earlier layer and a target t that reads through the role r (Q, K or V):

1. The message v of s stands in the input of t (`runtime.interventions.messages`), P v of it is what t reads through r.
2. P v is taken from the input of that one matrix; all other readers, and t through its other roles, keep it.
   By algebra the target then reads as if the source had written nothing at all for it.
3. Effects: `pattern_change`, the Jensen-Shannon divergence of the target's attention rows from before, in nats, mean
   over queries (0 for V, which reads no pattern); `loss_change`, the rise of the mean token loss, in nats.
4. Control: as much energy of the same message along random directions of the source's write space, several draws.
   A pair that shares much energy changes much whatever the directions are; what the read space explains beyond that is
   `excess`, the effect less the mean effect of its controls. Where the target reads all of the message, the control
   removes all of it too, and the excess is 0.

Over pairs, Spearman's correlation of each score with each effect says whether the score ranks causes: in [-1, 1], 0 for
scores that say nothing. Intervals come from resampling pairs; pairs share heads, so they are, if anything, too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from headspan.lenses.validate.selection import SCORES, Pair
from headspan.runtime import Forward, RunnableModel, forward
from headspan.runtime.forward_pass import full_logs, js_rows
from headspan.runtime.interventions import head_space, intervened
from headspan.runtime.interventions.messages import (
    Message,
    NormedStream,
    WithoutMessage,
    arriving_message,
    control_part,
    obstacle_to_messages,
    readable_part,
)
from headspan.statistics import quantile_interval, spearman

Array = npt.NDArray[np.float64]
OUTCOMES = ("pattern_change", "pattern_excess", "loss_size", "loss_excess", "removed_share")
SAMPLES = ("strong and weak", "random")
FEWEST_PAIRS = 5


def causal_effects(
    plain: Forward, pairs: Sequence[Pair], controls: int, seed: int, progress: Callable[[str], None]
) -> pd.DataFrame:
    """One row per pair: its scores, what was removed, and the effects of the removal and of its controls."""
    streams: dict[int, NormedStream] = {}
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for pair in pairs:
        progress(f"{pair.src} to {pair.dst} through {pair.role}")
        if pair.dst.layer not in streams:
            streams[pair.dst.layer] = NormedStream.of(plain, pair.dst.layer)
        rows.append(_row(plain, streams[pair.dst.layer], pair, controls, generator))
    return pd.DataFrame(rows)


def _row(plain: Forward, stream: NormedStream, pair: Pair, controls: int, generator: torch.Generator) -> dict[str, Any]:
    model = plain.model
    message = arriving_message(plain, stream, pair.src)
    read = readable_part(message, head_space(model, pair.dst, pair.role))
    energy, total = float(read.square().sum()), float(message.square().sum())
    pattern, loss = _effect(plain, pair, read)
    space = stream.write_space(model, pair.src)
    others = [_effect(plain, pair, control_part(message, space, energy, generator)) for _ in range(controls)]
    control_pattern, control_loss = (float(np.mean([each[i] for each in others])) for i in (0, 1))
    control_size = float(np.mean([abs(each[1]) for each in others]))
    return {
        "pairing": pair.pairing,
        "src": str(pair.src),
        "dst": str(pair.dst),
        "chosen": pair.chosen,
        "drawn": pair.drawn,
        **dict(zip(SCORES, pair.scores, strict=True)),
        "removed_share": energy / total if total > 0 else math.nan,
        "pattern_change": pattern,
        "pattern_control": control_pattern,
        "pattern_excess": pattern - control_pattern,
        "loss_change": loss,
        "loss_control": control_loss,
        "loss_size": abs(loss),
        "loss_excess": abs(loss) - control_size,
    }


def _effect(plain: Forward, pair: Pair, removed: Message) -> tuple[float, float]:
    """Change of the target's pattern and of the loss when something is taken from what the target reads."""
    model = plain.model
    with intervened(model, WithoutMessage(pair.dst, pair.role, removed)):
        run = forward(model, plain.tokens)
    scored = model.causal and run.logits is not None
    return pattern_change(run, plain, pair), run.loss() - plain.loss() if scored else math.nan


def pattern_change(run: Forward, plain: Forward, pair: Pair) -> float:
    """Mean Jensen-Shannon divergence of the target's rows, in nats; of all its readers where it is a kv head."""
    if pair.role == "V":
        return math.nan
    model, place = plain.model, plain.model.layers.index(pair.dst.layer)
    group = model.n_heads // model.stack.n_kv_heads if pair.dst.kv else 1
    heads = slice(pair.dst.head * group, (pair.dst.head + 1) * group)
    first = 1 if model.causal else 0
    after, before = (full_logs(each, place)[:, heads, first:] for each in (run, plain))
    return float(js_rows(before, after).mean())


def rankings(effects: pd.DataFrame, draws: int, seed: int) -> pd.DataFrame:
    """Spearman's correlation of every score with every outcome, per pairing and sample, with bootstrap intervals."""
    generator = np.random.default_rng(seed)
    rows = []
    for pairing, group in effects.groupby("pairing", sort=False):
        for sample in SAMPLES:
            own = group[group["drawn"] if sample == "random" else group["chosen"].isin(["strong", "weak"])]
            for score in SCORES:
                for outcome in OUTCOMES:
                    known = own[[score, outcome]].dropna().to_numpy(np.float64)
                    value, low, high = _rank_correlation(known, draws, generator)
                    names = {"pairing": str(pairing), "sample": sample, "score": score, "outcome": outcome}
                    rows.append({**names, "spearman": value, "low": low, "high": high, "pairs": len(known)})
    return pd.DataFrame(rows)


def _rank_correlation(values: Array, draws: int, generator: np.random.Generator) -> tuple[float, float, float]:
    if len(values) < FEWEST_PAIRS or (np.ptp(values, axis=0) == 0).any():
        return math.nan, math.nan, math.nan
    index = generator.integers(len(values), size=(draws, len(values)))
    low, high = quantile_interval(spearman(*np.moveaxis(values[index], -1, 0)))
    return float(spearman(*values.T)), low, high


def obstacle_to_cause(model: RunnableModel) -> str | None:
    """Why causes cannot be measured in this model; None where they can."""
    if len(model.layers) < 2:
        return "nothing composes: there is only one layer"
    return obstacle_to_messages(model)
