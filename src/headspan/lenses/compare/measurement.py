"""Two checkpoints of one shape, compared in every way that headspan has.

1. How far every head moved (`headspan.drift`), against a random change of the same size.
2. Edges of the wiring gained and lost. An edge is a pair whose projection kernel (`headspan.affinity`) has a q-value
   below the level; gained if it is there only after, lost if only before. The null of a kernel's change: to every head
   of the first checkpoint a Gaussian matrix is added, of the norm of that head's own change, and all kernels are
   computed again; `draws` times. A change that erases weights pulls every kernel towards its expected value, and this
   null shows by how much.
3. The spectra of all matrices before and after (`headspan.spectra`). Those of single heads are in the drift, with a
   null; here are whole matrices, MLPs, tables and the products W_QK and W_OV.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headspan.dims import PAIR_DIMS, ROLES, Role
from headspan.heads import Heads
from headspan.heads.memory import memory_bytes
from headspan.heads.precision import computing_dtype
from headspan.lenses.affinity import affinity
from headspan.lenses.compare.schema import NULLED, PER_HEAD, SUMMARIES
from headspan.lenses.drift import drift
from headspan.lenses.spectra import spectra
from headspan.progress import current_step
from headspan.result import Result
from headspan.statistics import prediction_tail, q_values, z_score
from headspan.subspaces import Subspace, concatenate, orthonormal_basis, projection_kernels, spectrum_ks

MANY_HEADS = 400
"""Above this many heads the null of changes is left out: it would need every basis of the model many times."""


def measure(
    before: Heads,
    after: Heads,
    *,
    leading: int | None = None,
    tolerance: float | None = None,
    draws: int = 16,
    seed: int = 0,
    level: float = 0.05,
    null: str = "two-way",
    memory: int | str = "4GB",
) -> xr.DataTree:
    """`headspan.compare` on heads: `drift/<role>`, `wiring/<pairing>` and `spectra/<kind>`."""
    moved = drift(before, after, leading=leading, tolerance=tolerance, draws=draws, seed=seed)
    nodes = {f"drift/{role}": moved.dataset(role) for role in ROLES}
    attrs = {**moved.attrs, "level": level}
    if before.n_layers > 1 and not before.stack.passes:
        current_step("kernels of all pairs")
        pair = [
            affinity(
                heads,
                metrics="projection_kernel",
                null=null,
                algorithm="exact",
                tolerance=tolerance,
                seed=seed,
                memory=memory,
            )
            for heads in (before, after)
        ]
        null = attrs["edge_null"] = pair[0].attrs["null"]
        few = before.n_layers * before.n_heads <= MANY_HEADS
        moments = _null_moments(before, moved, list(pair[0].data.children), memory) if few else {}
        for pairing in pair[0].data.children:
            grids = pair[0].grid(pairing), pair[1].grid(pairing)
            expected = _where_defined(before, grids, pairing, moments.get(pairing, (np.nan, np.nan)))
            nodes[f"wiring/{pairing}"] = _pairing_node(grids, expected, draws, level, null)
        note = f"a Gaussian change of the same norm to every head, {draws} draws"
        attrs["change_null"] = note if few else f"left out: more than {MANY_HEADS} heads"
    else:
        shared = "layers are shared by several passes, and the change of one is that of all"
        attrs["wiring_left_out"] = shared if before.stack.passes else "nothing composes: there is one layer"
    current_step("spectra of all matrices")
    changes, left_out = _spectra_changes(
        *(spectra(heads, tolerance=tolerance, seed=seed, memory=memory) for heads in (before, after))
    )
    nodes |= {f"spectra/{kind}": node for kind, node in changes.items()}
    if left_out:
        attrs["spectra_left_out"] = left_out
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **nodes})


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


def _null_moments(
    before: Heads, moved: Result, pairings: list[str], memory: int | str
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Mean and standard deviation over draws of every kernel after a random change of every head."""
    draws, seed = int(moved.attrs["draws"]), int(moved.attrs["seed"])
    roles: tuple[Role, ...] = tuple(dict.fromkeys(role for pairing in pairings for role in _roles(pairing)))
    heads = before.to(computing_dtype(before))
    weights = {role: [_tall(heads, layer, role) for layer in heads.layers] for role in roles}
    sizes = {role: _sizes(moved, weights[role], role) for role in roles}
    shapes = {pairing: [size for role in _roles(pairing) for size in before.shape(role)[:2]] for pairing in pairings}
    sums = {pairing: [np.zeros(shapes[pairing]) for _ in range(2)] for pairing in pairings}
    first: dict[str, np.ndarray] = {}
    for draw in range(draws):
        generator = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, draw]).generate_state(1)[0]))
        spaces = {role: _perturbed(weights[role], sizes[role], generator) for role in roles}
        for pairing in pairings:
            src, dst = (spaces[role] for role in _roles(pairing))
            (table,) = projection_kernels(src, [dst], memory=memory_bytes(memory))
            kernel = table.double().numpy(force=True).reshape(shapes[pairing])
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


def _sizes(moved: Result, weights: list[Tensor], role: Role) -> list[Tensor]:
    """The norm of every head's change, layer by layer."""
    shares = moved.grid(role)["relative_change"].values
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


def _spectra_changes(first: Result, second: Result) -> tuple[dict[str, xr.Dataset], str]:
    """One dataset per kind of matrix that both have in one shape, and a line on those that are left out."""
    nodes, left_out = {}, []
    for kind, node in first.data.children.items():
        if "singular_value" not in node or str(kind).endswith(PER_HEAD) or kind not in second:
            continue
        pair = first.dataset(str(kind)), second.dataset(str(kind))
        shapes = [f"{int(node['rows'])} x {int(node['columns'])}" for node in pair]
        if shapes[0] == shapes[1]:
            nodes[str(kind)] = _spectra_node(*pair)
        else:
            left_out.append(f"{kind} is {shapes[0]} before and {shapes[1]} after")
    return nodes, "; ".join(left_out)


def _spectra_node(first: xr.Dataset, second: xr.Dataset) -> xr.Dataset:
    """Singular values before and after, their distance, and what summarizes them, each `_before` and `_after`."""
    found = {
        f"{name}_{side}": (one[name].dims, one[name].values)
        for name in ("singular_value", *SUMMARIES)
        for one, side in ((first, "before"), (second, "after"))
    }
    ks = spectrum_ks(*(torch.as_tensor(one["singular_value"].values) for one in (first, second)))
    found |= {f"{name}_null": ((), first[f"{name}_null"].values) for name in NULLED}
    return first.drop_vars(list(first)).drop_attrs().assign(found | {"ks": (first["energy"].dims, ks.numpy())})
