"""Several prompts at once: statistics of every head on each, and how steady they are.

The result's root is about the first prompt, maps included. The node `batch` holds, for all prompts, the statistics of
heads [prompt, head] and of layers [prompt, layer], and their mean and standard deviation over prompts. Prompts run one
after another, so that none is padded and no more than one is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import xarray as xr

from headspan.errors import ArgumentError
from headspan.runtime import Prompt

MOST_PROMPTS = 10_000
SHOWN = 80
"""Characters of a prompt that its row says."""
OVER_HEADS, OVER_LAYERS = ("layer", "head"), ("layer",)
Source = str | Sequence[int]


def prompts_of(given: Source | Sequence[Any] | None) -> Sequence[Source | None]:
    """The prompts of a batch; one where a text, token ids or nothing was given."""
    if given is None or isinstance(given, str):
        return [given]
    if not all(isinstance(each, str | int | np.integer | Sequence) for each in given) or len(given) > MOST_PROMPTS:
        raise ArgumentError(f"a batch is at most {MOST_PROMPTS:,} prompts, each a text or a list of token ids")
    several = len(given) > 0 and not isinstance(given[0], int | np.integer)
    return cast("Sequence[Source]", given) if several else [cast("Sequence[int]", given)]


def batch_node(prompts: Sequence[tuple[Prompt, xr.Dataset]], summarized: Sequence[str]) -> xr.Dataset:
    """The statistics of several prompts in one node.

    Parameters
    ----------
    prompts
        Each prompt, and what the lens says of it.
    summarized
        Statistics of heads whose mean and standard deviation over prompts are told; those that every prompt has.
    """
    found = [each for _, each in prompts]
    first = found[0]
    statistics = [str(name) for name, one in first.data_vars.items() if one.dims in (OVER_HEADS, OVER_LAYERS)]
    names = dict.fromkeys([*statistics, *(f"{name}_null" for name in statistics)])
    shared = [name for name in names if all(name in each for each in found)]
    variables: dict[str, Any] = {
        name: (("prompt", *first[name].dims), np.stack([each[name].values for each in found])) for name in shared
    }
    for name in summarized:
        if name in variables:
            values = variables[name][1]
            variables[f"{name}_mean"] = (OVER_HEADS, values.mean(0))
            variables[f"{name}_sd"] = (
                OVER_HEADS,
                values.std(0, ddof=1),
            )
    variables["n_tokens"] = ("prompt", np.array([each.attrs["n_tokens"] for each in found]))
    variables["prompt_text"] = ("prompt", np.array([_text(each) for each, _ in prompts], dtype=object))
    if all("loss" in each.attrs for each in found):
        variables["loss"] = ("prompt", np.array([each.attrs["loss"] for each in found]))
    return xr.Dataset(variables, coords={"prompt": np.arange(len(found)), "layer": first["layer"].values})


def _text(prompt: Prompt) -> str:
    text = "".join(prompt.texts) if prompt.text is None else prompt.text
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
