"""Does the geometry of the weights predict what the model does? Three questions put to the running model.

1. `invariance`: is every head blind to the null space of its queries and keys, and to nothing else?
2. `distance`: do heads with close attention spaces attend alike?
3. `cause`: does a target respond more to sources of high affinity, at equal read energy? The same is asked of the
   untrained twin of the model, where the answer must be no.

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
from headspan.lenses.validate.cause import causal_effects, obstacle_to_cause
from headspan.lenses.validate.contrast import contrasts, rankings
from headspan.lenses.validate.invariance import invariances, pattern_divergences, space_distances
from headspan.lenses.validate.selection import chosen_blocks
from headspan.progress import current_step
from headspan.runtime import Forward, RunnableModel, forward
from headspan.runtime.budget import memory_left
from headspan.runtime.buffers import token_buffers
from headspan.runtime.untrained import untrained_twin
from headspan.statistics import mantel

NULL = "invariance: none; distance: heads permuted; cause: heads of a layer permuted, at equal read energy"
SETTINGS = {"contrast": ["pairing", "sample", "outcome"], "ranking": ["pairing", "score", "outcome"]}
STATISTICS = {"contrast": "ratio", "ranking": "spearman"}
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
    strong: int = 5,
    random: int = 6,
    group: int = 8,
    permutations: int = 999,
    fold: str = "none",
    seed: int = 0,
) -> xr.DataTree:
    """`headspan.validate` on a running model, which is as before afterwards."""
    kind, given = token_buffers(model, buffers, count, length, seed) if tokens is None else ("given", tokens)
    heads = model.heads().refolded(fold)
    plain = forward(model, given)
    attrs: dict[str, Any] = {"null": NULL, "fold": fold, "seed": seed, "buffers": kind}
    attrs |= {"count": given.shape[0], "length": given.shape[1], "group": group, "permutations": permutations}
    attrs |= {"positions": model.stack.positions, "normed_keys": int(model.stack.key_norm is not None)}
    nodes: dict[str, xr.Dataset] = {}
    obstacles = {"invariance": _latent(model), "distance": _repeated(model), "cause": obstacle_to_cause(model)}
    if obstacles["invariance"] is None:
        nodes["invariance"] = _invariance(model, given, seed)
    if obstacles["distance"] is None:
        nodes["distance"] = _distance(plain, heads, permutations, seed)
    if obstacles["cause"] is None:
        chosen = {"strong": strong, "random": random, "group": group, "seed": seed}
        nodes |= _cause(plain, fold, chosen, permutations)
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


def _cause(plain: Forward, fold: str, chosen: dict[str, int], permutations: int) -> dict[str, xr.Dataset]:
    """The tested pairs of the model and of its untrained twin, and both tests with the twin's values beside them."""
    current_step("untrained twin")
    twin = forward(untrained_twin(plain.model, chosen["seed"]), plain.tokens)
    tested = {name: _effects(run, fold, chosen) for name, run in (("cause", plain), ("untrained", twin))}
    nodes = {
        name: _records(each, "pair").set_coords(["pairing", "src", "dst", "chosen"]) for name, each in tested.items()
    }
    for name, test in (("contrast", contrasts), ("ranking", rankings)):
        own, untrained = (test(each, permutations, chosen["seed"]) for each in tested.values())
        keys, value = SETTINGS[name], STATISTICS[name]
        beside = untrained[[*keys, value, f"{value}_p"]].rename(
            columns={value: f"{value}_untrained", f"{value}_p": f"{value}_untrained_p"}
        )
        nodes[name] = _records(own.merge(beside, on=keys, how="left"), "row").set_coords(keys)
    return nodes


def _effects(plain: Forward, fold: str, chosen: dict[str, int]) -> pd.DataFrame:
    scores = affinity(plain.model.heads().refolded(fold), seed=chosen["seed"], memory=memory_left("4GB"))
    return causal_effects(plain, chosen_blocks(scores, **chosen), current_step)


def _records(frame: pd.DataFrame, dim: str) -> xr.Dataset:
    """A table as variables along one axis."""
    text = {name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])}
    return xr.Dataset(
        {str(name): ((dim,), np.array(frame[name], dtype=object if name in text else None)) for name in frame}
    )
