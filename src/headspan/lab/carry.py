"""Sums of several digits: where a model holds the carry, and whether it uses it.

The digit of the result at a place depends on the carry into it. At the position that predicts that digit:

1. Decoding: from half of the sums, the direction that best separates carry from no carry (a linear discriminant with a
   ridge); how often it is right on the other half, each class counted alike. Operands in the stream also say something
   about their carry, so the untrained model is the control, and shuffled labels are the floor.
2. Steering: the mean difference between carry and no carry is added to the stream of sums without one. If the model
   reads its carry there, the digit goes up by one. A random move of the same length is the control.
3. Where the difference lies: the share of its energy in the span of the digits' embeddings, in what layer 0 mostly
   writes, and in the bridge; a random direction has k/d.

Depth 0 is the stream behind the embedding, depth l behind layer l - 1. In a scratchpad the digits are predicted from
the carry's own token, so that depth 0 holds it.
"""

from __future__ import annotations

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headspan.lab.arithmetic import BASE, column_sums, digit_sequences, layout_of
from headspan.lab.model import LabModel
from headspan.lab.named_spaces import NamedSpaces, sizes
from headspan.lab.run_folder import open_model
from headspan.lab.study import Bench
from headspan.lab.task import Task

SUMS, SEED, RIDGE = 2_000, 4_000_000, 1e-2
MODELS, SPACES = ("trained", "untrained"), ("digits", "written", "bridge")


def carry_study(bench: Bench) -> xr.Dataset:
    """Decoding, steering and place of the carry, for a trained model and for the same one untrained.

    Returns
    -------
    Dataset
        `decoded`, `decoded_shuffled` [model, depth, place]: balanced accuracy on held-out sums, in [0, 1], one half
        under the null. `steered`, `steered_random` [model, depth, place]: share of sums without a carry whose digit
        goes up by one, in [0, 1]. `energy` [model, depth, space] of the mean differences, in [0, 1], with
        `energy_null` [space]. Place 1 is the second digit from the right.
    """
    task = bench.recipe.task
    models = {"trained": bench.after, "untrained": open_model(bench.checkpoints[min(bench.checkpoints)])}
    found = {name: _one_model(model, task) for name, model in models.items()}
    joined = xr.concat(list(found.values()), dim="model", join="exact", combine_attrs="drop_conflicts")
    return joined.assign_coords(model=list(found)).assign_attrs(scratchpad=int(task.scratchpad))


@torch.no_grad()
def _one_model(model: LabModel, task: Task) -> xr.Dataset:
    layout, n, depths = layout_of(task), task.digits, model.shape.layers + 1
    tokens = digit_sequences(task, SUMS, torch.Generator().manual_seed(SEED)).tokens
    carry = column_sums(tokens[:, :n].flip(1), tokens[:, n : 2 * n].flip(1))[1].bool()
    where = layout.scratch_place if task.scratchpad else layout.result_place
    places = list(range(1, n if task.scratchpad else n + 1))
    streams = stream_by_depth(model, tokens)
    numbers = np.full((4, depths, len(places)), np.nan)
    moves = torch.zeros(depths, len(places), model.shape.d_model)
    for column, place in enumerate(places):
        label, at = carry[:, place - 1], where(place) - 1
        for depth in range(depths):
            x = streams[depth][:, at]
            moves[depth, column] = x[label].mean(0) - x[~label].mean(0)
            numbers[:2, depth, column] = _decoded(x, label)
            numbers[2:, depth, column] = _steered(model, tokens[~label], depth, at, moves[depth, column])
    names = ("decoded", "decoded_shuffled", "steered", "steered_random")
    energy, null = _energies(model, moves)
    return xr.Dataset(
        {name: (("depth", "place"), table) for name, table in zip(names, numbers, strict=True)}
        | {"energy": (("depth", "space"), energy), "energy_null": (("space",), null)},
        coords={"depth": list(range(depths)), "place": places, "space": list(SPACES)},
    )


def stream_by_depth(
    model: LabModel, tokens: Int[Tensor, "n T"], change: tuple[int, int, Tensor] | None = None
) -> list[Float[Tensor, "n T d"]]:
    """The stream behind the embedding and every layer; with a change (depth, position, vector), that is added."""
    x = model.embed(tokens)
    rotation, streams = model.rotation(tokens.shape[1], x), []
    for depth in range(len(model.stack) + 1):
        if depth:
            layer = model.stack[depth - 1]
            x = model.add_mlp(layer, x + layer.self_attn(layer.input_layernorm(x), rotation))
        if change is not None and change[0] == depth:
            x = x.clone()
            x[:, change[1]] += change[2]
        streams.append(x)
    return streams


def _decoded(x: Float[Tensor, "n d"], label: Bool[Tensor, " n"]) -> tuple[float, float]:
    """Balanced held-out accuracy of a linear discriminant, and the same with labels shuffled before fitting."""
    order = torch.randperm(len(label), generator=torch.Generator().manual_seed(SEED))
    return discriminant_accuracy(x, label, label), discriminant_accuracy(x, label[order], label)


def discriminant_accuracy(x: Float[Tensor, "n d"], fitted: Bool[Tensor, " n"], true: Bool[Tensor, " n"]) -> float:
    """Fit a linear discriminant to labels on the first half of the rows; balanced accuracy on the second half."""
    half, x = len(x) // 2, x.double()
    first, classes = x[:half], fitted[:half]
    means = [first[classes == value].mean(0) for value in (False, True)]
    centered = torch.where(classes[:, None], first - means[1], first - means[0])
    covariance = centered.T @ centered / half
    ridge = RIDGE * covariance.diagonal().mean() + 1e-12
    direction = torch.linalg.solve(covariance + ridge * torch.eye(x.shape[1]).double(), means[1] - means[0])
    guess = x[half:] @ direction > (means[0] + means[1]) @ direction / 2
    rates = [(guess[true[half:] == value] == value).double().mean() for value in (False, True)]
    return float(sum(rates) / 2)


def _steered(model: LabModel, tokens: Tensor, depth: int, at: int, move: Tensor) -> tuple[float, float]:
    """Share of sums whose next digit goes up by one when the stream is moved; and when it is moved at random."""
    random = torch.randn(len(move), generator=torch.Generator().manual_seed(SEED))
    aim = (tokens[:, at + 1] + 1) % BASE
    found = []
    for vector in (move, random * move.norm() / random.norm()):
        end = stream_by_depth(model, tokens, (depth, at, vector))[-1][:, at]
        found.append(float((model.unembed(end).argmax(-1) == aim).double().mean()))
    return found[0], found[1]


def _energies(model: LabModel, moves: Float[Tensor, "depth place d"]) -> tuple[np.ndarray, np.ndarray]:
    """Share of the differences' energy in each space, [depth, space], and the spaces' shares of all dimensions."""
    spaces = NamedSpaces.of(model)
    k = sizes(spaces.d)[1]
    digits = torch.linalg.svd(spaces.W_E[:BASE] - spaces.W_E[:BASE].mean(0), full_matrices=False).Vh[: BASE - 1].T
    bases = (digits, spaces.write_directions[:, :k], spaces.bridge[:, :k])
    shares = [[float((m.double() @ U).square().sum() / m.double().square().sum().clamp(min=1e-300)) for U in bases]
              for m in moves]  # fmt: skip
    return np.array(shares), np.array([U.shape[1] for U in bases]) / spaces.d
