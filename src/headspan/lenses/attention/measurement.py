"""What every head attends to on a prompt: maps, statistics of heads, and whether tokens become alike.

1. Run the model once, keeping every attention and state (`runtime`).
2. Maps per head and averaged over heads, between tokens or words, and statistics of every head beside uniform
   attention (`maps`, `words`).
3. States and maps by layer, and the correlation of attention with angles between states (`states`).
4. For a few-shot prompt (`shots`) also attention within and across shots, and clues (`few_shot`).
5. Of several prompts, all of this for the first, and statistics of all (`batch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr

from headspan.errors import ArgumentError
from headspan.lenses.attention import check_choices
from headspan.lenses.attention.batch import Source, batch_node, prompts_of
from headspan.lenses.attention.few_shot import clue_variables, shot_variables
from headspan.lenses.attention.maps import (
    STATISTICS,
    head_statistics,
    pattern_statistics,
    uniform_statistics,
    write_average,
    write_shares,
)
from headspan.lenses.attention.schema import SUMMARIZED
from headspan.lenses.attention.states import (
    TOLERANCE,
    angular_correlation,
    cosines,
    map_ranks,
    random_effective_rank,
    state_statistics,
    uniform_map_rank,
)
from headspan.lenses.shots import TEMPLATE, Pair, ShotTokens, Split, pair_lists, shot_text, shot_tokens, split_pairs
from headspan.lenses.words import Groups, left_out_mass, membership, pooled, shown, token_groups, word_groups
from headspan.runtime import Forward, Prompt, RunnableModel, encoded, forward
from headspan.runtime.prompt import default_prompt

NULL = "uniform attention over the positions in reach; angles: states dealt to positions at random"


def measure(
    running: RunnableModel,
    *,
    prompt: Source | Sequence[Any] | None = None,
    few_shot: str | Path | Sequence[Pair] | Sequence[Sequence[Pair]] | None = None,
    shots: int = 3,
    targets: Sequence[str] = (),
    template: str | None = None,
    preamble: str = "",
    every_count: bool = False,
    length: int = 24,
    temperature: float = 0.0,
    level: str = "token",
    pooling: str = "mean",
    special: str = "keep",
    words: Sequence[str] | None = None,
    truncate: bool = False,
    permutations: int = 200,
    seed: int = 0,
) -> xr.DataTree:
    """`headspan.attention` on a running model; few-shot pairs may be given as such."""
    check_choices(level=level, pooling=pooling, special=special, permutations=permutations)
    shown_as = {"level": level, "pooling": pooling, "special": special}
    tests = {"permutations": permutations, "seed": seed}
    if few_shot is None:
        chosen = (
            default_prompt(running) if each is None else encoded(running, each, truncate) for each in prompts_of(prompt)
        )
        found = [(one, _on_prompt(forward(running, one.tokens), one, words, shown_as, tests)) for one in chosen]
    else:
        splits = [split_pairs(pairs, shots, seed, targets, preamble) for pairs in pair_lists(few_shot)]
        writing = Writing(template, preamble, length, temperature, every_count)
        found = [_on_shots(running, split, writing, words, shown_as, tests) for split in splits]
    nodes = {"/": found[0][1], **({"/batch": batch_node(found, SUMMARIZED)} if len(found) > 1 else {})}
    return xr.DataTree.from_dict(nodes)


class Writing(NamedTuple):
    """How a few-shot prompt is written, and the clues after it."""

    template: str | None
    preamble: str
    length: int
    temperature: float
    every_count: bool


def _on_shots(
    running: RunnableModel,
    split: Split,
    writing: Writing,
    words: Sequence[str] | None,
    shown_as: dict[str, str],
    tests: dict[str, int],
) -> tuple[Prompt, xr.Dataset]:
    """A few-shot prompt and everything that it has."""
    template, preamble, length, temperature, every_count = writing
    text = shot_text(running, split.shots, split.held_out[0].word, template, preamble)
    tokens = shot_tokens(running, text)
    run = forward(running, tokens.prompt.tokens)
    found = _on_prompt(run, tokens.prompt, words, shown_as, tests)
    variables = shot_variables(run, tokens)
    variables |= clue_variables(running, split, template, length, temperature, tests["seed"], every_count)
    attrs: dict[str, Any] = {"preamble": preamble, "shots": len(split.shots)}
    attrs |= {"template": "chat" if text.chat else template or TEMPLATE}
    attrs["boundaries"] = _boundaries(tokens, shown_as["level"], shown_as["special"])
    return tokens.prompt, found.assign(variables).assign_attrs(attrs)


def _on_prompt(
    run: Forward, prompt: Prompt, words: Sequence[str] | None, shown_as: dict[str, str], tests: dict[str, int]
) -> xr.Dataset:
    """Everything that any prompt has."""
    groups = _groups(prompt, words, shown_as["level"], shown_as["special"])
    variables = {
        **_maps(run, groups, shown_as["pooling"]),
        **_cosine_variables(run, groups),
        **_head_variables(run),
        **_layer_variables(run, tests["seed"]),
        **_angular_variables(run, **tests),
    }
    attrs = {"null": NULL, **tests, **shown_as, "n_tokens": len(prompt), "causal": int(run.model.causal)}
    attrs |= {"dropped": prompt.dropped, "map_rank_tolerance": TOLERANCE}
    if run.model.causal and run.logits is not None and len(prompt) > 1:
        attrs["loss"] = run.loss()
    return xr.Dataset(variables, coords=_coordinates(run, prompt, groups), attrs=attrs)


def _groups(prompt: Prompt, words: Sequence[str] | None, level: str, special: str) -> Groups:
    groups = _all_groups(prompt, level, special)
    if words is not None:
        groups = groups.chosen(words)
    if len(groups) == 0:
        raise ArgumentError("nothing is left of the prompt without its special tokens; keep them")
    return shown(groups)


def _all_groups(prompt: Prompt, level: str, special: str) -> Groups:
    groups = word_groups(prompt) if level == "word" else token_groups(prompt)
    return groups.without(prompt.special) if special == "drop" else groups


def _boundaries(tokens: ShotTokens, level: str, special: str) -> list[int]:
    """The group in which every shot begins, in a map of all words."""
    groups = _all_groups(tokens.prompt, level, special)
    return [groups.of_token[start] for start in tokens.starts]


def _coordinates(run: Forward, prompt: Prompt, groups: Groups) -> dict[str, Any]:
    texts = np.array(groups.texts, dtype=object)
    words = _word_numbers(prompt, groups)
    return {
        **({} if words is None else {"query_word": ("query", words)}),
        "layer": np.array(run.model.layer_numbers),
        "query": np.arange(len(groups)),
        "key": np.arange(len(groups)),
        "query_text": ("query", texts),
        "key_text": ("key", texts),
        "position": np.arange(len(prompt)),
        "token_id": ("position", np.array(prompt.ids)),
        "token_text": ("position", np.array(prompt.texts, dtype=object)),
    }


def _word_numbers(prompt: Prompt, groups: Groups) -> np.ndarray | None:
    """The word that every token of a map belongs to; None where maps are not between all tokens, or words unknown."""
    if prompt.text is None or prompt.offsets is None or groups.of_token != tuple(range(len(prompt))):
        return None
    return np.array(word_groups(prompt).of_token)


def _maps(run: Forward, groups: Groups, pooling: str) -> dict[str, Any]:
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
        "write_share_null": 1 / run.model.n_heads,
    }


def _cosine_variables(run: Forward, groups: Groups) -> dict[str, Any]:
    """Cosines of what enters every layer, the embeddings first, between tokens or the mean vectors of words."""
    member = membership(groups).T
    layers = np.stack([cosines(member @ run.states[0, place].cpu().double()).numpy() for place in range(len(run.runs))])
    found: dict[str, Any] = {"state_cosine": (("layer", "query", "key"), layers.astype(np.float32))}
    return found | {"embedding_cosine": (("query", "key"), layers[0]), "embedding_cosine_null": 0.0}


def _head_variables(run: Forward) -> dict[str, Any]:
    found, n = head_statistics(run), run.tokens.shape[1]
    uniform = uniform_statistics(n, run.model.causal)
    ranks, means = map_ranks(run)
    variables: dict[str, Any] = {name: (("layer", "head"), values.numpy()) for name, values in found.items()}
    variables |= {f"{name}_null": uniform[name] for name in STATISTICS}
    return variables | {
        "map_rank": (("layer", "head"), ranks.numpy()),
        "mean_map_rank": ("layer", means.numpy()),
        "map_rank_null": uniform_map_rank(n, run.model.causal),
        "mean_relative_entropy": ("layer", found["relative_entropy"].mean(dim=1).numpy()),
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
    random = random_effective_rank(n, d_model, seed) if n > 1 else np.nan
    return variables | {"effective_rank_null": random, "mean_cosine_null": 0.0}


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
        for part, name in enumerate(("correlation", "correlation_p")):
            values = np.stack([result[part][number] for result in results])
            variables[f"{kind}_{name}"] = (("layer", "head"), values)
    return variables | {"embedding_correlation_null": 0.0, "state_correlation_null": 0.0}
