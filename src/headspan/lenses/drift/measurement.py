"""What moved between two checkpoints of one shape, head by head and role by role.

1. The column span of each head's W_Q, W_K, W_V and the row span of its W_O, before and after: principal angles,
   Grassmann and chordal distance, projection kernel, singular values, and how much of the change left the old span.
2. Beside each, what a random change of the same size would have done to that head: mean, standard deviation, z-score
   and p-value, with false-discovery control over all heads and roles. (`motion` has both.)

K and V are counted once per kv head. Heads are read one layer at a time from both checkpoints.
"""

from __future__ import annotations

from math import prod

import numpy as np
import xarray as xr
from scipy import special  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

from headspan.dims import LAYER, ROLES, Role, head_axis
from headspan.errors import ArgumentError, FoldError, ShapeError
from headspan.heads import HeadBlock, Heads
from headspan.heads.memory import return_large_arrays
from headspan.heads.norms import fold_label
from headspan.lenses.drift.motion import growth_variables, motion, motion_variables, null_variables, share_p
from headspan.runtime.budget import require_memory
from headspan.statistics import prediction_tail, q_values, z_score
from headspan.subspaces.distance_tables import distance_moments

DOUBLE_WIDTH = 4096
"""Up to this d_model weights are read as float64."""
WORKED = 10
"""A layer of both checkpoints and what is made of it take at most so many times the layer."""
UNRELATED_DRAWS = 64
INNER_AXES = {"angles": ("angle",), "singular_value_before": ("rank",), "singular_value_after": ("rank",)}
BEFORE = ("model", "revision", "file_hash", "stored_dtype")
"""What is told of the first checkpoint, as `before_<name>`; all else both share."""
NULLS = {
    "gaussian": "a Gaussian change of the same Frobenius norm",
    "rounding": "rounding noise: every entry's change with a random sign",
}
Arrays = dict[str, np.ndarray]


def measure(
    before: Heads,
    after: Heads,
    *,
    leading: int | None = None,
    tolerance: float | None = None,
    draws: int = 16,
    seed: int = 0,
    noise: str = "gaussian",
) -> xr.DataTree:
    """`headspan.drift` on heads: a node per role, over [layer, head] or, for K and V, [layer, kv_head]."""
    require_match(before, after)
    return_large_arrays()
    followed = _followed(before, leading)
    dtype = "float64" if before.d_model <= DOUBLE_WIDTH else "float32"
    first, second = before.to(dtype), after.to(dtype)
    held = WORKED * sum(prod(first.shape(role)[1:]) for role in ROLES) * (8 if dtype == "float64" else 4)
    require_memory(held, "one layer of both checkpoints")
    parts: dict[Role, list[Arrays]] = {role: [] for role in ROLES}
    for layer in before.layers:
        blocks = first.layer(layer), second.layer(layer)
        for place, role in enumerate(ROLES):
            parts[role].append(_role_of_layer(blocks, role, tolerance, followed, draws, (seed, layer, place), noise))
    by_role = {role: _joined(found, before, role, draws, noise) for role, found in parts.items()}
    _add_q(by_role)
    provenance = before.provenance()
    attrs = {
        **{f"before_{name}": provenance[name] for name in BEFORE if name in provenance},
        "leading": followed or "all",
        "tolerance": before.rank_rule(tolerance),
        "draws": draws,
        "seed": seed,
        "computed_in": dtype,
        "d_value": before.d_value,
        "identical": int(all(bool(found["unchanged"].all()) for found in by_role.values())),
        "null": NULLS[noise],
    }
    nodes: dict[str, xr.Dataset] = {role: _role_node(before, role, found) for role, found in by_role.items()}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **nodes})


def require_match(before: Heads, after: Heads) -> None:
    """Refuse heads of different families, stacks, fold states, layers or shapes; the message says why in one line."""
    facts = {
        "family": (before.checkpoint.family, after.checkpoint.family),
        "stack": (before.stack.name, after.stack.name),
    }
    for what, (first, second) in facts.items():
        if first != second:
            raise ArgumentError(
                f"before and after: two checkpoints of one {what} are needed, found {first} and {second}"
            )
    folds = [fold_label(heads.fold, heads.center) for heads in (before, after)]
    if folds[0] != folds[1]:
        raise FoldError(
            f"one fold state is needed, found {folds[0]!r} before and {folds[1]!r} after; open both with one fold"
        )
    if before.layers != after.layers:
        raise ShapeError(
            f"the same layers of both are needed, found {_counted(before)} before and {_counted(after)} after; "
            "choose layers that both have"
        )
    for role in ROLES:
        if before.shape(role) != after.shape(role):
            raise ShapeError(
                f"weights of one shape are needed, found W_{role} [layer, head, rows, columns] as "
                f"{list(before.shape(role))} before and {list(after.shape(role))} after; compare steps of one model"
            )


def _counted(heads: Heads) -> str:
    return f"{heads.n_layers} layers ({heads.layers[0]} to {heads.layers[-1]})"


def _followed(heads: Heads, leading: int | None) -> int | None:
    """How many directions of each head are followed; None for all."""
    narrowest = min(heads.d_head, heads.d_value, heads.d_model)
    if leading is None:
        return max(1, narrowest // 4) if max(heads.d_head, heads.d_value) >= heads.d_model else None
    if not 1 <= leading <= narrowest:
        raise ArgumentError(f"leading={leading}: needed is a number in 1..{narrowest}, what every head has")
    return leading


def _role_of_layer(
    blocks: tuple[HeadBlock, HeadBlock],
    role: Role,
    tolerance: float | None,
    leading: int | None,
    draws: int,
    seed: tuple[int, ...],
    noise: str,
) -> Arrays:
    """Everything about one role of one layer, [heads, ...]."""
    first, second = (_tall(block, role) for block in blocks)
    d = first.shape[-2]
    noises = (block.noise(role)[0] if tolerance is None else 0.0 for block in blocks)
    found = motion(first, second, tolerance, leading, (next(noises), next(noises)))
    tensors = motion_variables(found, d) | growth_variables(found, noise)
    tensors |= null_variables(found, d, draws, seed, leading is None, noise)
    return {name: tensor.numpy(force=True) for name, tensor in tensors.items()}


def _tall(block: HeadBlock, role: Role) -> Tensor:
    """Matrices whose columns span what the role reads or writes, [heads, d_model, d_head]."""
    W = block.weight(role)[0]
    return W.mT.contiguous() if role == "O" else W


def _joined(parts: list[Arrays], heads: Heads, role: Role, draws: int, noise: str) -> Arrays:
    """All layers of a role, with what follows from value and null together."""
    out = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    d, p = heads.d_model, min(heads.shape(role)[2:])
    z = z_score(out["grassmann"], out["grassmann_null"], out["grassmann_null_sd"])
    # Mean and spread are known from the draws only, which Student's law allows for; two-sided.
    out |= {"grassmann_z": z, "grassmann_p": 2 * prediction_tail(np.abs(z), draws)}
    if noise == "rounding":
        z_out = z_score(out["outside_share"], out["outside_share_null"], out["outside_share_null_sd"])
        out["outside_share_p"] = 2 * prediction_tail(np.abs(z_out), draws)
    else:
        out["outside_share_p"] = share_p(out["outside_share"], out["rank_before"], d, p)
    # Mean and spread of the growth need no draws; the smallest change that a float holds counts.
    z_growth = z_score(out["growth"], out["growth_null"], out["growth_null_sd"], unit=1e-12)
    out |= {"growth_z": z_growth, "growth_p": special.erfc(np.abs(z_growth) / np.sqrt(2))}
    pairs = np.stack([out["rank_before"], out["rank_after"]], -1)
    unrelated = [
        distance_moments("grassmann", d, *map(int, sorted(pair)), shared=0, draws=UNRELATED_DRAWS, seed=0)[0]
        for pair in pairs.reshape(-1, 2)
    ]
    out["grassmann_unrelated"] = np.array(unrelated).reshape(z.shape)
    out["deficient"] = (pairs < out["angles"].shape[-1]).any(-1)
    angles = np.degrees(out["angles"])
    # fmax and fmin pass over NaN without a warning.
    out |= {"smallest_angle": np.fmin.reduce(angles, axis=-1), "largest_angle": np.fmax.reduce(angles, axis=-1)}
    return out


def _add_q(by_role: dict[Role, Arrays]) -> None:
    """One family of tests for each quantity: all heads of all roles."""
    ends = np.cumsum([found["grassmann_p"].size for found in by_role.values()])[:-1]
    for name in ("grassmann", "growth"):
        flat = np.concatenate([found[f"{name}_p"].ravel() for found in by_role.values()])
        for found, adjusted in zip(by_role.values(), np.split(q_values(flat), ends), strict=True):
            found[f"{name}_q"] = adjusted.reshape(found[f"{name}_p"].shape)


def _role_node(heads: Heads, role: Role, found: Arrays) -> xr.Dataset:
    axes = (LAYER, head_axis(role))
    variables = {name: ((*axes, *INNER_AXES.get(name, ())), values) for name, values in found.items()}
    return xr.Dataset(variables, coords={LAYER: list(heads.layers)})
