"""Do heads whose attention spaces lie close attend alike? Rank correlation over the pairs of heads of a layer.

1. Behavior: the Jensen-Shannon divergence of two heads' attention rows, averaged over queries and token buffers.
2. Geometry: the Grassmann distance of their attention spaces R_Q + R_K, as the similarity lens measures it.
3. Spearman's correlation of the two over all pairs, with Mantel's test (`headspan.statistics.permutation`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.heads import Heads
from headspan.lenses.similarity import similarity
from headspan.runtime import Forward
from headspan.runtime.forward_pass import full_logs, js_rows

Array = npt.NDArray[np.float64]


def pattern_divergences(run: Forward, place: int) -> Float[Tensor, "head head"]:
    """Jensen-Shannon divergence of every two heads of a layer, in nats, averaged over queries: in [0, log 2]."""
    first = 1 if run.model.causal else 0
    logs = full_logs(run, place)[:, :, first:]
    n = logs.shape[1]
    found = torch.zeros(n, n, dtype=torch.float64)
    for i in range(n - 1):
        others = logs[:, i + 1 :]
        rest = js_rows(logs[:, i : i + 1].expand_as(others), others).mean((0, 2)).cpu()
        found[i, i + 1 :] = found[i + 1 :, i] = rest
    return found


def space_distances(heads: Heads) -> list[Array]:
    """Grassmann distance of the attention spaces of every two heads, layer by layer."""
    found = similarity(heads, distance="grassmann", across_layers=False, maps=False).grid()["layer_distance"]
    return list(found.transpose("layer", "head", "peer").values)
