"""The change of every whole matrix: its size, how many directions it has, and intruder dimensions.

A matrix is laid with the stream first, [d_model, n]: its left singular vectors are directions that it reads (Q, K, V
and what an MLP reads) or writes (O and what an MLP writes).

1. `change_rank`, the participation ratio (sum s^2)^2 / sum s^4 of the change's singular values: r for a change of r
   equal directions. Of a random change without draws, from the sums of squares along rows and columns.
2. `similarity` of each of the ten leading directions after to the nearest of all directions before, |cos|. One below a
   threshold is new: an intruder dimension (Shuttleworth et al. 2024). Directions of nearly equal singular values mix
   under any change, so that a low similarity alone says little.
3. The null: the same for the matrix with a random change of the same size, `draws` times, for every matrix that has a
   new direction. Angles are taken in units of their own spread under the null; p-values count how often such an angle
   of a draw, held against the other draws of its matrix, is as large, all matrices together. One-sided.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.dims import LAYER, ROLES
from headspan.heads import Heads
from headspan.lenses.compare.change_tokens import Directions, token_nodes
from headspan.statistics import q_values
from headspan.subspaces.random_changes import random_change

LEADING, READ = 10, 3
"""Directions after that are held against those before, and directions of the change that are read in tokens."""
WIDEST = 2048
"""Above this d_model the directions of whole matrices are left out: each takes a decomposition of d_model x d_model."""
DIRECTION = "direction"
TESTED = ("null", "null_sd", "z", "p", "q")


@dataclass(frozen=True)
class _Matrix:
    """What became of one matrix."""

    numbers: dict[str, float]
    similarity: Float[np.ndarray, " direction"]
    share: Float[np.ndarray, " direction"]
    drawn: Float[np.ndarray, "draw direction"] | None
    """Similarities after random changes; None where no direction is new."""
    change: tuple[Float[Tensor, "d k"], Float[Tensor, " k"]] | None
    """The leading directions of the change itself and their shares of its energy; None where nothing changed."""


def change_nodes(
    before: Heads, after: Heads, *, similarity: float, level: float, noise: str, draws: int, seed: int
) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    """`change/<kind>` over layers, `tokens/<kind>` along the change unless it is rounding noise, and attributes."""
    if before.d_model > WIDEST:
        return {}, {"change_left_out": f"directions of whole matrices are compared up to d_model = {WIDEST}"}
    found: dict[str, list[_Matrix]] = {}
    with torch.no_grad():
        for layer in before.layers:
            pairs = zip(_matrices(before, layer), _matrices(after, layer), strict=True)
            for place, ((kind, W), (_, changed)) in enumerate(pairs):
                state = np.random.SeedSequence([seed, layer, place]).generate_state(1)
                generator = torch.Generator().manual_seed(int(state[0]))
                found.setdefault(kind, []).append(_matrix_change(W, changed, similarity, noise, draws, generator))
    tested = _tested(found)
    nodes = {}
    for kind, matrices in found.items():
        data = {name: np.array([one.numbers[name] for one in matrices]) for name in matrices[0].numbers}
        tables = {"similarity": np.stack([one.similarity for one in matrices]), **tested[kind]}
        tables["direction_share"] = np.stack([one.share for one in matrices])
        new = tables["similarity"] < similarity
        data |= {"n_new": new.sum(-1), "n_intruders": (new & (tables["similarity_q"] < level)).sum(-1)}
        data["n_new_null"] = np.array([_mean_new(one.drawn, similarity) for one in matrices])
        variables: dict[str, Any] = {name: (LAYER, values) for name, values in data.items()}
        variables |= {name: ((LAYER, DIRECTION), values) for name, values in tables.items()}
        nodes[f"change/{kind}"] = xr.Dataset(variables, coords={LAYER: list(before.layers)})
    if noise != "rounding":
        changes: dict[str, Directions] = {kind: [one.change for one in matrices] for kind, matrices in found.items()}
        nodes |= token_nodes(before, changes, seed)
    return nodes, {"similarity": similarity}


def _matrices(heads: Heads, layer: int) -> Iterator[tuple[str, Float[Tensor, "d n"]]]:
    """Every whole matrix of a layer by kind, the stream first, in float64."""
    block = heads.layer(layer)
    for role in ROLES:
        W = block.weight(role)[0].double()
        yield f"W_{role}", (W.mT if role == "O" else W).movedim(0, 1).flatten(1)
    stored = heads.reader.stored
    if "MLP" in stored.parts and stored.stack.mlp is not None:
        *reads, writes = (W.double() for W in heads.mlp_matrices(layer))
        names = ("W_in",) if len(reads) == 1 else ("W_gate", "W_in")
        yield from zip(names, reads, strict=True)
        yield "W_out", writes.mT


def _matrix_change(
    W: Float[Tensor, "d n"],
    changed: Float[Tensor, "d n"],
    threshold: float,
    noise: str,
    draws: int,
    generator: torch.Generator,
) -> _Matrix:
    change = changed - W
    size, norm = float(torch.linalg.matrix_norm(change)), float(torch.linalg.matrix_norm(W))
    leading = min(LEADING, *W.shape)
    numbers = {"relative_change": size / norm if norm else float("nan")}
    if size == 0:
        same = np.full(leading, np.nan)
        numbers |= {"change_rank": float("nan"), "change_rank_null": float("nan")}
        return _Matrix(numbers, np.where(norm > 0, np.ones(leading), np.nan), same, None, None)
    vectors, squares = _directions(change, None)
    numbers |= {"change_rank": size**4 / float(squares.square().sum()), "change_rank_null": _rank_null(change, noise)}
    base = _directions(W, None)[0]
    after, values = _directions(changed, leading)
    similarity = _nearest(base, after)
    share = (values / changed.square().sum()).numpy(force=True)
    drawn = None
    if (similarity < threshold).any():
        spaces = (_directions(W + random_change(change, noise, generator), leading)[0] for _ in range(draws))
        drawn = np.stack([_nearest(base, space) for space in spaces])
    k = min(READ, leading)
    # A copy: a view of three columns would hold on to all of them.
    return _Matrix(numbers, similarity, share, drawn, (vectors[:, :k].clone(), squares[:k] / size**2))


def _rank_null(change: Float[Tensor, "d n"], noise: str) -> float:
    """The participation ratio of a random change of the same size, from expected sums of fourth powers."""
    squares, (d, n) = change.square(), change.shape
    sums = squares.sum(1).square().sum() + squares.sum(0).square().sum() - squares.square().sum()
    return float(squares.sum()) ** 2 / float(sums) if noise == "rounding" else d * n / (d + n + 1)


def _directions(W: Float[Tensor, "d n"], leading: int | None) -> tuple[Float[Tensor, "d k"], Float[Tensor, " k"]]:
    """Left singular vectors, largest first, and their squared singular values; all that the shape allows by default."""
    squares, vectors = torch.linalg.eigh(W @ W.mT)
    k = min(W.shape) if leading is None else leading
    return vectors[:, -k:].flip(-1), squares[-k:].flip(-1)


def _nearest(base: Float[Tensor, "d m"], vectors: Float[Tensor, "d k"]) -> Float[np.ndarray, " k"]:
    """|cos| of each vector with the nearest of the base's directions, in [0, 1]."""
    cosines: np.ndarray = (base.mT @ vectors).abs().amax(0).clamp(max=1.0).numpy(force=True)
    return cosines


def _mean_new(drawn: np.ndarray | None, threshold: float) -> float:
    return float("nan") if drawn is None else float((drawn < threshold).sum(-1).mean())


def _tested(found: dict[str, list[_Matrix]]) -> dict[str, dict[str, np.ndarray]]:
    """Null, z, p and q of every similarity, [layer, direction] by kind; NaN where no draws were needed."""
    empty = {
        kind: {f"similarity_{part}": np.full((len(all_), len(all_[0].similarity)), np.nan) for part in TESTED}
        for kind, all_ in found.items()
    }
    places = [
        (empty[kind], row, one.similarity, one.drawn)
        for kind, all_ in found.items()
        for row, one in enumerate(all_)
        if one.drawn is not None
    ]
    if not places:
        return empty
    pool = []
    for tables, row, similarity, drawn in places:
        tables["similarity_null"][row], tables["similarity_null_sd"][row] = drawn.mean(0), drawn.std(0, ddof=1)
        tables["similarity_z"][row], others = _angle_scores(np.arccos(similarity), np.arccos(drawn))
        pool.append(others.ravel())
    null = np.sort(np.concatenate(pool))
    for tables, row, *_ in places:
        reached = len(null) - np.searchsorted(null, tables["similarity_z"][row])
        tables["similarity_p"][row] = (1 + reached) / (1 + len(null))
    adjusted = q_values(np.concatenate([tables["similarity_p"][row] for tables, row, *_ in places]))
    ends = np.cumsum([len(similarity) for _, _, similarity, _ in places])[:-1]
    for (tables, row, *_), values in zip(places, np.split(adjusted, ends), strict=True):
        tables["similarity_q"][row] = values
    return empty


def _angle_scores(angle: np.ndarray, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Angles in standard deviations of the draws, and each draw in those of the others."""
    n = len(drawn)
    total, squares = drawn.sum(0), (drawn**2).sum(0)
    rest = (total - drawn) / (n - 1)
    spread = np.sqrt(np.maximum((squares - drawn**2 - (n - 1) * rest**2) / (n - 2), 0.0)) + 1e-9
    return (angle - drawn.mean(0)) / (drawn.std(0, ddof=1) + 1e-9), (drawn - rest) / spread
