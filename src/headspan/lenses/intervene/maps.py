"""Attention maps under every setting: the mean over heads between words, and where shots of a few-shot prompt begin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from jaxtyping import Float

from headspan.lenses.shots import Split, shot_text, shot_tokens
from headspan.lenses.words import Groups, pooled, shown, token_groups, word_groups
from headspan.runtime import Forward, Prompt, RunnableModel


def few_shot_prompt(model: RunnableModel, split: Split, template: str | None) -> tuple[Prompt, list[int]]:
    """The prompt that shows the shots and asks for the first held-out word, and the group in which each shot begins."""
    tokens = shot_tokens(model, shot_text(model, split.shots, split.held_out[0].word, template, split.preamble))
    groups = map_groups(tokens.prompt)
    return tokens.prompt, [groups.of_token[start] for start in tokens.starts]


def map_groups(prompt: Prompt) -> Groups:
    """Words where the prompt is a text whose tokens have places in it, else tokens."""
    by_word = prompt.text is not None and prompt.offsets is not None
    return shown(word_groups(prompt) if by_word else token_groups(prompt))


def word_maps(run: Forward, prompt: Prompt) -> Float[np.ndarray, "layer query key"]:
    """Attention of every layer, mean over heads, between words: rows sum to 1."""
    groups = map_groups(prompt)
    maps = [pooled(each.pattern[0].cpu().double().mean(0), groups) for each in run.runs]
    return np.stack([each.numpy() for each in maps]).astype(np.float32)


def with_maps(
    found: xr.Dataset, prompt: Prompt, maps: Sequence[Float[np.ndarray, "layer query key"]], boundaries: list[int]
) -> xr.Dataset:
    """A result with `mean_map`, the words along its axes, and the boundaries of shots as an attribute."""
    groups = map_groups(prompt)
    texts = np.array(groups.texts, dtype=object)
    places = np.arange(len(groups))
    coords = {"query": places, "key": places, "query_text": ("query", texts), "key_text": ("key", texts)}
    dims = ("setting", "layer", "query", "key")
    return found.assign(mean_map=(dims, np.stack(maps))).assign_coords(coords).assign_attrs(boundaries=boundaries)
