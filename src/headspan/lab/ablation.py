"""The ablation table: each named subspace taken out at each site, beside random subspaces of the same dimension.

A removal hurts for two reasons: the subspace carried something, or any subspace so large would have. Only the
difference to the random control says which. Previous-token and induction scores say what broke.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.errors import DegenerateSubspace
from headspan.lab.model import LabModel
from headspan.lab.named_spaces import NamedSpaces, sizes
from headspan.lab.removal import Site, sites, without
from headspan.lab.scores import accuracy, attention_scores
from headspan.lab.sequences import Sequences
from headspan.lab.spectral_split import spectral_split
from headspan.statistics import mean_interval
from headspan.subspaces import random_subspaces

SPACES = ("top", "medium", "bottom", "bridge")
CONTROLS = 3
SCORES = ("accuracy", "previous_token", "induction")


def named_bases(model: LabModel) -> dict[str, Float[Tensor, "d k"]]:
    """Orthonormal bases of top, medium, bottom and bridge (cut at the middle k).

    Raises
    ------
    DegenerateSubspace
        Where the embedding's spectrum has no gap, so that there are no three parts, or the model one layer.
    """
    spaces = NamedSpaces.of(model)
    values, directions = spaces.embedding
    split = spectral_split(values, (spaces.W_E.shape[0], spaces.d))
    if not split.found:
        raise DegenerateSubspace(
            f"the embedding's spectrum has no gap (largest {split.gap:.3g}, p = {split.p_value:.2g}), so it has "
            "no medium and bottom part; train longer"
        )
    if not spaces.paired:
        raise DegenerateSubspace("a bridge needs a layer 1 that reads what layer 0 wrote; the model has one layer")
    first = split.top + split.medium
    return {
        "top": directions[:, : split.top],
        "medium": directions[:, split.top : first],
        "bottom": directions[:, first:],
        "bridge": spaces.bridge[:, : sizes(spaces.d)[1]],
    }


def removal_scores(model: LabModel, site: Site, basis: Float[Tensor, "d k"], test: Sequences) -> dict[str, float]:
    """The scores of `scores_of` after a removal."""
    return scores_of(without(model, site, basis), test)


@torch.no_grad()
def scores_of(model: LabModel, test: Sequences) -> dict[str, float]:
    """Accuracy on `test`, previous-token score of the first layer's best head, induction score of the last layer's."""
    seen = model.seen(test.tokens)
    scores = attention_scores(seen, test)
    return {
        "accuracy": accuracy(seen.logits, test),
        "previous_token": float(scores["previous_token"][0].max()),
        "induction": float(scores["induction"][-1].max()),
    }


def ablation_table(model: LabModel, test: Sequences, seed: int = 0, controls: int = CONTROLS) -> xr.Dataset:
    """Every named subspace out of every site.

    Parameters
    ----------
    model
        A trained model whose embedding has a gap.
    test
        Sequences to score on.
    seed, controls
        Of the random subspaces, and how many per site and dimension.

    Returns
    -------
    Dataset
        `accuracy`, `previous_token`, `induction` [space, site] in [0, 1]; the same with `_control` [space, site,
        control] for random subspaces of equal dimension, and `_whole` for the model as it is; `dimension [space]`.
    """
    bases = named_bases(model)
    places, d = sites(model.shape.layers), model.shape.d_model
    shape = (len(SPACES), len(places))
    values = {name: np.full(shape, np.nan) for name in SCORES}
    random = {name: np.full((*shape, controls), np.nan) for name in SCORES}
    for row, space in enumerate(SPACES):
        k = bases[space].shape[1]
        drawn = random_subspaces((controls,), d, k, seed + row)
        for column, site in enumerate(places):
            _put(values, (row, column), removal_scores(model, site, bases[space], test))
            for number in range(controls):
                _put(random, (row, column, number), removal_scores(model, site, drawn.basis[number], test))
    whole = scores_of(model, test)
    return xr.Dataset(
        {
            **{name: (("space", "site"), values[name]) for name in SCORES},
            **{f"{name}_control": (("space", "site", "control"), random[name]) for name in SCORES},
            **{f"{name}_whole": whole[name] for name in SCORES},
            "dimension": (("space",), [bases[space].shape[1] for space in SPACES]),
        },
        coords={"space": list(SPACES), "site": [str(site) for site in places]},
    )


def _put(arrays: Mapping[str, np.ndarray], where: tuple[int, ...], scores: Mapping[str, float]) -> None:
    for name, value in scores.items():
        arrays[name][where] = value


def over_seeds(tables: Sequence[xr.Dataset]) -> xr.Dataset:
    """Tables of several seeds as one, with the mean over seeds and Student's 95 % interval of it.

    Returns
    -------
    Dataset
        The scores with an axis `seed`; `<score>_mean`, `<score>_low`, `<score>_high` [space, site], and the same of the
        controls (`<score>_control_mean`, ..., each seed's controls averaged first).
    """
    joined = xr.concat(list(tables), dim="seed", join="exact", combine_attrs="drop_conflicts", data_vars="all")
    added = {}
    for name in SCORES:
        for label, values in ((name, joined[name]), (f"{name}_control", joined[f"{name}_control"].mean("control"))):
            cells = np.apply_along_axis(mean_interval, 0, values.transpose("seed", "space", "site").values)
            for place, end in enumerate(("mean", "low", "high")):
                added[f"{label}_{end}"] = (("space", "site"), cells[place])
    return joined.assign(added)
