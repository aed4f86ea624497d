"""One row of the record: where the named subspaces of a model lie to one another, in numbers, chance known.

Everything is a function of the weights at one step. `DIMS` names the axes of each quantity, `CHANCE` what independent
random subspaces give.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.lab.model import LabModel
from headspan.lab.named_spaces import READERS, NamedSpaces, sizes
from headspan.lab.spectral_split import spectral_split
from headspan.subspaces import Subspace, principal_angles

PARTS = ("top", "medium", "bottom")
ANGLE_PAIRS = ("write:Q", "write:K", "write:V", "write:bridge", "bridge:medium", "bridge:bottom", "Q:K")
"""Pairs of subspaces whose principal angles are recorded, all cut at the middle k."""
DIMS: Mapping[str, tuple[str, ...]] = {
    "embedding_singular_value": ("rank",),
    "gap": (),
    "gap_chance": (),
    "gap_p_value": (),
    "top_ratio": (),
    "medium_size": (),
    "bridge_profile": ("k", "direction"),
    "bridge_energy": ("k", "part"),
    "bridge_energy_chance": ("part",),
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
        sums to 1 per k, 1/d by chance. `bridge_energy [k, part]`: the same summed over top, medium and bottom, NaN
        while the spectrum has no gap; chance is each part's share of dimensions. `top_in_bridge [k]`: share of the top
        direction inside the bridge, in [0, 1], k/d by chance. `projection_kernel [reader, k]`: PK(O of layer 0, reader
        of layer 1)/k, in [0, 1], k/d by chance. `composition_score [reader]`: ||W_O W_R|| / (||W_O|| ||W_R||), in [0,
        1], 1/sqrt(d) by chance. `angle [pair, angle_number]`: principal angles in degrees, ascending. NaN for one
        layer.
    """
    spaces = NamedSpaces.of(model)
    row: dict[str, np.ndarray] = {**_embedding(spaces), "parameter_norm": _parameter_norms(model)}
    row |= _bridge(spaces) | _composition(spaces) | {"angle": _angles(spaces)}
    return row


def _embedding(spaces: NamedSpaces) -> dict[str, np.ndarray]:
    values, _ = spaces.embedding
    split = spectral_split(values, (spaces.W_E.shape[0], spaces.d))
    parts = (split.top, split.medium, spaces.d - split.top - split.medium)
    known = np.array(parts, dtype=float) / spaces.d if split.found else np.full(3, np.nan)
    return {
        "embedding_singular_value": values.numpy(),
        "gap": np.array(split.gap),
        "gap_chance": np.array(split.chance),
        "gap_p_value": np.array(split.p_value),
        "top_ratio": np.array(split.top_ratio),
        "medium_size": np.array(float(split.medium) if split.found else np.nan),
        "bridge_energy_chance": known,
    }


def part_energy(profile: np.ndarray, top: int, medium: int) -> np.ndarray:
    """Energy of the bridge in top, medium and bottom: [..., direction] to [..., part], in [0, 1], sums to 1."""
    pieces = np.split(profile, [top, top + medium], axis=-1)
    return np.stack([piece.sum(-1) for piece in pieces], axis=-1)


def _bridge(spaces: NamedSpaces) -> dict[str, np.ndarray]:
    ks = sizes(spaces.d)
    if not spaces.paired:
        nothing = np.full(len(ks), np.nan)
        empty = {"bridge_profile": np.full((len(ks), spaces.d), np.nan), "bridge_energy": np.full((len(ks), 3), np.nan)}
        return {**empty, "top_in_bridge": nothing}
    values, directions = spaces.embedding
    overlap = (directions.T @ spaces.bridge).square()
    profile = torch.stack([overlap[:, :k].sum(1) / k for k in ks]).numpy()
    split = spectral_split(values, (spaces.W_E.shape[0], spaces.d))
    energy = part_energy(profile, split.top, split.medium) if split.found else np.full((len(ks), 3), np.nan)
    return {
        "bridge_profile": profile,
        "bridge_energy": energy,
        "top_in_bridge": np.array([float(overlap[0, :k].sum()) for k in ks]),
    }


def _composition(spaces: NamedSpaces) -> dict[str, np.ndarray]:
    ks = sizes(spaces.d)
    if not spaces.paired:
        return {"projection_kernel": np.full((3, len(ks)), np.nan), "composition_score": np.full(3, np.nan)}
    kernel = [[_kernel(spaces.written[:, :k], spaces.read[role][:, :k]) for k in ks] for role in READERS]
    W_O = spaces.W["O", 0]
    scores = [float((W_O @ spaces.W[role, 1]).norm() / (W_O.norm() * spaces.W[role, 1].norm())) for role in READERS]
    return {"projection_kernel": np.array(kernel), "composition_score": np.array(scores)}


def _kernel(U: Float[Tensor, "d p"], V: Float[Tensor, "d q"]) -> float:
    return float((U.T @ V).square().sum()) / U.shape[1]


def _angles(spaces: NamedSpaces) -> np.ndarray:
    """[pair, number] degrees; NaN where a subspace is undefined or has fewer directions."""
    k = sizes(spaces.d)[1]
    angles = np.full((len(ANGLE_PAIRS), k), np.nan)
    if not spaces.paired:
        return angles
    values, directions = spaces.embedding
    split = spectral_split(values, (spaces.W_E.shape[0], spaces.d))
    named = {"write": spaces.written[:, :k], "bridge": spaces.bridge[:, :k]}
    named |= {role: spaces.read[role][:, :k] for role in READERS}
    if split.found:
        first = split.top + split.medium
        named |= {"medium": directions[:, split.top : first], "bottom": directions[:, first:]}
    for row, pair in enumerate(ANGLE_PAIRS):
        left, right = pair.split(":")
        if left in named and right in named:
            found = torch.rad2deg(
                principal_angles(*(Subspace.from_orthonormal(named[name]) for name in (left, right)))
            ).numpy()
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
