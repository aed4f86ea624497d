"""What moved between two checkpoints of one shape, head by head and role by role.

1. The column span of each head's W_Q, W_K, W_V and the row span of its W_O, before and after (`motion`): principal
   angles, Grassmann and chordal distance, projection kernel, singular values, and how much of the change left
   the old span.
2. Beside each, what a random change of the same size would have done to that head (`perturbation`): mean, standard
   deviation, z-score and p-value, with false-discovery control over all heads and roles.

K and V are counted once per kv head. Heads are read one layer at a time from both checkpoints.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from torch import Tensor

from headspan.dims import HEAD, KV_HEAD, LAYER, ROLES, Role, head_axis
from headspan.errors import ShapeError
from headspan.heads import HeadBlock, Heads
from headspan.lenses.drift.matching import require_match
from headspan.lenses.drift.motion import motion, motion_variables
from headspan.lenses.drift.perturbation import chance_variables, drift_test, share_test
from headspan.statistics import q_values
from headspan.subspaces import default_tolerance
from headspan.subspaces.distance_tables import distance_moments

DOUBLE_WIDTH = 4096
"""Up to this d_model weights are read as float64."""
UNRELATED_DRAWS = 64
FEWEST_DRAWS = 3
INNER_AXES = {"angles": ("angle",), "singular_value_before": ("rank",), "singular_value_after": ("rank",)}
Arrays = dict[str, np.ndarray]


def compute(
    before: Heads,
    after: Heads,
    *,
    leading: int | None = None,
    tolerance: float | None = None,
    draws: int = 16,
    seed: int = 0,
) -> xr.Dataset:
    """How far every head's subspaces moved from one checkpoint to another, beside a random change of the same size.

    Parameters
    ----------
    before, after
        Two checkpoints of one family, stack, shape and fold state, such as two steps or a base and a fine-tuned model.
    leading
        Follow the span of this many leading singular vectors of each head and role. By default the whole span; where
        heads are as wide as the stream, whole spans are all of it and cannot move, and a quarter of them is followed.
    tolerance
        Singular values up to this share of a head's largest count as zero; by default d_model times machine epsilon.
    draws
        Random changes per head and role, 3 at least.
    seed
        Fixes the draws. They do not depend on which layers were asked for beside a layer.

    Returns
    -------
    Dataset
        One variable per role, `<name>_Q`, `_K`, `_V`, `_O`, over [layer, head] or, for K and V, [layer, kv_head]:
        `angles` [..., angle] in radians; `grassmann` in [0, sqrt(r) pi/2], `chordal` in [0, sqrt(r)],
        `projection_kernel` in [0, r] and `spectrum_ks` in [0, 1], each with `_chance`, `_sd`; `chordal_expected`, the
        chance of `chordal` without draws; `grassmann_z`, `p_value` and `q_value` (uniform by chance);
        `grassmann_unrelated`, the mean of two unrelated spaces; `relative_change` |W' - W| / |W|; `outside_share` of
        the change in [0, 1] with `_chance` (d - r)/d, `_sd`, `_p_value`; `singular_value_before` and `_after`
        [..., rank]; `rank_before`, `rank_after`; flags `unchanged` and `deficient`. NaN where undefined, 0 for equal
        weights.
    """
    require_match(before, after)
    if draws < FEWEST_DRAWS:
        raise ShapeError(f"draws needs to be at least {FEWEST_DRAWS}, found {draws}")
    used = default_tolerance(before.d_model, before.dtype) if tolerance is None else tolerance
    followed = _followed(before, leading)
    dtype = "float64" if before.d_model <= DOUBLE_WIDTH else "float32"
    first, second = before.to(dtype), after.to(dtype)
    parts: dict[Role, list[Arrays]] = {role: [] for role in ROLES}
    for layer in before.layers:
        blocks = first.layer(layer), second.layer(layer)
        for place, role in enumerate(ROLES):
            parts[role].append(_role_of_layer(blocks, role, used, followed, draws, (seed, layer, place)))
    by_role = {role: _joined(found, before, role, draws) for role, found in parts.items()}
    _add_q_values(by_role)
    options = {"leading": followed or "all", "tolerance": used, "draws": draws, "seed": seed, "computed_in": dtype}
    return _dataset(before, after, by_role, options)


def _followed(heads: Heads, leading: int | None) -> int | None:
    """How many directions of each head are followed; None for all."""
    narrowest = min(heads.d_head, heads.d_value, heads.d_model)
    if leading is None:
        return max(1, narrowest // 4) if max(heads.d_head, heads.d_value) >= heads.d_model else None
    if not 1 <= leading <= narrowest:
        raise ShapeError(f"leading needs to be in 1..{narrowest}, what every head has, found {leading}")
    return leading


def _role_of_layer(
    blocks: tuple[HeadBlock, HeadBlock],
    role: Role,
    tolerance: float,
    leading: int | None,
    draws: int,
    seed: tuple[int, ...],
) -> Arrays:
    """Everything about one role of one layer, [heads, ...]."""
    first, second = (_tall(block, role) for block in blocks)
    d = first.shape[-2]
    found = motion(first, second, tolerance, leading)
    tensors = motion_variables(found, d) | chance_variables(found, d, draws, seed, leading is None)
    return {name: tensor.numpy(force=True) for name, tensor in tensors.items()}


def _tall(block: HeadBlock, role: Role) -> Tensor:
    """Matrices whose columns span what the role reads or writes, [heads, d_model, d_head]."""
    W = block.weight(role)[0]
    return W.mT.contiguous() if role == "O" else W


def _joined(parts: list[Arrays], heads: Heads, role: Role, draws: int) -> Arrays:
    """All layers of a role, with what follows from value and chance together."""
    out = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    d, p = heads.d_model, min(heads.shape(role)[2:])
    out["grassmann_z"], out["p_value"] = drift_test(
        out["grassmann"], out["grassmann_chance"], out["grassmann_sd"], draws
    )
    out["outside_share_p_value"] = share_test(out["outside_share"], out["rank_before"], d, p)
    pairs = np.stack([out["rank_before"], out["rank_after"]], -1)
    out["grassmann_unrelated"] = np.array(
        [
            distance_moments("grassmann", d, *map(int, sorted(pair)), 0, UNRELATED_DRAWS, 0)[0]
            for pair in pairs.reshape(-1, 2)
        ]
    ).reshape(out["grassmann"].shape)
    out["deficient"] = (pairs < out["angles"].shape[-1]).any(-1)
    return out


def _add_q_values(by_role: dict[Role, Arrays]) -> None:
    """One family of tests: all heads of all roles."""
    flat = np.concatenate([found["p_value"].ravel() for found in by_role.values()])
    ends = np.cumsum([found["p_value"].size for found in by_role.values()])
    for found, adjusted in zip(by_role.values(), np.split(q_values(flat), ends[:-1]), strict=True):
        found["q_value"] = adjusted.reshape(found["p_value"].shape)


def _dataset(before: Heads, after: Heads, by_role: dict[Role, Arrays], options: dict[str, Any]) -> xr.Dataset:
    variables: dict[str, Any] = {}
    for role, found in by_role.items():
        for name, values in found.items():
            inner = INNER_AXES.get(name, ())
            if inner:
                # Values may be narrower than queries; what is not there is undefined.
                missing = max(other[name].shape[-1] for other in by_role.values()) - values.shape[-1]
                values = np.pad(values, ((0, 0), (0, 0), (0, missing)), constant_values=np.nan)
            variables[f"{name}_{role}"] = ((LAYER, head_axis(role), *inner), values)
    unchanged = all(bool(found["unchanged"].all()) for found in by_role.values())
    coords = {LAYER: list(before.layers), HEAD: list(range(before.n_heads)), KV_HEAD: list(range(before.n_kv_heads))}
    attrs = {**after.provenance(), **_earlier(before), "lens": "drift", **options}
    attrs |= {"d_model": before.d_model, "d_head": before.d_head, "d_value": before.d_value}
    attrs |= {"n_heads": before.n_heads, "n_kv_heads": before.n_kv_heads, "identical": int(unchanged)}
    attrs["null"] = "a Gaussian change of the same Frobenius norm"
    return xr.Dataset(variables, coords=coords, attrs=attrs)


def _earlier(before: Heads) -> dict[str, str]:
    """Where the first checkpoint comes from; what both share stands without a prefix."""
    apart = ("model", "revision", "file_hash", "stored_dtype")
    return {f"before_{name}": value for name, value in before.provenance().items() if name in apart}
