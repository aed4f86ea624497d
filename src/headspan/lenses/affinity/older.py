"""Affinity results of version 1: scores by axis `metric`, p and q alone, the reverse null by another name."""

from __future__ import annotations

import numpy as np
import xarray as xr

from headspan.dims import PAIR_DIMS
from headspan.errors import HeadspanError
from headspan.lenses.affinity.schema import ALIASES, HAAR, REVERSE
from headspan.lenses.affinity.scores import reverse_moments, standardized
from headspan.statistics import layer_distance

SUMMARY = {
    "n_pairs": "n_pairs",
    "mean": "mean",
    "mean_low": "mean_low",
    "mean_high": "mean_high",
    "chance_mean": "mean_null",
    "std": "sd",
    "chance_std": "sd_null",
    "kl": "kl",
    "direction": "direction",
    "direction_p_value": "direction_p",
    "direction_ks": "direction_ks",
}
"""Old names of numbers that sum up a score, and what follows the score's name today."""


def upgraded(dataset: xr.Dataset) -> xr.Dataset:
    """One pairing as today's schema names it. Expected values under haar are those of heads of full rank."""
    if "pair" in dataset.dims:
        raise HeadspanError("sketches of version 1 cannot be read; compute the result again")
    old = ["p_value", "q_value", "metric", *(name for name in SUMMARY if name in dataset)]
    found = dataset.drop_vars(old).assign_coords(null=[HAAR, REVERSE])
    for alias, name in ALIASES.items():
        if name in dataset:
            found = found.assign(_derived(dataset, alias, name)).assign(
                {
                    f"{name}_{new}": dataset[old].sel(metric=alias, drop=True)
                    for old, new in SUMMARY.items()
                    if old in dataset
                }
            )
    first = next(alias for alias, name in ALIASES.items() if name in dataset)
    return found.assign(n_pairs=dataset["n_pairs"].sel(metric=first, drop=True).astype(int))


def _derived(dataset: xr.Dataset, alias: str, name: str) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Mean, standard deviation, z, p and q of every pair under both nulls."""
    values = dataset[name].transpose(*PAIR_DIMS).values
    layers = dataset["src_layer"].values
    distance = np.broadcast_to(layer_distance(layers, layers), values.shape)
    everyone = np.where(distance > 0, values, dataset[f"{name}_reverse"].transpose(*PAIR_DIMS).values)
    haar = [np.full(values.shape, float(dataset[what].sel(metric=alias))) for what in ("chance_mean", "chance_std")]
    null, null_sd = (
        np.stack([np.where(np.isnan(values), np.nan, each) for each in both])
        for both in zip(haar, reverse_moments(everyone, distance), strict=True)
    )
    p, q = (dataset[kind].sel(metric=alias).transpose("null", *PAIR_DIMS).values for kind in ("p_value", "q_value"))
    undefined = np.isnan(p[1]).all()
    null[1], null_sd[1] = (np.where(undefined, np.nan, each[1]) for each in (null, null_sd))
    found = {"null": null, "null_sd": null_sd, "z": standardized(values, null, null_sd), "p": p, "q": q}
    return {f"{name}_{what}": (("null", *PAIR_DIMS), each) for what, each in found.items()}
