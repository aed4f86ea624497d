"""One row of the record: where the named subspaces of a model relate to one another, in numbers.

Everything is a function of the weights at one step. `DIMS` names the axes of each quantity.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.lab.model import LabModel
from headspan.lab.named_spaces import PARTS, READERS, NamedSpaces, sizes
from headspan.subspaces import Subspace, principal_angles

ANGLE_PAIRS = ("write:Q", "write:K", "write:V", "write:bridge", "bridge:medium", "bridge:bottom", "Q:K")
"""Pairs of subspaces whose principal angles are recorded, all cut at the middle k."""
DIMS: Mapping[str, tuple[str, ...]] = {
    "embedding_singular_value": ("rank",),
    "gap": (),
    "gap_null": (),
    "gap_p_value": (),
    "top_ratio": (),
    "medium_size": (),
    "bridge_profile": ("k", "direction"),
    "bridge_energy": ("k", "part"),
    "bridge_energy_null": ("part",),
    "top_in_bridge": ("k",),
    "projection_kernel": ("reader", "k"),
    "composition_score": ("reader",),
    "angle": ("pair", "angle_number"),
    "parameter_norm": ("group",),
}


def geometry_row(model: LabModel) -> dict[str, np.ndarray]:
    """All geometric quantities of a model as it is now.

    Returns
    -------
    dict
        `embedding_singular_value [rank]`, >= 0. `gap`, `gap_p_value`, `medium_size`: the split of that spectrum.
        `bridge_profile [k, direction]`: energy share of the bridge in each right singular direction of W_E, in [0, 1],
        sums to 1 per k, 1/d under the null. `bridge_energy [k, part]`: the same summed over top, medium and bottom, NaN
        while the spectrum has no gap; under the null each part's share of dimensions. `top_in_bridge [k]`: share of the
        top direction inside the bridge, in [0, 1], k/d under the null. `projection_kernel [reader, k]`: PK(O of layer
        0, reader of layer 1)/k, in [0, 1], k/d under the null. `composition_score [reader]`: ||W_O W_R|| / (||W_O||
        ||W_R||), in [0, 1], 1/sqrt(d) under the null. `angle [pair, angle_number]`: principal angles in degrees,
        ascending. NaN for one layer.
    """
    spaces = NamedSpaces.of(model)
    row: dict[str, np.ndarray] = {**_embedding(spaces), "parameter_norm": _parameter_norms(model)}
    row |= _bridge(spaces) | _composition(spaces) | {"angle": _angles(spaces)}
    return row


def _embedding(spaces: NamedSpaces) -> dict[str, np.ndarray]:
    split, widths = spaces.split, [float(part.shape[1]) for part in spaces.embedding_parts.values()]
    numbers = {
        "gap": split.gap,
        "gap_null": split.null,
        "gap_p_value": split.p_value,
        "top_ratio": split.top_ratio,
        "medium_size": float(split.medium) if split.found else np.nan,
        "bridge_energy_null": np.array(widths or [np.nan] * 3) / spaces.d,
    }
    row = {"embedding_singular_value": spaces.embedding[0].numpy()}
    return row | {name: np.array(value) for name, value in numbers.items()}


def part_energy(profile: np.ndarray, top: int, medium: int) -> np.ndarray:
    """Energy of the bridge in top, medium and bottom: [..., direction] to [..., part], in [0, 1], sums to 1."""
    pieces = np.split(profile, [top, top + medium], axis=-1)
    return np.stack([piece.sum(-1) for piece in pieces], axis=-1)


def _bridge(spaces: NamedSpaces) -> dict[str, np.ndarray]:
    ks, split = sizes(spaces.d), spaces.split
    energy = np.full((len(ks), len(PARTS)), np.nan)
    if not spaces.has_pair:
        profile, top = np.full((len(ks), spaces.d), np.nan), np.full(len(ks), np.nan)
    else:
        overlap = (spaces.embedding[1].T @ spaces.bridge).square()
        profile = torch.stack([overlap[:, :k].sum(1) / k for k in ks]).numpy()
        top = np.array([float(overlap[0, :k].sum()) for k in ks])
        energy = part_energy(profile, split.top, split.medium) if split.found else energy
    return {"bridge_profile": profile, "bridge_energy": energy, "top_in_bridge": top}


def _composition(spaces: NamedSpaces) -> dict[str, np.ndarray]:
    ks = sizes(spaces.d)
    if not spaces.has_pair:
        return {"projection_kernel": np.full((3, len(ks)), np.nan), "composition_score": np.full(3, np.nan)}
    written, read, W_O = spaces.write_directions, spaces.read_directions, spaces.W["O", 0]
    kernel = [[_kernel(written[:, :k], read[role][:, :k]) for k in ks] for role in READERS]
    scores = [float((W_O @ spaces.W[role, 1]).norm() / (W_O.norm() * spaces.W[role, 1].norm())) for role in READERS]
    return {"projection_kernel": np.array(kernel), "composition_score": np.array(scores)}


def _kernel(U: Float[Tensor, "d p"], V: Float[Tensor, "d q"]) -> float:
    return float((U.T @ V).square().sum()) / U.shape[1]


def _angles(spaces: NamedSpaces) -> np.ndarray:
    """[pair, number] degrees; NaN where a subspace is undefined or has fewer directions."""
    k = sizes(spaces.d)[1]
    angles = np.full((len(ANGLE_PAIRS), k), np.nan)
    if not spaces.has_pair:
        return angles
    bases = {"write": spaces.write_directions[:, :k], "bridge": spaces.bridge[:, :k], **spaces.embedding_parts}
    bases |= {role: spaces.read_directions[role][:, :k] for role in READERS}
    subspaces = {name: Subspace.from_orthonormal(basis) for name, basis in bases.items()}
    for row, pair in enumerate(ANGLE_PAIRS):
        src, dst = pair.split(":")
        if src in subspaces and dst in subspaces:
            found = torch.rad2deg(principal_angles(subspaces[src], subspaces[dst])).numpy()
            angles[row, : len(found)] = found[:k]
    return angles


def groups(model: LabModel) -> dict[str, list[str]]:
    """Parameters by what they do: tables, and each layer's Q, K, V, O (biases with their matrix), norms and MLP."""
    found: dict[str, list[str]] = {}
    for name, _ in model.named_parameters():
        found.setdefault(group_of(name), []).append(name)
    return found


def group_of(name: str) -> str:
    """The group of a parameter: W_E, W_pos, W_U, L0 Q, L0 norm, L0 MLP, ..."""
    tables = {"embed_tokens": "W_E", "embed_positions": "W_pos", "lm_head": "W_U"}
    head, *rest = name.split(".")
    if head in tables:
        return tables[head]
    layer, part = rest[0], rest[1]
    if part == "self_attn":
        return f"L{layer} {rest[2][0].upper()}"
    return f"L{layer} MLP" if part == "mlp" else f"L{layer} norm"


def _parameter_norms(model: LabModel) -> np.ndarray:
    named = dict(model.named_parameters())
    squares = (
        [float(named[name].detach().double().square().sum()) for name in names] for names in groups(model).values()
    )
    return np.array([sum(each) ** 0.5 for each in squares])
