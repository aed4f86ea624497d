"""Variables about the position table's leading directions: sparse in the stream? sinusoids over positions?"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from torch import Tensor

from headspan.lenses.positions.context import FEWEST_POSITIONS, offset_share, sinusoids_against_chance
from headspan.lenses.positions.sparsity import shared_coordinates, sorted_mass_chance, sparsity_against_chance
from headspan.lenses.positions.spectrum import TableSpectra
from headspan.lenses.positions.table_variables import CENTRING, CENTRINGS, Variables

TOP = "top_direction"
SHOWN = 5
"""So many leading directions are kept entry by entry, for figures."""


def sparsity_variables(P: TableSpectra, E: TableSpectra | None, k: int, seed: int) -> Variables:
    """Sparsity [centring, top_direction] of single directions, and the coordinates that the top k share."""
    d = P.stored.d
    grid: dict[str, np.ndarray] = {}
    shared: dict[str, list[object]] = {}
    for place, centring in enumerate(CENTRINGS):
        directions = P[centring].directions[:, :k].cpu().numpy()
        for name, values in sparsity_against_chance(directions, seed).items():
            grid.setdefault(f"sparsity_{name}", np.full((len(CENTRINGS), k), np.nan))[place, : len(values)] = values
        other = None if E is None else E.coordinate_energy[place]
        found = shared_coordinates(directions, other, seed)
        for name in ("leverage", "chosen", "count_chance", "energy", "energy_chance", "energy_z", "energy_p_value"):
            shared.setdefault(name, []).append(getattr(found, name))
    out: Variables = {name: ((CENTRING, TOP), values) for name, values in grid.items()}
    for name, listed in shared.items():
        array = np.array(listed)
        out[f"coordinate_{name}"] = ((CENTRING, "coordinate")[: array.ndim], array)
    out["coordinate_leverage_chance"] = ((CENTRING,), np.array([min(k, P[c].rank) / d for c in CENTRINGS]))
    kept = [_columns(P[c].directions.cpu().numpy(), SHOWN) for c in CENTRINGS]
    out["direction_entry"] = ((CENTRING, "shown_direction", "coordinate"), np.stack(kept))
    out["sorted_mass_chance"] = (("coordinate",), sorted_mass_chance(d, seed))
    return out


def context_obstacle(family: str, n_positions: int, stack: str) -> str | None:
    """Why directions have no meaning as curves over positions, in one line."""
    if family == "vit" or stack == "vision":
        return "positions are patches of an image, not places on a line"
    if n_positions < FEWEST_POSITIONS:
        return f"a sinusoid needs at least {FEWEST_POSITIONS} positions, found {n_positions}"
    return None


def context_variables(W_pos: Float[Tensor, "position d"], P: TableSpectra, k: int, seed: int) -> Variables:
    """Sinusoid fits [centring, top_direction] of the left singular vectors, and the share that depends on offsets."""
    grid: dict[str, np.ndarray] = {}
    curves, shares = [], []
    for place, centring in enumerate(CENTRINGS):
        rows = W_pos.double() - P.mean_row if centring == "centred" else W_pos.double()
        spectrum = P[centring]
        # U = X v / s, as good as s is large, and these are the largest.
        left = (rows @ spectrum.directions[:, :k] / spectrum.values[:k]).cpu().numpy()
        for name, values in sinusoids_against_chance(left, seed).items():
            grid.setdefault(f"wave_{name}", np.full((len(CENTRINGS), k), np.nan))[place, : len(values)] = values
        curves.append(_columns(left, SHOWN))
        shares.append(offset_share(rows.cpu().numpy()))
    out: Variables = {name: ((CENTRING, TOP), values) for name, values in grid.items()}
    out["curve"] = ((CENTRING, "shown_direction", "position"), np.stack(curves))
    out["offset_share"] = ((CENTRING,), np.array(shares))
    out["offset_share_chance"] = ((), np.array(2 / len(W_pos)))
    return out


def _columns(values: Float[np.ndarray, "n k"], count: int) -> Float[np.ndarray, "count n"]:
    """The first columns as rows, NaN where there are fewer."""
    out = np.full((count, len(values)), np.nan)
    kept = values[:, :count]
    out[: kept.shape[1]] = kept.T
    return out
