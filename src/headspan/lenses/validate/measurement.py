"""Does the geometry of the weights predict what the model does? Three questions put to the running model.

1. `invariance`: is every head blind to the null space of its queries and keys, and to nothing else?
2. `distance`: do heads with close attention spaces attend alike?
3. `cause`: does affinity rank what happens when one head's message is taken from another?

The result is a DataTree with one node per question that applies to the model; the root says why another does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from headspan.errors import ShapeError
from headspan.heads import Heads
from headspan.lenses import affinity
from headspan.lenses.validate.buffers import token_buffers
from headspan.lenses.validate.cause import causal_effects, obstacle_to_cause, rankings
from headspan.lenses.validate.distance import pattern_divergences, space_distances
from headspan.lenses.validate.invariance import invariances
from headspan.lenses.validate.selection import chosen_pairs
from headspan.runtime import Forward, RunnableModel, forward
from headspan.statistics import mantel

COUNT, LENGTH = 8, 48
STRONG, RANDOM, CONTROLS = 10, 30, 4
PERMUTATIONS = 999
NULL = "invariance: none; distance: heads dealt anew; cause: random parts of the message with the same energy"

Progress = Callable[[str], None]


def compute(
    model: RunnableModel,
    tokens: Int[Tensor, "batch position"] | None = None,
    *,
    buffers: str | None = None,
    count: int = COUNT,
    length: int = LENGTH,
    strong: int = STRONG,
    random: int = RANDOM,
    controls: int = CONTROLS,
    permutations: int = PERMUTATIONS,
    fold: str = "none",
    seed: int = 0,
    progress: Progress = lambda name: None,
) -> xr.DataTree:
    """Geometry held against behaviour.

    Parameters
    ----------
    model
        From `open_runnable`; as before afterwards.
    tokens
        Sequences of equal length to measure on, in place of `buffers`.
    buffers, count, length
        Kind (`sampled` or `repeated`), number and length of token buffers; see `token_buffers`.
    strong, random, controls
        Per pairing, how many of the strongest pairs by each score (weak ones match them) and how many random pairs are
        tested for cause, and how many control removals each gets.
    permutations
        Of the Mantel test, and draws of the bootstraps.
    fold
        Fold state of the weights whose scores and spaces are put to the test.
    seed
        Fixes everything random.
    progress
        Called with a word on each step before it is done.

    Returns
    -------
    DataTree
        `invariance` [layer, head], `distance` [layer, head, other_head], `cause` [pair] and `ranking` [row].
    """
    if min(strong, random, controls) < 1 or permutations < 99:
        raise ShapeError("at least 1 strong pair, 1 random pair, 1 control and 99 permutations are needed")
    kind, given = token_buffers(model, buffers, count, length, seed) if tokens is None else ("given", tokens)
    heads = model.heads().refolded(fold)
    plain = forward(model, given)
    attrs = {**model.provenance(), "lens": "validate", "null": NULL, "fold": fold, "seed": seed, "buffers": kind}
    attrs |= {"count": given.shape[0], "length": given.shape[1], "controls": controls, "permutations": permutations}
    attrs |= {"positions": model.stack.positions, "normed_keys": int(model.stack.key_norm is not None)}
    nodes: dict[str, xr.Dataset] = {}
    obstacles = {"invariance": _latent(model), "distance": _repeated(model), "cause": obstacle_to_cause(model)}
    if obstacles["invariance"] is None:
        nodes["invariance"] = _invariance(model, given, seed, progress)
    if obstacles["distance"] is None:
        progress("distances of attention spaces")
        nodes["distance"] = _distance(plain, heads, permutations, seed)
    if obstacles["cause"] is None:
        nodes |= _cause(plain, heads, strong, random, controls, permutations, seed, progress)
    attrs |= {f"{name}_obstacle": reason or "" for name, reason in obstacles.items()}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **nodes})


def _latent(model: RunnableModel) -> str | None:
    latent = any(projection.latent is not None for projection in model.stack.projections.values())
    return "its heads read through latent spaces that they share" if latent else None


def _repeated(model: RunnableModel) -> str | None:
    return "its layers are run through several times" if model.stack.repeats > 1 else None


def _grid(model: RunnableModel) -> dict[str, Any]:
    return {"layer": np.array(model.layers), "head": np.arange(model.n_heads)}


def _invariance(model: RunnableModel, tokens: Tensor, seed: int, progress: Progress) -> xr.Dataset:
    found = invariances(model, tokens, seed, progress)
    return xr.Dataset({name: (("layer", "head"), each) for name, each in found.items()}, coords=_grid(model))


def _distance(plain: Forward, heads: Heads, permutations: int, seed: int) -> xr.Dataset:
    spaces = space_distances(heads)
    behaviours = [pattern_divergences(plain, place).numpy() for place in range(len(plain.runs))]
    table, coords = ("layer", "head", "other_head"), _grid(plain.model)
    variables: dict[str, Any] = {
        "space_distance": (table, np.stack(spaces)),
        "pattern_divergence": (table, np.stack(behaviours)),
    }
    for name, values in mantel(spaces, behaviours, permutations, seed).items():
        variables[name] = (("layer",) if values.ndim else (), values)
    return xr.Dataset(variables, coords={**coords, "other_head": coords["head"]})


def _cause(
    plain: Forward,
    heads: Heads,
    strong: int,
    random: int,
    controls: int,
    draws: int,
    seed: int,
    progress: Progress,
) -> dict[str, xr.Dataset]:
    progress("affinity of heads")
    pairs = chosen_pairs(affinity.compute(heads, seed=seed), strong, random, seed)
    effects = causal_effects(plain, pairs, controls, seed, progress)
    return {"cause": _records(effects, "pair"), "ranking": _records(rankings(effects, draws, seed), "row")}


def _records(frame: pd.DataFrame, dim: str) -> xr.Dataset:
    """A table as variables along one axis."""
    text = {name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])}
    return xr.Dataset(
        {str(name): ((dim,), np.array(frame[name], dtype=object if name in text else None)) for name in frame}
    )
