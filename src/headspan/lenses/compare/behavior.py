"""What a change of weights does when both models run on the same tokens.

1. Tokens: windows of a text, or what the first model itself writes (its own loss is then its entropy, and the change of
   the loss an estimate of KL(before || after) per token); repeated random tokens for an encoder.
2. Per head the Jensen-Shannon divergence of attention rows before and after, mean over tokens; of the whole model the
   relative change of its final states and, for a causal language model, the loss of every next token before and after,
   with an interval over sequences.
3. The null: the first model with a random change of the same size on every parameter that changed, run on the same
   tokens; `draws` times. Divergence and state change are compared as logarithms, which are nearer to normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headspan.dims import HEAD, LAYER
from headspan.runtime import Forward, RunnableModel, forward
from headspan.runtime.buffers import require_context, text_windows, token_buffers
from headspan.runtime.forward_pass import full_logs, js_rows
from headspan.statistics import mean_interval, prediction_tail, q_values, z_score
from headspan.subspaces.random_changes import random_change

AT_ONCE = 8
"""Sequences per run of a model."""
WORDS = {"sampled": "tokens that the first model writes", "repeated": "repeated random tokens"}


@dataclass(frozen=True, eq=False)
class _Shift:
    """How one model differs from the first on the same tokens."""

    divergence: np.ndarray
    """[depth, head], nats, mean over tokens."""
    state_change: float
    losses: np.ndarray | None
    """Mean loss of every sequence, nats per token."""


def behavior_node(
    running: Sequence[RunnableModel | str],
    *,
    text: str | None,
    sequences: int,
    length: int,
    noise: str,
    draws: int,
    seed: int,
) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    """`behavior`, and what it was measured on; or an attribute that says why it was not."""
    obstacle = next((one for one in running if isinstance(one, str)), None)
    models = [one for one in running if isinstance(one, RunnableModel)]
    obstacle = obstacle or _unlike(*models)
    if obstacle is not None:
        return {}, {"behavior_left_out": obstacle}
    before, after = models
    tokens, words = _tokens(before, text, sequences, length, seed)
    starts = range(0, len(tokens), AT_ONCE)
    plain = [forward(before, tokens[start : start + AT_ONCE]) for start in starts]
    seen = _shift(plain, after)
    twin = replace(before, module=deepcopy(before.module))
    drawn = []
    for draw in range(draws):
        state = np.random.SeedSequence([seed, draw]).generate_state(1)
        _draw_weights(twin, before, after, noise, torch.Generator().manual_seed(int(state[0])))
        drawn.append(_shift(plain, twin))
    own = None if seen.losses is None else np.concatenate([run.token_losses().double().mean(1).cpu() for run in plain])
    variables = _variables(seen, drawn, own)
    node = xr.Dataset(variables, coords={LAYER: list(before.layer_numbers)})
    told = f"{words}, {len(tokens)} sequences of {tokens.shape[1]} tokens"
    return {"behavior": node}, {"behavior_on": told}


def _unlike(before: RunnableModel, after: RunnableModel) -> str | None:
    """Why two running models cannot be changed into one another; None where they can."""
    shapes = [{name: one.shape for name, one in model.module.named_parameters()} for model in (before, after)]
    if shapes[0] == shapes[1]:
        return None
    differing = sorted(name for name in {*shapes[0], *shapes[1]} if shapes[0].get(name) != shapes[1].get(name))
    return f"the running models differ in {len(differing)} parameters, such as '{differing[0]}'"


def _tokens(model: RunnableModel, text: str | None, sequences: int, length: int, seed: int) -> tuple[Tensor, str]:
    require_context(model, length)
    if text is not None:
        return text_windows(model, text, sequences, length, seed), "a text"
    kind, tokens = token_buffers(model, None, sequences, length, seed)
    return tokens, WORDS[kind]


def _shift(plain: Sequence[Forward], model: RunnableModel) -> _Shift:
    """What `model` does otherwise on the tokens of these runs."""
    rows, states, losses = [], [], []
    for run in plain:
        other = forward(model, run.tokens)
        depth = range(len(run.runs))
        found = torch.stack([_divergence(full_logs(run.runs[place]), full_logs(other.runs[place])) for place in depth])
        # The first token of a causal model attends to itself, whatever the weights are.
        rows.append(found[..., 1:] if model.causal and found.shape[-1] > 1 else found)
        norms = [torch.linalg.vector_norm(state.double(), dim=-1) for state in (other.final - run.final, run.final)]
        states.append((norms[0] / norms[1]).mean(1))
        if model.writes:
            losses.append(other.token_losses().double().mean(1).cpu())
    divergence = torch.cat(rows, dim=1).mean((1, 3)).numpy(force=True)
    return _Shift(divergence, float(torch.cat(states).mean()), np.concatenate(losses) if losses else None)


def _divergence(first: Tensor, second: Tensor) -> Tensor:
    """Jensen-Shannon divergence of rows; exactly 0 for equal ones, of which rounding would leave something."""
    return torch.where((first == second).all(-1), 0.0, js_rows(first, second))


@torch.no_grad()
def _draw_weights(
    twin: RunnableModel, before: RunnableModel, after: RunnableModel, noise: str, generator: torch.Generator
) -> None:
    """Give the twin the weights of `before` with a random change of the size of that to `after`."""
    triples = zip(*(model.module.parameters() for model in (twin, before, after)), strict=True)
    for own, first, second in triples:
        change = second - first
        if bool(change.any()):
            flat = change.reshape(change.shape[0], -1) if change.ndim > 1 else change[None]
            own.copy_(first + random_change(flat, noise, generator).reshape(change.shape))


def _variables(seen: _Shift, drawn: Sequence[_Shift], own: np.ndarray | None) -> dict[str, Any]:
    divergence = _on_logs(seen.divergence, np.stack([one.divergence for one in drawn]))
    out: dict[str, Any] = {f"divergence{part}": ((LAYER, HEAD), values) for part, values in divergence.items()}
    out["divergence_q"] = ((LAYER, HEAD), q_values(divergence["_p"]))
    states = _on_logs(np.array(seen.state_change), np.array([one.state_change for one in drawn]))
    out |= {f"state_change{part}": values for part, values in states.items()}
    if own is None or seen.losses is None:
        return out
    mean, low, high = mean_interval(seen.losses - own)
    null = np.array([(one.losses - own).mean() for one in drawn if one.losses is not None])
    z = z_score(mean, null.mean(), null.std(ddof=1))
    out |= {"loss_before": own.mean(), "loss_after": seen.losses.mean(), "loss_change": mean}
    out |= {"loss_change_low": low, "loss_change_high": high}
    out |= {"loss_change_null": null.mean(), "loss_change_null_sd": null.std(ddof=1), "loss_change_z": z}
    return out | {"loss_change_p": 2 * prediction_tail(np.abs(z), len(null))}


def _on_logs(value: np.ndarray, drawn: np.ndarray) -> dict[str, np.ndarray]:
    """A positive quantity with its null, as logarithms; NaN where nothing differs at all."""
    there = (value > 0) & (drawn > 0).all(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(there, np.log(drawn), np.nan)
        mean, sd = logs.mean(0), logs.std(0, ddof=1)
        z = z_score(np.where(there, np.log(value), np.nan), mean, sd, unit=1e-6)
    p = 2 * prediction_tail(np.abs(z), len(drawn))
    return {"": value, "_null": np.exp(mean), "_null_sd": sd, "_z": z, "_p": p}
