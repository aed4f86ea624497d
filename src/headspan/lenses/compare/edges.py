"""Edges of the wiring before and after, and where the change of each head lies among the spaces of the others.

1. An edge is a pair whose projection kernel (`headspan.affinity`) has a q-value below the level; gained if it is there
   only after, lost if only before. The null of a kernel's change: every head of the first checkpoint gets a random
   change of its own size (`subspaces.random_changes`), and all kernels are computed again; `draws` times. A change that
   erases weights pulls every kernel towards its expected value, and this null shows by how much.
2. `read_share`: the share of the change of the reader's matrix that lies in what the writer writes, tr(P C) / tr(C)
   with P the projector on the writer's space and C = (W' - W)(W' - W)^T; `write_share`: the share of the change of the
   writer's matrix inside what the reader reads. Null: a random rotation of the change, which keeps its spectrum. Pairs
   in reverse order share the anisotropy of the model but no computation: `*_order_p` compares the two. Rounding noise
   is no change that could be aimed, and its steps do not turn with a rotation; there the shares are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headspan.dims import PAIR_DIMS, Role
from headspan.heads import Heads
from headspan.heads.memory import memory_bytes
from headspan.heads.precision import computing_dtype
from headspan.lenses.affinity import affinity
from headspan.progress import current_step
from headspan.statistics import direction_test, mean_interval, prediction_tail, q_values, z_score
from headspan.statistics.permutation import layer_distance
from headspan.subspaces import Subspace, concatenate, orthonormal_basis, projection_kernels, squared_overlaps
from headspan.subspaces.nulls import energy_shares, rotated_trace_log_tail, rotated_trace_moments
from headspan.subspaces.random_changes import random_change

MANY_HEADS = 400
"""Above this many heads the null of changes is left out: it would need every basis of the model many times."""
COPIES = 16
"""Arrays as large as one role's heads that are held at once: four roles before and after, their changes, one draw."""
NOISES = {
    "gaussian": "a Gaussian change of the same norm to every head",
    "rounding": "rounding noise on every head, each entry's change with a random sign",
}
Weights = Mapping[Role, list[Tensor]]
Grids = dict[str, np.ndarray]


def wiring_nodes(
    before: Heads, after: Heads, *, null: str, noise: str, level: float, draws: int, seed: int, **reading: Any
) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    """`wiring/<pairing>`, and attributes that say which nulls were used, or why there is no wiring.

    `reading` is the `tolerance` of ranks and the `memory`.
    """
    if before.n_layers < 2 or before.stack.passes:
        shared = "layers are shared by several passes, and the change of one is that of all"
        return {}, {"wiring_left_out": shared if before.stack.passes else "nothing composes: there is one layer"}
    current_step("kernels of all pairs")
    pair = [
        affinity(heads, metrics="projection_kernel", null=null, algorithm="exact", seed=seed, **reading)
        for heads in (before, after)
    ]
    null, pairings = pair[0].attrs["null"], list(pair[0].data.children)
    reason = too_much(before, memory_bytes(reading["memory"]), COPIES)
    moments: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    shares: dict[str, Grids] = {}
    if not reason:
        weights, changes = weights_and_changes(before, after, _all_roles(pairings))
        current_step("random changes of all heads")
        moments = _null_moments(weights, changes, pairings, noise, draws, seed, reading["memory"])
        if noise != "rounding":
            shares = {name: _change_shares(before, weights, changes, name, reading["tolerance"]) for name in pairings}
    nodes = {}
    for pairing in pairings:
        grids = pair[0].grid(pairing), pair[1].grid(pairing)
        expected = _where_defined(before, grids, pairing, moments.get(pairing, (np.nan, np.nan)))
        node = _pairing_node(grids, expected, draws, level, null)
        nodes[f"wiring/{pairing}"] = node.assign(_share_variables(shares.get(pairing, {})))
    note = f"{NOISES[noise]}, {draws} draws"
    return nodes, {"edge_null": null, "change_null": f"left out: {reason}" if reason else note}


def too_much(heads: Heads, memory: int, copies: int) -> str:
    """Why random changes of all heads are not drawn, if so: each holds that many copies of all of them at once."""
    count = heads.n_layers * heads.n_heads
    if count > MANY_HEADS:
        return f"more than {MANY_HEADS} heads"
    needed = copies * count * heads.d_model * max(heads.d_head, heads.d_value) * 8
    return f"{needed:,} bytes needed, and the memory budget is {memory:,}" if needed > memory else ""


def _where_defined(
    heads: Heads, grids: tuple[xr.Dataset, xr.Dataset], pairing: str, moments: tuple[Any, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Moments under the null where both heads have all their directions: a random change would fill up the others."""
    src, dst = (min(heads.shape(role)[2:]) for role in _roles(pairing))
    full = [(grid["src_rank"] == src).values[..., None, None] & (grid["dst_rank"] == dst).values for grid in grids]
    mean, sd = (np.where(full[0] & full[1], moment, np.nan) for moment in moments)
    return mean, sd


def _roles(pairing: str) -> tuple[Role, Role]:
    roles: dict[str, Role] = {"Q": "Q", "K": "K", "V": "V", "O": "O"}
    return roles[pairing[0]], roles[pairing[1]]


def _pairing_node(
    grids: tuple[xr.Dataset, xr.Dataset], moments: tuple[np.ndarray, np.ndarray], draws: int, level: float, null: str
) -> xr.Dataset:
    kernels = [grid["projection_kernel"].transpose(*PAIR_DIMS).values for grid in grids]
    q = [grid["projection_kernel_q"].sel(null=null).transpose(*PAIR_DIMS).values for grid in grids]
    edges = [values < level for values in q]
    change = kernels[1] - kernels[0]
    spread = np.where(np.isnan(change), np.nan, moments[1])
    # Where neither head changed, what the draws differ by is rounding.
    expected = np.where(spread == 0, 0.0, moments[0] - kernels[0])
    z = z_score(change, expected, spread)
    p = 2 * prediction_tail(np.abs(z), draws)
    arrays = {"kernel_before": kernels[0], "kernel_after": kernels[1]}
    arrays |= {"kernel_before_q": q[0], "kernel_after_q": q[1], "edge_before": edges[0], "edge_after": edges[1]}
    arrays |= {"change": change, "change_null": expected, "change_null_sd": spread, "change_z": z, "change_p": p}
    arrays["change_q"] = q_values(p)
    turned, certain = edges[0] != edges[1], arrays["change_q"] < level
    counts = {
        "n_kept": edges[0] & edges[1],
        "n_gained": edges[1] & ~edges[0],
        "n_lost": edges[0] & ~edges[1],
        "n_beyond_null": turned & certain,
        "n_changed": certain,
    }
    variables: dict[str, Any] = {name: (PAIR_DIMS, values) for name, values in arrays.items()}
    variables |= {name: int(values.sum()) for name, values in counts.items()}
    kept = {name: grids[0].attrs[name] for name in ("src_kv", "dst_kv")}
    coords = {name: grids[0][name].values for name in ("src_layer", "dst_layer")}
    return xr.Dataset(variables, coords=coords, attrs=kept)


def _all_roles(pairings: Sequence[str]) -> tuple[Role, ...]:
    return tuple(dict.fromkeys(role for pairing in pairings for role in _roles(pairing)))


def weights_and_changes(before: Heads, after: Heads, roles: Sequence[Role]) -> tuple[Weights, Weights]:
    """Tall matrices of every role that takes part, layer by layer, and their changes."""
    pair = [heads.to(computing_dtype(before)) for heads in (before, after)]
    first, second = ({role: [_tall(each, layer, role) for layer in each.layers] for role in roles} for each in pair)
    return first, {role: [b - a for a, b in zip(first[role], second[role], strict=True)] for role in roles}


def _tall(heads: Heads, layer: int, role: Role) -> Tensor:
    W = heads.layer(layer, (role,)).weight(role)[0]
    return W.mT.contiguous() if role == "O" else W


def _null_moments(
    weights: Weights, changes: Weights, pairings: list[str], noise: str, draws: int, seed: int, memory: int | str
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Mean and standard deviation over draws of every kernel after a random change of every head."""
    sums: dict[str, list[np.ndarray]] = {}
    first: dict[str, np.ndarray] = {}
    for draw in range(draws):
        generator = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, draw]).generate_state(1)[0]))
        spaces = {role: _perturbed(weights[role], changes[role], noise, generator) for role in weights}
        for pairing in pairings:
            roles = _roles(pairing)
            (table,) = projection_kernels(spaces[roles[0]], [spaces[roles[1]]], memory=memory_bytes(memory))
            kernel = table.double().numpy(force=True).reshape(_pair_shape(weights, roles))
            # Deviations from the first draw: sums of squares of small spreads keep their digits.
            offset = kernel - first.setdefault(pairing, kernel)
            total = sums.setdefault(pairing, [np.zeros_like(kernel) for _ in range(2)])
            total[0] += offset
            total[1] += offset**2
    return {pairing: _moments(first[pairing], sums[pairing], draws) for pairing in pairings}


def _pair_shape(weights: Weights, roles: tuple[Role, Role]) -> list[int]:
    return [size for role in roles for size in (len(weights[role]), len(weights[role][0]))]


def _moments(first: np.ndarray, sums: list[np.ndarray], draws: int) -> tuple[np.ndarray, np.ndarray]:
    mean = sums[0] / draws
    variance = (sums[1] - draws * mean**2) / (draws - 1)
    return first + mean, np.sqrt(np.maximum(variance, 0.0))


def _perturbed(weights: list[Tensor], changes: list[Tensor], noise: str, generator: torch.Generator) -> Subspace:
    """The spans of all heads of a role, in one list, after one random change of each."""
    pairs = zip(weights, changes, strict=True)
    return concatenate([orthonormal_basis(W + random_change(change, noise, generator)) for W, change in pairs])


def _change_shares(heads: Heads, weights: Weights, changes: Weights, pairing: str, tolerance: float | None) -> Grids:
    """Shares of changes inside the spaces of their partners: [src_layer, src_head, dst_layer, dst_head] and numbers."""
    roles = src, dst = _roles(pairing)
    shape, layers = _pair_shape(weights, roles), np.array(heads.layers)
    distance = np.broadcast_to(layer_distance(layers, layers), shape)
    found: Grids = {}
    for name, space, moved in (("read_share", src, dst), ("write_share", dst, src)):
        parts = _energy_shares(_spaces(heads, space, tolerance), torch.cat(changes[moved]), heads.d_model)
        tables = {part: (table if space == src else table.T).reshape(shape) for part, table in parts.items()}
        share = tables["share"]
        known = heads.n_layers > 2 and not np.isnan(share).all()
        found[f"{name}_order_p"] = np.array(direction_test(share, layers).p_value if known else np.nan)
        for part, side in (("mean", distance > 0), ("reverse", distance < 0)):
            found[f"{name}_{part}"] = np.array(mean_interval(share[side])[0])
        own = {part: np.where(distance > 0, table, np.nan) for part, table in tables.items()}
        found |= {name: own["share"], f"{name}_null": own["mean"], f"{name}_null_sd": own["sd"]}
        found |= {f"{name}_z": z_score(own["share"], own["mean"], own["sd"]), f"{name}_p": np.exp(own["log_p"])}
        found[f"{name}_q"] = q_values(found[f"{name}_p"])
    return found


def _spaces(heads: Heads, role: Role, tolerance: float | None) -> Subspace:
    """What all heads of a role read or write, in one list."""
    blocks = (heads.layer(layer, (role,)).spaces(role, tolerance) for layer in heads.layers)
    return concatenate([Subspace(block.basis[0], block.rank[0]) for block in blocks])


def _energy_shares(spans: Subspace, changes: Tensor, d: int) -> Grids:
    """[space, change]: shares in [0, 1] with mean, standard deviation and upper log tail under random rotations."""
    (energy,) = squared_overlaps(spans.basis.to(changes), [changes])
    total = changes.square().sum((-2, -1))
    share = torch.where(total > 0, energy / total, torch.nan).double().numpy(force=True)
    ranks = spans.rank.double().numpy(force=True)
    weights = energy_shares(torch.linalg.svdvals(changes.double())).numpy(force=True)
    squares = (weights**2).sum(-1)[None]
    mean, sd = rotated_trace_moments(ranks[:, None], ranks[:, None], np.ones_like(squares), squares, d)
    projectors = (np.arange(spans.basis.shape[-1]) < ranks[:, None]).astype(float)
    known = ~np.isnan(share)
    log_p = rotated_trace_log_tail(share, projectors, np.nan_to_num(weights), d)
    tables = {"share": share, "mean": mean + np.zeros_like(share), "sd": sd, "log_p": log_p}
    return {name: np.where(known, table, np.nan) for name, table in tables.items()}


def _share_variables(found: Grids) -> dict[str, Any]:
    return {name: (PAIR_DIMS, values) if values.ndim else values for name, values in found.items()}
