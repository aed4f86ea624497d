"""What a model does when its weights are changed: attention, perplexity and continuation, beside the unmodified model.

1. Run the model as it is.
2. Under each setting run it again on the same tokens, then let it write on greedily; the weights are restored after.
3. Per layer and head, over the queries that have a choice (all but the first, if causal): entropy; divergence of the
   unmodified pattern p from the modified q, KL(p || q) and Jensen-Shannon; mass on the token itself, A_ii, and on the
   row's largest entry, max_j A_ij (scaling logits up moves attention to the latter, not to the former); per layer also
   the entropy of the heads' mean pattern, which looks more uniform than single heads are; per setting the perplexity of
   the prompt and what the model writes after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.lenses.intervene.maps import few_shot_prompt, with_maps, word_maps
from headspan.lenses.intervene.schema import AVERAGED, MEASURES, UNMODIFIED, WITH_NULL
from headspan.lenses.intervene.settings import Changes, Setting, checked_settings, default_settings, map_settings
from headspan.lenses.shots import Pair, split_pairs
from headspan.runtime import Forward, Prompt, RunnableModel, continuation, encoded, forward
from headspan.runtime.forward_pass import full_logs, js_rows, kl_rows, row_entropy
from headspan.runtime.interventions import intervened
from headspan.runtime.prompt import default_prompt

NULL = "uniform attention over the positions in reach"


def measure(
    running: RunnableModel,
    *,
    prompt: str | Sequence[int] | None = None,
    settings: Sequence[Setting] | None = None,
    length: int = 40,
    maps: bool = False,
    few_shot: Sequence[Pair] | None = None,
    shots: int = 3,
    target: str | None = None,
    template: str | None = None,
    preamble: str = "",
    truncate: bool = False,
    seed: int = 0,
    progress: Callable[[str], None] = lambda name: None,
    **changes: Any,
) -> xr.Dataset:
    """`headspan.intervene` on a running model; `progress` is called with the name of each setting before it runs."""
    boundaries: list[int] = []
    if few_shot is not None:
        split = split_pairs(few_shot, shots, seed, [] if target is None else [target], preamble)
        given, boundaries = few_shot_prompt(running, split, template)
    else:
        given = default_prompt(running, seed) if prompt is None else encoded(running, prompt, truncate)
    asked = Changes(**changes).settings(running, given, seed) + tuple(settings or ())
    usual = map_settings if maps else default_settings
    named = usual(seed) if settings is None and not asked else asked
    chosen = (Setting(UNMODIFIED, (), 1.0), *checked_settings(named))
    plain = forward(running, given.tokens)
    rows = []
    for each in chosen:
        progress(each.name)
        with intervened(running, *each.interventions) as notes:
            rows.append({**_measured(running, given, plain, length, maps), "notes": "; ".join(notes)})
    attrs = {"null": NULL, "n_tokens": len(given), "dropped": given.dropped, "prompt": _text(running, given.ids)}
    attrs |= {"length": length, "seed": seed, "causal": int(running.causal)}
    coords = {
        "setting": np.array([each.name for each in chosen], dtype=object),
        "layer": np.array(running.layer_numbers),
    }
    found = xr.Dataset(_variables(chosen, rows, plain), coords=coords, attrs=attrs)
    return found if not maps else with_maps(found, given, [row["mean_map"] for row in rows], boundaries)


def _measured(model: RunnableModel, prompt: Prompt, plain: Forward, length: int, maps: bool) -> dict[str, Any]:
    run = forward(model, prompt.tokens)
    mean_map = {"mean_map": word_maps(run, prompt)} if maps else {}
    found: dict[str, Any] = {name: values.numpy() for name, values in attention_measures(run, plain).items()}
    found[AVERAGED] = averaged_relative_entropy(run).numpy()
    scored = model.causal and run.logits is not None and len(prompt) > 1
    # A model out of order can be so sure of wrong tokens that the exponential overflows.
    found["perplexity"] = math.exp(min(run.loss(), 700.0)) if scored else math.nan
    written = continuation(model, prompt, length) if model.writes and length > 0 else ()
    return {**found, **mean_map, "continuation": _text(model, written)}


def _text(model: RunnableModel, ids: Sequence[int]) -> str:
    return " ".join(map(str, ids)) if model.tokenizer is None else str(model.tokenizer.decode(list(ids)))


def _variables(settings: Sequence[Setting], rows: Sequence[dict[str, Any]], plain: Forward) -> dict[str, Any]:
    grid, each = ("setting", "layer", "head"), ("setting",)
    first = 1 if plain.model.causal else 0
    reach = _reach(plain, first).numpy()
    uniform = float((1.0 / reach).mean()) if len(reach) else math.nan
    found: dict[str, Any] = {}
    for name in (one.name for one in MEASURES):
        values = np.stack([row[name] for row in rows])
        found[name] = (grid, values)
        found |= {f"layer_{name}": (grid[:2], values.mean(axis=2)), f"mean_{name}": (each, values.mean(axis=(1, 2)))}
    averaged = np.stack([row[AVERAGED] for row in rows])
    return {
        **found,
        AVERAGED: (grid[:2], averaged),
        f"mean_{AVERAGED}": (each, averaged.mean(axis=1)),
        "alpha": (each, np.array([setting.alpha for setting in settings])),
        "perplexity": (each, np.array([row["perplexity"] for row in rows])),
        "continuation": (each, np.array([row["continuation"] for row in rows], dtype=object)),
        "notes": (each, np.array([row["notes"] for row in rows], dtype=object)),
        **{f"{name}_null": uniform for name in WITH_NULL},
    }


def attention_measures(run: Forward, plain: Forward) -> dict[str, Float[Tensor, "depth head"]]:
    """Entropies, divergences from `plain`, and masses of every head; NaN where no query has a choice."""
    layers = [_layer(run, plain, place) for place in range(len(run.runs))]
    return {name: torch.stack([layer[name] for layer in layers]) for name in layers[0]}


def _layer(run: Forward, plain: Forward, place: int) -> dict[str, Tensor]:
    first = 1 if run.model.causal else 0
    q, p = (full_logs(each.runs[place])[:, :, first:].cpu() for each in (run, plain))
    pattern = run.runs[place].pattern.double().cpu()
    entropy = row_entropy(q)
    reach = _reach(run, first)
    return {
        "entropy": entropy.mean((0, 2)),
        "relative_entropy": (entropy / reach.log()).mean((0, 2)),
        "kl": kl_rows(p, q).mean((0, 2)),
        "jsd": js_rows(p, q).mean((0, 2)),
        "self_mass": pattern.diagonal(dim1=-2, dim2=-1)[..., first:].mean((0, 2)),
        "argmax_mass": pattern[:, :, first:].amax(-1).mean((0, 2)),
    }


def averaged_relative_entropy(run: Forward) -> Float[Tensor, " depth"]:
    """Entropy of the heads' mean pattern over log of the keys in reach: in [0, 1], 1 for uniform attention.

    Never less than the mean of the heads' own: entropy is concave, so averaging heads hides how sharp each one is.
    """
    first, found = (1 if run.model.causal else 0), []
    for attention in run.runs:
        mean = attention.pattern.double().mean(1)[:, first:].cpu()
        found.append((row_entropy(mean.log()) / _reach(run, first).log()).mean())
    return torch.stack(found)


def _reach(run: Forward, first: int) -> Float[Tensor, " query"]:
    n = run.tokens.shape[1]
    reach = torch.arange(first + 1, n + 1) if run.model.causal else torch.full((n,), n)
    return reach.double()
