"""A low-rank fine-tune of a trained model: in which of its subspaces does the change land?

The model stays as it is; every attention matrix W gets a change B A of a small rank, A random and B zero at first, and
only these are trained (LoRA). The new task is the old one in sequences twice as long, which the model solves in part.
The change of a matrix that reads the stream (Q, K, V) has directions in it, and so has that of one that writes to it
(O); the share of their energy in a named subspace is compared with two controls: a random change of the same rank,
whose share is the subspace's share of all dimensions on average, and an adapter trained as long on sequences whose
tokens were shuffled, in which there is nothing to copy.

References
----------
Hu et al. (2022), LoRA: low-rank adaptation of large language models.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call

from headspan.errors import ArgumentError, DegenerateSubspace
from headspan.lab.ablation import Site, named_bases, sites
from headspan.lab.model import LabModel
from headspan.lab.named_spaces import PROJECTION, NamedSpaces, sizes
from headspan.lab.optimizers import AdamW
from headspan.lab.recipe import Recipe
from headspan.lab.scores import loss_and_accuracy, next_token_loss
from headspan.lab.sequences import Sequences
from headspan.lab.source import Source
from headspan.lab.study import Bench
from headspan.subspaces import random_subspaces

RANK, STEPS, RATE, STRETCH = 2, 300, 1e-2, 2
DATA_SEED, RANDOM_CHANGES = 5_000_000, 200
CHANGES = ("adapter", "adapter on shuffled tokens")
Factors = dict[str, tuple[Tensor, Tensor]]


def adapter_study(bench: Bench, steps: int = STEPS, rank: int = RANK) -> tuple[xr.Dataset, LabModel]:
    """Adapters of a run's model for sequences twice as long, and the model with the first one merged in.

    Returns
    -------
    Dataset
        `energy` [change, site, space] in [0, 1]: share of the change's energy in the space; `energy_null` [space], that
        of a random change, with `energy_null_sd`. `size` [change, site], norm of the change over that of
        the matrix. `accuracy` [state], OOD, in sequences twice as long: before, and with each adapter.
    """
    recipe, model = bench.recipe, bench.after
    if recipe.task.kind != "copying" or recipe.shape.positions == "learned":
        raise ArgumentError("the study adapter needs a run of copying whose positions do not end (not learned)")
    longer = replace(recipe.task, length=STRETCH * recipe.task.length)
    test = Source(longer).test("ood", recipe.test_size)
    adapted = [trained_adapter(model, recipe, Source(longer), steps, rank, shuffled) for shuffled in (False, True)]
    models = [merged(model, factors) for factors in adapted]
    bases, places = _spaces(model), sites(recipe.shape.layers)[1:]
    found = [[_shares(factors, site, bases) for site in places] for factors in adapted]
    dims = ("change", "site", "space")
    dataset = xr.Dataset(
        {
            "energy": (dims, np.array(found)),
            "energy_null": (("space",), [U.shape[1] / U.shape[0] for U in bases.values()]),
            "energy_null_sd": (("space",), [_random_spread(U, rank, recipe.seed) for U in bases.values()]),
            "size": (dims[:2], [[_size(model, factors, site) for site in places] for factors in adapted]),
            "accuracy": (("state",), [loss_and_accuracy(one, test)["accuracy"] for one in (model, *models)]),
        },
        coords={"change": list(CHANGES), "site": [str(site) for site in places], "space": list(bases),
                "state": ["before", *CHANGES]},
        attrs={"rank": rank, "steps": steps, "length": longer.length},
    )  # fmt: skip
    return dataset, models[0]


def _spaces(model: LabModel) -> dict[str, Float[Tensor, "d k"]]:
    """The named subspaces; the bridge alone where the embedding has no gap."""
    try:
        return named_bases(model)
    except DegenerateSubspace:
        spaces = NamedSpaces.of(model)
        return {"bridge": spaces.bridge[:, : sizes(spaces.d)[1]]}


def _name(site: Site) -> str:
    return f"layers.{site.layer}.self_attn.{PROJECTION[site.role]}.weight"


def trained_adapter(
    model: LabModel, recipe: Recipe, source: Source, steps: int, rank: int, shuffled: bool = False
) -> Factors:
    """Factors (B, A) of a low-rank change of every attention matrix, by its name, after training on a source."""
    generator, factors = torch.Generator().manual_seed(recipe.seed + DATA_SEED), {}
    for site in sites(model.shape.layers)[1:]:
        out, into = model.get_parameter(_name(site)).shape
        A = torch.randn(rank, into, generator=generator) * into**-0.5
        factors[_name(site)] = (torch.zeros(out, rank).requires_grad_(), A.requires_grad_())
    leaves = [leaf for pair in factors.values() for leaf in pair]
    optimizer = AdamW(leaves, lr=RATE, betas=recipe.betas, eps=recipe.eps, weight_decay=0.0)
    frozen = {name: p.detach() for name, p in model.named_parameters()}
    for _ in range(steps):
        batch = source.draw(recipe.batch, generator)
        batch = _shuffled(batch, generator) if shuffled else batch
        changed = {name: frozen[name] + B @ A for name, (B, A) in factors.items()}
        loss = next_token_loss(functional_call(model, frozen | changed, batch.tokens), batch)
        optimizer.zero_grad()
        torch.autograd.backward(loss, inputs=leaves)
        optimizer.step()
    return {name: (B.detach(), A.detach()) for name, (B, A) in factors.items()}


def _shuffled(batch: Sequences, generator: torch.Generator) -> Sequences:
    order = torch.argsort(torch.rand(batch.tokens.shape, generator=generator), dim=1)
    return Sequences(batch.tokens.gather(1, order), batch.scored, batch.origin)


@torch.no_grad()
def merged(model: LabModel, factors: Factors) -> LabModel:
    """A copy of the model with the change in its matrices."""
    changed = copy.deepcopy(model)
    for name, (B, A) in factors.items():
        changed.get_parameter(name).add_(B @ A)
    return changed


def _shares(factors: Factors, site: Site, bases: dict[str, Tensor]) -> list[float]:
    B, A = (factor.double() for factor in factors[_name(site)])
    change = (B @ A).T if site.role == "O" else B @ A  # rows in the stream
    whole = float(change.square().sum())
    return [float((change @ U).square().sum()) / max(whole, 1e-300) for U in bases.values()]


def _random_spread(U: Float[Tensor, "d k"], rank: int, seed: int) -> float:
    """Standard deviation of the share of a random change of this rank, all of its directions alike."""
    drawn = random_subspaces((RANDOM_CHANGES,), U.shape[0], rank, seed).basis
    shares = (drawn.mT @ U).square().sum((1, 2)) / rank
    return float(shares.std())


def _size(model: LabModel, factors: Factors, site: Site) -> float:
    B, A = factors[_name(site)]
    return float((B @ A).norm() / model.get_parameter(_name(site)).detach().norm())
