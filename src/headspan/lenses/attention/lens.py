"""What every head attends to on a prompt: maps, what sums them up, and whether tokens become alike.

1. Run the model once, keeping every attention and state (`runtime`).
2. Maps per head and averaged over heads, between tokens or words (`maps`, `words`).
3. Statistics of every head beside uniform attention (`statistics`), of states and maps by layer (`mixing`), and the
   correlation of attention with angles between states (`angular`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
import xarray as xr

from headspan.errors import ShapeError
from headspan.lenses.attention.angular import angular_correlation, cosines
from headspan.lenses.attention.maps import (
    POOLINGS,
    Pooling,
    left_out_mass,
    membership,
    pooled,
    write_average,
    write_shares,
)
from headspan.lenses.attention.mixing import (
    TOLERANCE,
    map_ranks,
    random_effective_rank,
    state_statistics,
    uniform_map_rank,
)
from headspan.lenses.attention.prompts import default_prompt
from headspan.lenses.attention.statistics import STATISTICS, head_statistics, pattern_statistics, uniform_statistics
from headspan.lenses.attention.words import Groups, shown, token_groups, word_groups
from headspan.runtime import Forward, Prompt, RunnableModel, forward

Level = Literal["token", "word"]
LEVELS: tuple[Level, ...] = ("token", "word")
SPECIAL = ("keep", "drop")
NULL = "uniform attention over the positions in reach; angles: states dealt to positions at random"


def compute(
    model: RunnableModel,
    prompt: Prompt | None = None,
    *,
    level: str = "token",
    pooling: str = "mean",
    special: str = "keep",
    words: Sequence[str] | None = None,
    permutations: int = 200,
    seed: int = 0,
) -> xr.Dataset:
    """Attention maps of a prompt and what sums them up.

    Parameters
    ----------
    model
        From `open_runnable`.
    prompt
        From `encoded`; by default a short story's beginning, or random tokens where there is no tokenizer for it.
    level
        Maps between "token"s or "word"s.
    pooling
        Words: "mean" over queries (rows sum to 1) or "sum" (rows sum to a word's tokens); keys are always summed.
    special
        "keep" or "drop" special tokens from the maps; `left_out` says what attention goes to what is not shown.
    words
        Show only these, every occurrence; all by default.
    permutations, seed
        Of the test of angles; 0 leaves it out.

    Returns
    -------
    Dataset
        `pattern [layer, head, query, key]`, `mean_map` and `write_map [layer, query, key]`, `left_out [layer, query]`;
        `embedding_cosine [query, key]` in [-1, 1], 0 by chance; `entropy` and the other statistics `[layer, head]`,
        each with `_chance`; `mean_cosine`, `effective_rank` and
        others `[layer]`. `docs/attention.md` lists all with range and chance.
    """
    chosen = default_prompt(model) if prompt is None else prompt
    groups = _groups(chosen, level, pooling, special, words)
    if permutations < 0:
        raise ShapeError(f"permutations is at least 0 (no test), found {permutations}")
    run = forward(model, chosen.tokens)
    variables = {
        **_maps(run, groups, "sum" if pooling == "sum" else "mean"),
        **_cosine_variables(run, groups),
        **_head_variables(run),
        **_layer_variables(run, seed),
        **_angular_variables(run, permutations, seed),
    }
    attrs = {**model.provenance(), "lens": "attention", "null": NULL, "seed": seed, "permutations": permutations}
    attrs |= {
        "level": level,
        "pooling": pooling,
        "special": special,
        "n_tokens": len(chosen),
        "causal": int(model.causal),
    }
    attrs |= {"dropped": chosen.dropped, "map_rank_tolerance": TOLERANCE}
    if model.causal and run.logits is not None and len(chosen) > 1:
        attrs["loss"] = run.loss()
    return xr.Dataset(variables, coords=_coordinates(run, chosen, groups), attrs=attrs)


def _groups(prompt: Prompt, level: str, pooling: str, special: str, words: Sequence[str] | None) -> Groups:
    if level not in LEVELS or pooling not in POOLINGS or special not in SPECIAL:
        raise ShapeError("level is token or word, pooling is mean or sum, special tokens are to keep or to drop")
    groups = word_groups(prompt) if level == "word" else token_groups(prompt)
    if special == "drop":
        groups = groups.without(prompt.special)
    if words is not None:
        groups = groups.chosen(words)
    if len(groups) == 0:
        raise ShapeError("nothing is left of the prompt without its special tokens; keep them")
    return shown(groups)


def _coordinates(run: Forward, prompt: Prompt, groups: Groups) -> dict[str, Any]:
    texts = np.array(groups.texts, dtype=object)
    return {
        "layer": np.array(run.model.layer_numbers),
        "head": np.arange(run.model.n_heads),
        "query": np.arange(len(groups)),
        "key": np.arange(len(groups)),
        "query_text": ("query", texts),
        "key_text": ("key", texts),
        "position": np.arange(len(prompt)),
        "token_id": ("position", np.array(prompt.ids)),
        "token_text": ("position", np.array(prompt.texts, dtype=object)),
    }


def _maps(run: Forward, groups: Groups, pooling: Pooling) -> dict[str, Any]:
    """Per head and averaged over heads, layer by layer so that no more than one layer is held in float64."""
    shares = write_shares(run)
    found: dict[str, list[np.ndarray]] = {name: [] for name in ("pattern", "mean_map", "write_map", "left_out")}
    for place, attention in enumerate(run.runs):
        pattern = attention.pattern[0].cpu()
        weighted = write_average(pattern.double(), shares[place])
        by_head = pooled(pattern, groups, pooling)
        found["pattern"].append(by_head.float().numpy())
        found["mean_map"].append(by_head.mean(dim=0).numpy())
        found["write_map"].append(pooled(weighted, groups, pooling).numpy())
        found["left_out"].append(left_out_mass(pattern, groups).mean(dim=0).numpy())
    square, per_head = ("layer", "query", "key"), ("layer", "head", "query", "key")
    dims = {"pattern": per_head, "mean_map": square, "write_map": square, "left_out": ("layer", "query")}
    return {name: (dims[name], np.stack(values)) for name, values in found.items()} | {
        "write_share": (("layer", "head"), shares.mean(dim=1).numpy()),
        "write_share_chance": 1 / run.model.n_heads,
    }


def _cosine_variables(run: Forward, groups: Groups) -> dict[str, Any]:
    """Cosines of what enters the first layer, between tokens or between the mean vectors of words."""
    vectors = membership(groups).T @ run.states[0, 0].cpu().double()
    return {"embedding_cosine": (("query", "key"), cosines(vectors).numpy()), "embedding_cosine_chance": 0.0}


def _head_variables(run: Forward) -> dict[str, Any]:
    found, n = head_statistics(run), run.tokens.shape[1]
    chance = uniform_statistics(n, run.model.causal)
    ranks, means = map_ranks(run)
    variables: dict[str, Any] = {name: (("layer", "head"), values.numpy()) for name, values in found.items()}
    variables |= {f"{name}_chance": chance[name] for name in STATISTICS}
    return variables | {
        "map_rank": (("layer", "head"), ranks.numpy()),
        "mean_map_rank": ("layer", means.numpy()),
        "map_rank_chance": uniform_map_rank(n, run.model.causal),
        "mean_map_relative_entropy": ("layer", _mean_map_entropy(run)),
    }


def _mean_map_entropy(run: Forward) -> np.ndarray:
    """Relative entropy of the head average: nearer to uniform than the heads it is made of."""
    means = [attention.pattern[0].cpu().double().mean(dim=0, keepdim=True) for attention in run.runs]
    return np.array(
        [float(pattern_statistics(mean, mean.log(), run.model.causal)["relative_entropy"]) for mean in means]
    )


def _layer_variables(run: Forward, seed: int) -> dict[str, Any]:
    states = run.states[0].cpu()
    found = state_statistics(states)
    n, d_model = states.shape[1:]
    variables: dict[str, Any] = {name: ("layer", values.numpy()) for name, values in found.items()}
    chance = random_effective_rank(n, d_model, seed) if n > 1 else np.nan
    return variables | {"effective_rank_chance": chance, "mean_cosine_chance": 0.0}


def _angular_variables(run: Forward, permutations: int, seed: int) -> dict[str, Any]:
    if permutations == 0:
        return {}
    embedding = cosines(run.states[0, 0].cpu())
    results = [
        angular_correlation(
            attention.pattern[0].cpu(),
            torch.stack([embedding, cosines(run.states[0, place].cpu())]),
            run.model.causal,
            permutations,
            seed,
        )
        for place, attention in enumerate(run.runs)
    ]
    variables: dict[str, Any] = {}
    for number, kind in enumerate(("embedding", "state")):
        for part, name in enumerate(("correlation", "p_value")):
            values = np.stack([result[part][number] for result in results])
            variables[f"{kind}_{name}"] = (("layer", "head"), values)
    return variables | {"embedding_correlation_chance": 0.0, "state_correlation_chance": 0.0}
