"""Parts of a model taken out or exchanged: which of them carries what was learned?

Ablation: each named subspace is taken out at each site, and beside it random subspaces of the same dimension. A removal
hurts for two reasons: the subspace carried something, or any subspace so large would have. Only the difference to the
random control says which. With the projector P onto the subspace, W_E (I - P) embeds without it, (I - P) W_Q reads the
(normed) stream without it, and W_O (I - P), b_O (I - P) write without it. All are changes of weights, so an ablated
model is a model like any other and every score applies to it.

Swaps: layer 0 of the model after the transition in the model before it, and the reverse. Where both swaps fail, neither
part works alone: the two were learned together.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError, DegenerateSubspace, ShapeError
from headspan.lab.geometry import group_of
from headspan.lab.model import LabModel
from headspan.lab.named_spaces import PARTS, PROJECTION, NamedSpaces, sizes
from headspan.lab.scores import accuracy, attention_scores
from headspan.lab.sequences import Sequences
from headspan.statistics import mean_interval
from headspan.subspaces import random_subspaces

Role = Literal["E", "Q", "K", "V", "O"]
SPACES = (*PARTS, "bridge")
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
    if not spaces.split.found:
        raise DegenerateSubspace(
            f"the embedding's spectrum has no gap (largest {spaces.split.gap:.3g}, p = {spaces.split.p_value:.2g}), so "
            "it has no medium and bottom part; train longer"
        )
    if not spaces.has_pair:
        raise DegenerateSubspace("a bridge needs a layer 1 that reads what layer 0 wrote; the model has one layer")
    return {**spaces.embedding_parts, "bridge": spaces.bridge[:, : sizes(spaces.d)[1]]}


@torch.no_grad()
def scores_of(model: LabModel, test: Sequences) -> dict[str, float]:
    """Accuracy on `test`, previous-token score of the first layer's best head, induction score of the last layer's."""
    trace = model.trace(test.tokens)
    scores = attention_scores(trace, test)
    return {
        "accuracy": accuracy(trace.logits, test),
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
    values = {name: np.full((len(SPACES), len(places)), np.nan) for name in SCORES}
    random = {name: np.full((len(SPACES), len(places), controls), np.nan) for name in SCORES}
    for row, space in enumerate(SPACES):
        drawn = random_subspaces((controls,), d, bases[space].shape[1], seed + row).basis
        for column, site in enumerate(places):
            for name, score in scores_of(without(model, site, bases[space]), test).items():
                values[name][row, column] = score
            for number in range(controls):
                for name, score in scores_of(without(model, site, drawn[number]), test).items():
                    random[name][row, column, number] = score
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


@dataclass(frozen=True)
class Site:
    """Where a subspace is taken out: the embedding (`E`), or one role of one layer."""

    role: Role
    layer: int = 0

    def __str__(self) -> str:
        return "embedding" if self.role == "E" else f"L{self.layer} {self.role}"


def sites(layers: int) -> list[Site]:
    """The embedding, and every role of every layer."""
    roles: Sequence[Role] = ("Q", "K", "V", "O")
    return [Site("E"), *(Site(role, layer) for layer in range(layers) for role in roles)]


@torch.no_grad()
def without(model: LabModel, site: Site, basis: Float[Tensor, "d k"]) -> LabModel:
    """A copy of the model in which `site` does not see the span of `basis`.

    Parameters
    ----------
    model
        Left as it is.
    site
        Where.
    basis
        [d_model, k], orthonormal columns.
    """
    if basis.shape[0] != model.shape.d_model:
        raise ShapeError(f"a basis of R^{basis.shape[0]} does not fit a stream of {model.shape.d_model} dimensions")
    if site.role != "E" and not 0 <= site.layer < model.shape.layers:
        raise ArgumentError(f"layer needs to be in 0..{model.shape.layers - 1}, found {site.layer}")
    changed = copy.deepcopy(model)
    U = basis.to(changed.embed_tokens.weight)
    if site.role == "E":
        _remove_from_rows(changed.embed_tokens.weight, U)
        return changed
    attention = changed.stack[site.layer].self_attn
    weight = attention.get_parameter(f"{PROJECTION[site.role]}.weight")  # [out, in], as torch keeps it
    if site.role == "O":
        weight.sub_(U @ (U.T @ weight))
        if model.shape.bias:
            bias = attention.get_parameter("o_proj.bias")
            bias.sub_(U @ (U.T @ bias))
    else:
        _remove_from_rows(weight, U)
    return changed


def _remove_from_rows(rows: Tensor, U: Tensor) -> None:
    rows.sub_((rows @ U) @ U.T)


@torch.no_grad()
def with_part(receiver: LabModel, donor: LabModel, prefix: str) -> LabModel:
    """A copy of `receiver` with those parameters of `donor` whose group starts with `prefix`: `L0`, `L0 O`, `W_E`."""
    if receiver.shape != donor.shape:
        raise ShapeError("parts can be swapped between models of one shape only, and these differ")
    changed, names = copy.deepcopy(receiver), [name for name, _ in receiver.named_parameters()]
    wanted = [name for name in names if group_of(name).startswith(prefix)]
    if not wanted:
        known = ", ".join(sorted(set(map(group_of, names))))
        raise ArgumentError(f"the model has no part {prefix!r}; parts are {known}")
    for name in wanted:
        changed.get_parameter(name).copy_(donor.get_parameter(name))
    return changed


def swap_scores(before: LabModel, after: LabModel, test: Sequences) -> dict[str, dict[str, float]]:
    """Scores of both models, and of each with the other's layers or tables, by description."""
    found = {"before": scores_of(before, test), "after": scores_of(after, test)}
    for part in (*(f"L{layer}" for layer in range(before.shape.layers)), "W_E", "W_U"):
        if part == "W_U" and before.shape.tied:
            continue
        found[f"before, {part} from after"] = scores_of(with_part(before, after, part), test)
        found[f"after, {part} from before"] = scores_of(with_part(after, before, part), test)
    return found
