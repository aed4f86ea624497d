r"""Are a table's rows spread over a sphere?

Independent normal rows have norms that vary by 1/sqrt(2d) of their size, and cosines with mean 0 and variance 1/d.
Mean and mean square of the cosines over all pairs need no pairs: with unit rows U, they are
(|sum U|^2 - n) / (n (n - 1)) and (|U^T U|_F^2 - n) / (n (n - 1)). The histogram is of seeded pairs, beside the exact
law of a random cosine, whose density is (1 - c^2)^((d - 3)/2) up to a factor.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from scipy import special  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

from headspan.lenses.positions.spectrum import row_blocks

BINS = 80
PAIRS = 50_000
EDGES = np.linspace(-1, 1, BINS + 1)


def row_statistics(
    table: Float[Tensor, "row d"], mean_row: Float[Tensor, " d"] | None, scratch: int, seed: int
) -> dict[str, float | np.ndarray]:
    """Norms and cosines of the rows, less `mean_row` if given, with their chance; NaN where there are no two rows.

    Rows that are zero have no cosine: they are counted and left out.
    """
    d = table.shape[1]
    norms, total, gram = [], torch.zeros(d, dtype=torch.float64), torch.zeros(d, d, dtype=torch.float64)
    for block in row_blocks(table, scratch):
        rows = (block.double() if mean_row is None else block.double() - mean_row).cpu()
        size = rows.norm(dim=1)
        norms.append(size.numpy())
        unit = rows[size > 0] / size[size > 0, None]
        total += unit.sum(0)
        gram.addmm_(unit.mT, unit)
    size = np.concatenate(norms)
    out = _norms(size, d)
    n = int((size > 0).sum())
    # With fewer than two rows there is no pair, and 0/0 says so.
    pairs = n * (n - 1) if n > 1 else np.nan
    mean, square = (float(total.square().sum()) - n) / pairs, (float(gram.square().sum()) - n) / pairs
    sd_of_mean = np.sqrt(2 / (d * pairs))
    out |= {"cosine_mean": mean, "cosine_mean_chance": 0.0, "cosine_mean_z": mean / sd_of_mean}
    out |= {"cosine_sd": float(np.sqrt(max(square - mean**2, 0))) if n > 1 else np.nan, "cosine_sd_chance": d**-0.5}
    out["cosine_density"] = _sampled(table, mean_row, size, seed)
    out["cosine_density_chance"] = np.diff(_cosine_law(EDGES, d)) * BINS / 2
    return out


def _norms(size: Float[np.ndarray, " row"], d: int) -> dict[str, float | np.ndarray]:
    mean = float(size.mean())
    variation = float(size.std()) / mean if mean > 0 else float("nan")
    return {
        "row_norm": mean,
        "row_norm_variation": variation,
        "row_norm_variation_chance": (2 * d) ** -0.5,
        "zero_rows": float((size == 0).sum()),
    }


def _sampled(
    table: Float[Tensor, "row d"], mean_row: Float[Tensor, " d"] | None, size: Float[np.ndarray, " row"], seed: int
) -> Float[np.ndarray, " bin"]:
    """Density of the cosines of random pairs of different rows that are not zero."""
    there = np.flatnonzero(size > 0)
    if len(there) < 2:
        return np.full(BINS, np.nan)
    rng = np.random.default_rng(seed)
    first = rng.integers(len(there), size=PAIRS)
    second = (first + rng.integers(1, len(there), size=PAIRS)) % len(there)
    counts = np.zeros(BINS)
    for part in np.array_split(np.arange(PAIRS), 50):
        one, other = (_rows(table, mean_row, there[side[part]]) for side in (first, second))
        cosine = torch.nn.functional.cosine_similarity(one, other).cpu().numpy()
        counts += np.histogram(np.clip(cosine, -1, 1), EDGES)[0]
    return counts / PAIRS * BINS / 2


def _rows(table: Tensor, mean_row: Tensor | None, index: np.ndarray) -> Tensor:
    rows = table[torch.as_tensor(index, device=table.device)].double()
    return rows if mean_row is None else rows - mean_row


def _cosine_law(c: Float[np.ndarray, " edge"], d: int) -> Float[np.ndarray, " edge"]:
    """P(cosine <= c) for two random directions: (1 + cosine) / 2 is Beta((d - 1)/2, (d - 1)/2)."""
    half = max(d - 1, 1) / 2
    law: np.ndarray = special.betainc(half, half, (1 + c) / 2)
    return law
