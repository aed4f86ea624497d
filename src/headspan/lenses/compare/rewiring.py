"""Edges of the wiring gained and lost, and whether a random change of the same size would have moved them as far.

1. The projection kernel of every composing pair before and after, each with its q-value (`headspan.lenses.affinity`).
2. An edge is there where q is below the level; gained if it is there only after, lost if only before.
3. Null of the change: to every head of the first checkpoint a Gaussian matrix is added, of the norm of that head's own
   change, and all kernels are computed again; `draws` times. A change that erases weights pulls every kernel towards
   its chance value, and this null shows by how much.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headspan.dims import PAIR_DIMS, Role
from headspan.heads import Heads
from headspan.heads.memory import memory_bytes
from headspan.lenses import affinity
from headspan.lenses.affinity.edges import pairing_node, pairings_of
from headspan.lenses.affinity.pair_tables import roles_of
from headspan.lenses.affinity.scores import pair_shape
from headspan.lenses.drift.perturbation import drift_test
from headspan.statistics import q_values
from headspan.subspaces import Subspace, orthonormal_basis, projection_kernels
from headspan.subspaces.subspace import concatenate

MANY_HEADS = 400
"""Above this many heads the null of changes is left out: it would need every basis of the model many times."""
ABSENT, KEPT, GAINED, LOST = range(4)
STATUS = ("absent", "kept", "gained", "lost")


@dataclass(frozen=True)
class Edge:
    """When a pair counts as an edge: its q-value under `null` is below `level`."""

    level: float
    null: str


def rewiring(
    before: Heads, after: Heads, moved: xr.Dataset, edge: Edge, tolerance: float | None, memory: int | str
) -> tuple[dict[str, xr.Dataset], str]:
    """One dataset per pairing, and a line on the null of changes; draws and seed are those of the drift `moved`.

    Pairs are [src_layer, src_head, dst_layer, dst_head], NaN where they do not compose: `kernel_before`,
    `kernel_after` in [0, p]; `q_before`, `q_after`; `change`, with `change_chance`, `change_sd`, `change_z`, `p_value`
    and `q_value` (two-sided, uniform by chance); `status`: 0 absent, 1 kept, 2 gained, 3 lost. Heads that lack
    directions have no null: a random change would fill them up.
    """
    draws, seed = int(moved.attrs["draws"]), int(moved.attrs["seed"])
    first, second = (
        affinity.compute(heads, metrics=("pk",), seed=seed, tolerance=tolerance, memory=memory)
        for heads in (before, after)
    )
    pairings = pairings_of(first)
    few = before.n_layers * before.n_heads <= MANY_HEADS
    moments = _null_moments(before, moved, pairings, draws, seed, memory) if few else {}
    nodes = {}
    for pairing in pairings:
        pair = pairing_node(first, pairing), pairing_node(second, pairing)
        defined = _full_rank(pair[0], before, pairing) & _full_rank(pair[1], before, pairing)
        mean, sd = moments.get(pairing, (np.nan, np.nan))
        null = np.where(defined, mean, np.nan), np.where(defined, sd, np.nan)
        nodes[pairing] = _pairing_dataset(pair, null, draws, edge)
    note = f"a Gaussian change of the same norm to every head, {draws} draws"
    return nodes, note if few else f"left out: more than {MANY_HEADS} heads"


def _full_rank(node: xr.Dataset, heads: Heads, pairing: str) -> np.ndarray:
    """[src_layer, src_head, dst_layer, dst_head]: whether both heads have all their directions."""
    src, dst = (min(heads.shape(role)[2:]) for role in roles_of(pairing))
    full = (node["src_rank"] == src).values[..., None, None] & (node["dst_rank"] == dst).values
    return np.asarray(full)


def _pairing_dataset(
    pair: tuple[xr.Dataset, xr.Dataset], null: tuple[np.ndarray, np.ndarray], draws: int, edge: Edge
) -> xr.Dataset:
    kernels = [node["projection_kernel"].transpose(*PAIR_DIMS).values for node in pair]
    q = [node["q_value"].sel(metric="pk", null=edge.null).transpose(*PAIR_DIMS).values for node in pair]
    there = [values < edge.level for values in q]
    status = np.select([there[0] & there[1], ~there[0] & there[1], there[0] & ~there[1]], [KEPT, GAINED, LOST], ABSENT)
    change = kernels[1] - kernels[0]
    spread = np.where(np.isnan(change), np.nan, null[1])
    # Where neither head changed, what the draws differ by is rounding.
    expected = np.where(spread == 0, 0.0, null[0] - kernels[0])
    z, p_value = drift_test(change, expected, spread, draws)
    arrays = {"kernel_before": kernels[0], "kernel_after": kernels[1], "q_before": q[0], "q_after": q[1]}
    arrays |= {"change": change, "change_chance": expected, "change_sd": spread, "change_z": z, "p_value": p_value}
    arrays |= {"q_value": q_values(p_value), "status": status.astype(np.int8)}
    kept = {name: pair[0].attrs[name] for name in ("pairing", "src_kv", "dst_kv")}
    coords = {name: pair[0][name].values for name in ("src_layer", "dst_layer")}
    return xr.Dataset({name: (PAIR_DIMS, values) for name, values in arrays.items()}, coords=coords, attrs=kept)


def _null_moments(
    before: Heads, moved: xr.Dataset, pairings: list[str], draws: int, seed: int, memory: int | str
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Mean and standard deviation over draws of every kernel after a random change of every head."""
    roles: tuple[Role, ...] = tuple(dict.fromkeys(role for pairing in pairings for role in roles_of(pairing)))
    heads = before.to("float64" if before.d_model <= affinity.FLOAT64_WIDTH else "float32")
    weights = {role: [_tall(heads, layer, role) for layer in heads.layers] for role in roles}
    sizes = {role: _sizes(moved, weights[role], role) for role in roles}
    sums = {pairing: [np.zeros(pair_shape(before, pairing)) for _ in range(2)] for pairing in pairings}
    first: dict[str, np.ndarray] = {}
    for draw in range(draws):
        generator = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, draw]).generate_state(1)[0]))
        spaces = {role: _perturbed(weights[role], sizes[role], generator) for role in roles}
        for pairing in pairings:
            src, dst = (spaces[role] for role in roles_of(pairing))
            (table,) = projection_kernels(src, [dst], memory=memory_bytes(memory))
            kernel = table.double().numpy(force=True).reshape(pair_shape(before, pairing))
            # Deviations from the first draw: sums of squares of small spreads keep their digits.
            offset = kernel - first.setdefault(pairing, kernel)
            sums[pairing][0] += offset
            sums[pairing][1] += offset**2
    return {pairing: _moments(first[pairing], sums[pairing], draws) for pairing in pairings}


def _moments(first: np.ndarray, sums: list[np.ndarray], draws: int) -> tuple[np.ndarray, np.ndarray]:
    mean = sums[0] / draws
    variance = (sums[1] - draws * mean**2) / (draws - 1)
    return first + mean, np.sqrt(np.maximum(variance, 0.0))


def _tall(heads: Heads, layer: int, role: Role) -> Tensor:
    W = heads.layer(layer, (role,)).weight(role)[0]
    return W.mT.contiguous() if role == "O" else W


def _sizes(moved: xr.Dataset, weights: list[Tensor], role: Role) -> list[Tensor]:
    """The norm of every head's change, layer by layer."""
    shares = moved[f"relative_change_{role}"].values
    # A head that was zero has no relative change; nothing can be read from it before, so its edges have no null.
    known = np.nan_to_num(shares, nan=0.0)
    return [torch.as_tensor(row) * torch.linalg.matrix_norm(W).cpu() for row, W in zip(known, weights, strict=True)]


def _perturbed(weights: list[Tensor], sizes: list[Tensor], generator: torch.Generator) -> Subspace:
    """The spans of all heads of a role, in one list, after one random change of each."""
    spaces = []
    for W, size in zip(weights, sizes, strict=True):
        noise = torch.randn(W.shape, generator=generator, dtype=torch.float64)
        noise *= (size / torch.linalg.matrix_norm(noise))[:, None, None]
        spaces.append(orthonormal_basis(W + noise.to(W)))
    return concatenate(spaces)
