"""A few-shot prompt under the lens: its maps, attention within and across shots, clues written and clues expected.

1. Choose shots and held-out words (`pairs`), write the prompt (`shots`), compute its maps (`lens`).
2. Pool attention to shots; measure what stays within one, beside moved boundaries, and what goes from clues to their
   word (`shot_masses`).
3. Let the model write clues, and score those of the file after 0..k shots (`clues`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headspan.lenses.attention.clues import clue_likelihoods, written_clues
from headspan.lenses.attention.lens import compute
from headspan.lenses.attention.maps import pooled, write_average, write_shares
from headspan.lenses.attention.pairs import Pair, split_pairs
from headspan.lenses.attention.shot_masses import own_word_masses, within_shots
from headspan.lenses.attention.shots import TEMPLATE, ShotTokens, shot_text, shot_tokens
from headspan.lenses.attention.words import Groups, token_groups, word_groups
from headspan.runtime import Forward, RunnableModel, forward

NULL = "shot boundaries moved along the prompt"


def few_shot(
    model: RunnableModel,
    pairs: Sequence[Pair],
    *,
    shots: int = 3,
    targets: Sequence[str] = (),
    template: str | None = None,
    length: int = 24,
    temperature: float = 0.0,
    seed: int = 0,
    **maps: Any,
) -> xr.DataTree:
    """Attention over a few-shot prompt, and what the model makes of it.

    Parameters
    ----------
    model
        A causal model with a tokenizer.
    pairs
        From `read_pairs`.
    shots, targets, seed
        How many pairs to show, which words to ask for (by default all that are not shown), what fixes the choice.
    template
        Text with `{word}` and `{clue}`; by default the model's chat template, or a plain one.
    length, temperature
        Of the clues written.
    maps
        Options of `compute`: level, pooling, special, words, permutations.

    Returns
    -------
    DataTree
        `map`: the result of `compute` for the prompt that asks for the first target, with the first group of every shot
        in its attribute `boundaries`. `shots`: `shot_map`, `shot_write_map [layer, query_shot, key_shot]`, `within`,
        `across`, `own_word`, `other_word [layer, head]` with chance. `clues [target]` and `likelihood [shots]`.
    """
    split = split_pairs(pairs, shots, seed, targets)
    text = shot_text(model, split.shots, split.held_out[0].word, template)
    tokens = shot_tokens(model, text)
    result = compute(model, tokens.prompt, seed=seed, **maps)
    result.attrs["boundaries"] = _boundaries(tokens, str(result.attrs["level"]), str(result.attrs["special"]))
    measured = _shot_dataset(forward(model, tokens.prompt.tokens), tokens)
    clues = written_clues(model, split, template, length, temperature, seed)
    attrs = {**result.attrs, "shots": shots, "null": NULL, "template": "chat" if text.chat else template or TEMPLATE}
    attrs.pop("boundaries")
    return xr.DataTree.from_dict(
        {
            "/": xr.Dataset(attrs=attrs),
            "map": result,
            "shots": measured,
            "clues": xr.Dataset({name: ("target", clues[name].to_numpy(dtype=object)) for name in clues}),
            "likelihood": _as_dataset(clue_likelihoods(model, split, template)),
        }
    )


def _as_dataset(table: pd.DataFrame) -> xr.Dataset:
    return xr.Dataset.from_dataframe(table.set_index("shots"))


def _boundaries(tokens: ShotTokens, level: str, special: str) -> list[int]:
    """The group in which every shot begins, in the map as it is shown."""
    groups = word_groups(tokens.prompt) if level == "word" else token_groups(tokens.prompt)
    groups = groups.without(tokens.prompt.special) if special == "drop" else groups
    return [groups.of_token[start] for start in tokens.starts]


def _shot_dataset(run: Forward, tokens: ShotTokens) -> xr.Dataset:
    n_shots, shares = int(tokens.shot.max()) + 1, write_shares(run)
    groups = Groups(tuple(f"shot {number + 1}" for number in range(n_shots)), tuple(int(each) for each in tokens.shot))
    plain, weighted, heads = [], [], []
    for place, attention in enumerate(run.runs):
        pattern = attention.pattern[0].cpu().double()
        plain.append(pooled(pattern.mean(dim=0), groups).numpy())
        weighted.append(pooled(write_average(pattern, shares[place]), groups).numpy())
        found = within_shots(pattern.numpy(), tokens)
        masses = {"within": found.within, "across": found.across, "within_chance": found.chance}
        masses |= {"within_sd": found.sd, "within_p_value": found.p_value}
        heads.append(masses | own_word_masses(pattern.numpy(), tokens))
    square = ("layer", "query_shot", "key_shot")
    variables: dict[str, Any] = {"shot_map": (square, np.stack(plain)), "shot_write_map": (square, np.stack(weighted))}
    variables |= {name: (("layer", "head"), np.stack([layer[name] for layer in heads])) for name in heads[0]}
    return xr.Dataset(
        variables, coords={"layer": np.array(run.model.layer_numbers), "head": np.arange(run.model.n_heads)}
    )
