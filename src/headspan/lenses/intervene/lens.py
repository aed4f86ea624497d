"""What a model does when its weights are changed: attention, perplexity and continuation, beside the unmodified model.

1. Run the model as it is.
2. Under each setting run it again on the same tokens, then let it write on greedily; the weights are restored after.
3. Per layer and head: entropy, divergence from the unmodified pattern, mass on the token itself and on the row's
   largest entry (`divergence`); per layer also the entropy of the heads' mean pattern, which looks more uniform than
   single heads are; per setting the perplexity of the prompt and what the model writes after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from headspan.lenses.attention.prompts import default_prompt
from headspan.lenses.intervene.divergence import attention_measures, averaged_relative_entropy
from headspan.lenses.intervene.settings import UNMODIFIED, Setting, checked_settings, default_settings
from headspan.runtime import Forward, Prompt, RunnableModel, continuation, forward
from headspan.runtime.interventions import intervened

NULL = "uniform attention over the positions in reach"
MEASURES = ("entropy", "relative_entropy", "kl", "jsd", "self_mass", "argmax_mass")
LENGTH = 40

Progress = Callable[[str], None]


def compute(
    model: RunnableModel,
    prompt: Prompt | None = None,
    *,
    settings: Sequence[Setting] | None = None,
    length: int = LENGTH,
    seed: int = 0,
    progress: Progress = lambda name: None,
) -> xr.Dataset:
    """Attention, perplexity and continuation under each setting, the unmodified model first.

    Parameters
    ----------
    model
        From `open_runnable`; as before afterwards, bit for bit.
    prompt
        From `encoded`; by default the beginning of a story, or random tokens.
    settings
        What to change; by default alphas from 1/4 to 4, random attention, random weights.
    length
        Tokens to write on, greedily; 0 for none. An encoder writes none.
    seed
        Of random weights and random tokens.
    progress
        Called with the name of each setting before it runs.

    Returns
    -------
    Dataset
        `entropy`, `relative_entropy`, `kl`, `jsd`, `self_mass`, `argmax_mass [setting, layer, head]`,
        `averaged_relative_entropy [setting, layer]`, `alpha`, `perplexity`, `continuation`, `notes [setting]`, and
        `self_mass_chance`, `argmax_mass_chance`: those of uniform attention.
    """
    given = default_prompt(model, seed) if prompt is None else prompt
    chosen = (
        Setting(UNMODIFIED, (), 1.0),
        *checked_settings(default_settings(seed) if settings is None else settings),
    )
    plain = forward(model, given.tokens)
    rows = []
    for each in chosen:
        progress(each.name)
        with intervened(model, *each.interventions) as notes:
            rows.append({**_measured(model, given, plain, length), "notes": "; ".join(notes)})
    attrs = {**model.provenance(), "lens": "intervene", "null": NULL, "n_tokens": len(given), "dropped": given.dropped}
    attrs |= {"prompt": _text(model, given.ids), "length": length, "seed": seed, "causal": int(model.causal)}
    coords = {
        "setting": np.array([each.name for each in chosen], dtype=object),
        "layer": np.array(model.layer_numbers),
        "head": np.arange(model.n_heads),
    }
    return xr.Dataset(_variables(chosen, rows, plain), coords=coords, attrs=attrs)


def _measured(model: RunnableModel, prompt: Prompt, plain: Forward, length: int) -> dict[str, Any]:
    run = forward(model, prompt.tokens)
    found: dict[str, Any] = {name: values.numpy() for name, values in attention_measures(run, plain).items()}
    found["averaged_relative_entropy"] = averaged_relative_entropy(run).numpy()
    scored = model.causal and run.logits is not None and len(prompt) > 1
    # A model out of order can be so sure of wrong tokens that the exponential overflows.
    found["perplexity"] = math.exp(min(run.loss(), 700.0)) if scored else math.nan
    written = continuation(model, prompt, length) if model.writes and length > 0 else ()
    return {**found, "continuation": _text(model, written)}


def _text(model: RunnableModel, ids: Sequence[int]) -> str:
    return " ".join(map(str, ids)) if model.tokenizer is None else str(model.tokenizer.decode(list(ids)))


def _variables(settings: Sequence[Setting], rows: Sequence[dict[str, Any]], plain: Forward) -> dict[str, Any]:
    grid, each = ("setting", "layer", "head"), ("setting",)
    reach = np.arange(1, plain.tokens.shape[1] + 1) if plain.model.causal else np.full(plain.tokens.shape[1], 1.0)
    reach = reach[1:] if plain.model.causal else reach * plain.tokens.shape[1]
    uniform = float((1.0 / reach).mean()) if len(reach) else math.nan
    return {
        **{name: (grid, np.stack([row[name] for row in rows])) for name in MEASURES},
        "averaged_relative_entropy": (grid[:2], np.stack([row["averaged_relative_entropy"] for row in rows])),
        "alpha": (each, np.array([setting.alpha for setting in settings])),
        "perplexity": (each, np.array([row["perplexity"] for row in rows])),
        "continuation": (each, np.array([row["continuation"] for row in rows], dtype=object)),
        "notes": (each, np.array([row["notes"] for row in rows], dtype=object)),
        "self_mass_chance": uniform,
        "argmax_mass_chance": uniform,
    }
