"""Does the geometry of the weights predict what the model does? Three questions put to the running model.

1. `invariance`: is every head blind to the null space of its queries and keys, and to nothing else?
2. `distance`: do heads with close attention spaces attend alike?
3. `cause`: does affinity rank what happens when one head's message is taken from another?

The result is a DataTree with one node per question that applies to the model; the root says why another does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from headspan.heads import Heads
from headspan.lenses.affinity import affinity
from headspan.lenses.validate.cause import causal_effects, obstacle_to_cause, rankings
from headspan.lenses.validate.invariance import invariances, pattern_divergences, space_distances
from headspan.lenses.validate.selection import chosen_pairs, token_buffers
from headspan.progress import current_step
from headspan.runtime import Forward, RunnableModel, forward
from headspan.statistics import mantel

NULL = "invariance: none; distance: heads dealt anew; cause: random parts of the message with the same energy"
MANTEL = {
    "spearman": "spearman",
    "low": "spearman_low",
    "high": "spearman_high",
    "p_value": "spearman_p",
    "mean_spearman": "mean_spearman",
    "mean_p_value": "mean_spearman_p",
}


def measure(
    model: RunnableModel,
    *,
    tokens: Int[Tensor, "batch position"] | None = None,
    buffers: str | None = None,
    count: int = 8,
    length: int = 48,
    strong: int = 10,
    random: int = 30,
    controls: int = 4,
    permutations: int = 999,
    fold: str = "none",
    seed: int = 0,
) -> xr.DataTree:
    """`headspan.validate` on a running model, which is as before afterwards."""
    kind, given = token_buffers(model, buffers, count, length, seed) if tokens is None else ("given", tokens)
    heads = model.heads().refolded(fold)
    plain = forward(model, given)
    attrs: dict[str, Any] = {"null": NULL, "fold": fold, "seed": seed, "buffers": kind}
    attrs |= {"count": given.shape[0], "length": given.shape[1], "controls": controls, "permutations": permutations}
    attrs |= {"positions": model.stack.positions, "normed_keys": int(model.stack.key_norm is not None)}
    nodes: dict[str, xr.Dataset] = {}
    obstacles = {"invariance": _latent(model), "distance": _repeated(model), "cause": obstacle_to_cause(model)}
    if obstacles["invariance"] is None:
        nodes["invariance"] = _invariance(model, given, seed)
    if obstacles["distance"] is None:
        nodes["distance"] = _distance(plain, heads, permutations, seed)
    if obstacles["cause"] is None:
        nodes |= _cause(plain, heads, strong, random, controls, permutations, seed)
    attrs |= {f"{name}_obstacle": reason or "" for name, reason in obstacles.items()}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **nodes})


def _latent(model: RunnableModel) -> str | None:
    latent = any(projection.latent is not None for projection in model.stack.projections.values())
    return "its heads read through latent spaces that they share" if latent else None


def _repeated(model: RunnableModel) -> str | None:
    return "its layers are run through several times" if model.stack.repeats > 1 else None


def _grid(model: RunnableModel) -> dict[str, Any]:
    return {"layer": np.array(model.layers), "head": np.arange(model.n_heads)}


def _invariance(model: RunnableModel, tokens: Tensor, seed: int) -> xr.Dataset:
    found = invariances(model, tokens, seed, current_step)
    return xr.Dataset({name: (("layer", "head"), each) for name, each in found.items()}, coords=_grid(model))


def _distance(plain: Forward, heads: Heads, permutations: int, seed: int) -> xr.Dataset:
    spaces = space_distances(heads)
    behaviors = [pattern_divergences(plain, place).numpy() for place in range(len(plain.runs))]
    table = ("layer", "head", "peer")
    variables: dict[str, Any] = {
        "space_distance": (table, np.stack(spaces)),
        "pattern_divergence": (table, np.stack(behaviors)),
    }
    for name, values in mantel(spaces, behaviors, permutations, seed).items():
        variables[MANTEL[name]] = (("layer",) if values.ndim else (), values)
    return xr.Dataset(variables, coords={**_grid(plain.model), "peer": np.arange(plain.model.n_heads)})


def _cause(
    plain: Forward,
    heads: Heads,
    strong: int,
    random: int,
    controls: int,
    draws: int,
    seed: int,
) -> dict[str, xr.Dataset]:
    pairs = chosen_pairs(affinity(heads, seed=seed), strong, random, seed)
    effects = causal_effects(plain, pairs, controls, seed, current_step)
    cause = _records(effects, "pair").set_coords(["pairing", "src", "dst", "chosen"])
    ranking = _records(rankings(effects, draws, seed), "row").set_coords(["pairing", "sample", "score", "outcome"])
    return {"cause": cause, "ranking": ranking}


def _records(frame: pd.DataFrame, dim: str) -> xr.Dataset:
    """A table as variables along one axis."""
    text = {name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])}
    return xr.Dataset(
        {str(name): ((dim,), np.array(frame[name], dtype=object if name in text else None)) for name in frame}
    )
