"""What single precision costs: angles between query and key spaces of a few heads, against double precision."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float

from headspan.heads import Heads
from headspan.lenses.affinity.rounding import double_bases, sampled_places
from headspan.lenses.similarity.spaces import SpaceChoice
from headspan.subspaces import principal_angles


def angle_error(
    heads: Heads, choice: SpaceChoice, theta: Float[np.ndarray, "layer head angle"]
) -> dict[str, float | int]:
    """Largest difference in radians of a sampled head's angles from those in double precision, and how many heads.

    Nothing where the arithmetic is in double precision already.
    """
    if choice.dtype == torch.float64:
        return {}
    group, places = heads.n_heads // heads.n_kv_heads, sampled_places(heads, "Q")
    query = double_bases(heads, "Q", places, choice.tolerance)
    key = double_bases(heads, "K", [(layer, head // group) for layer, head in places], choice.tolerance)
    exact = principal_angles(query, key).cpu().numpy()
    difference = np.abs(np.stack([theta[place] for place in places]) - exact[:, : theta.shape[-1]])
    largest = float(np.nanmax(difference)) if np.isfinite(difference).any() else np.nan
    return {"float32_error": largest, "float32_error_heads": len(places)}
